"""An agent that counts how often it did what, and pays itself a bonus for what it has rarely tried.

The bonus is that of MBIE-EB (Strehl and Littman, 2008), bonus / sqrt(n(s, a)), over a table of discretised states. It is also the
smallest example of an agent that carries something: one array that `written` replaces and no gradient touches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self

import equinox as eqx
import jax.numpy as jnp

from rulax.agents.agent import make_agent
from rulax.agents.base import Agent, AgentMaker, Carried, WrappedAgent
from rulax.envs.base import Episode
from rulax.settings import Network
from rulax.types import Array, Experience, Head, PyTree, now

Cell = Callable[[PyTree], Array]  # observations [..., *shape] -> the number of the state's cell, int32 [...]


class CountingAgent(WrappedAgent):
    """Any agent of discrete actions, with a table of its visits."""

    visits: Carried  # int32 [cells, A]
    cell: Cell = eqx.field(static=True)
    bonus: float = eqx.field(static=True)

    def written(self, experience: Experience, episodes: Episode) -> tuple[Self, Experience]:
        """Count the unroll's valid steps, then add to each of their rewards bonus / sqrt(n), where n includes the whole unroll."""
        after, experience = super().written(experience, episodes)
        at = self.cell(now(experience.observation)), experience.action  # both [T, B]
        # `add`, because a pair that occurs several times in an unroll counts as often.
        visits = self.visits.value.at[at].add(experience.valid.astype(jnp.int32))
        # A pair that only invalid steps have met has no visits, and must not divide by zero.
        earned = self.bonus / jnp.sqrt(jnp.maximum(visits[at], 1).astype(experience.reward.dtype))
        reward = experience.reward + jnp.where(experience.valid, earned, 0)
        return eqx.tree_at(lambda agent: agent.visits.value, after, visits), experience._replace(reward=reward)


def with_count_bonus(cell: Cell, cells: int, bonus: float, make: AgentMaker = make_agent) -> AgentMaker:
    """Make agents as `make` does, which count their visits and are paid a bonus.

    Args:
        cell: from observations [..., *shape] to the number of each one's cell, int32 [...] below `cells`.
        cells: how many cells there are.
        bonus: what the first visit of a cell with an action is worth.
        make: makes the agent that acts and learns.

    Returns:
        What `Recipe.make_agent` can be: `recipe._replace(make_agent=with_count_bonus(...))`.
    """

    def made(
        key: Array,
        observation: PyTree,
        num_actions: int,
        heads: Mapping[str, Head],
        network: Network,
        action_dimensions: int = 0,
        num_streams: int = 1,
        real_dimensions: int = 0,
    ) -> Agent:
        if action_dimensions:
            raise ValueError(f"a table of visits needs actions that are one choice, not {action_dimensions} at once")
        if real_dimensions:
            raise ValueError("a table of visits needs actions that are one choice, not real numbers: --action-distribution bins")
        agent = make(key, observation, num_actions, heads, network, action_dimensions, num_streams)
        return CountingAgent(agent, Carried(jnp.zeros((cells, num_actions), jnp.int32)), cell, bonus)

    return made

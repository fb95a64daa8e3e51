"""An agent that learns from the worst of its episodes only: EPOpt (Rajeswaran et al. 2017).

Where constants are drawn for every episode (`--randomise`), the mean return is dominated by what is easy. EPOpt maximises the mean
over the lowest share of returns instead, so that a policy is made safe where it fails. It needs no other rule: the steps of better
episodes are marked as not valid, once after every unroll, and every rule averages over valid steps alone.
"""

from __future__ import annotations

from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.base import Agent, WrappedAgent
from rulax.envs.base import Episode
from rulax.types import Array, Experience


class WorstEpisodes(WrappedAgent):
    """Any agent, which after its first `after` unrolls learns only from the `share` of episodes with the lowest returns."""

    unrolls: Array  # [] int32, those written so far; whole numbers are carried, see base.py
    share: float = eqx.field(static=True)
    after: int = eqx.field(static=True)

    def written(self, experience: Experience, episodes: Episode) -> tuple[Self, Experience]:
        # The agent inside writes first: its statistics and tables are of everything that happened.
        after, experience = super().written(experience, episodes)
        kept = worst_episodes(episodes, self.share) | (self.unrolls < self.after)
        after = eqx.tree_at(lambda agent: agent.unrolls, after, self.unrolls + 1)
        return after, experience._replace(valid=experience.valid & kept)


def worst_episodes(episodes: Episode, share: float) -> Array:
    """Whether each step [T, B] of an unroll belongs to one of the worst episodes that ended in it.

    Every episode is judged once, in the unroll in which it ended, by its whole return; of one that began earlier, the steps in this
    unroll count. It is kept if its return is at most that of number ceil(share x episodes), in ascending order: of equal ones all
    are. How an episode will end that goes on after the unroll is not known, so its steps are not kept.

    Args:
        episodes: [T, B], as acting reports them.
        share: of the episodes, above 0 and at most 1.
    """
    returns = jnp.where(episodes.ended, episodes.total, jnp.inf)
    # Less a little, because 0.1 x 30 is rounded to a little more than 3.
    number = jnp.ceil(share * jnp.sum(episodes.ended) - 1e-3).astype(jnp.int32)
    highest = jnp.sort(returns, axis=None)[jnp.maximum(number, 1) - 1]

    def belongs(total: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        ended, own = step
        total = jnp.where(ended, own, total)
        return total, total

    # Backwards: a step belongs to the next end of its stream.
    unknown = jnp.full(episodes.ended.shape[1:], jnp.inf, returns.dtype)
    _, totals = jax.lax.scan(belongs, unknown, (episodes.ended, returns), reverse=True)
    return (totals <= highest) & (totals < jnp.inf)  # without any end the highest is infinite, and nothing is kept


def learning_from_worst(agent: Agent, share: float, after: int) -> Agent:
    """A fresh agent that learns from this share of its episodes; with a share of 1 it is the agent itself."""
    return WorstEpisodes(agent, jnp.zeros((), jnp.int32), share, after) if share < 1 else agent


def learning_from_all(agent: Agent) -> Agent:
    """The agent without that wrapper: which episodes it learned from is nothing that it needs to act."""
    return agent.agent if isinstance(agent, WorstEpisodes) else agent

"""An agent that acts by its action values: epsilon-greedy, with an epsilon that falls over its first steps (Mnih et al. 2015)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.agent import CategoricalAgent, make_reader
from rulax.agents.base import Carried
from rulax.agents.layers import MLP
from rulax.agents.value_heads import ValueHeads, zero_values
from rulax.envs.base import Episode
from rulax.settings import Bounds, Fraction, Network
from rulax.types import Array, Experience, Head, PyTree


class ValueAgent(CategoricalAgent):
    """The ordinary agent with `ValueHeads`; it counts its steps, by which its exploration falls."""

    heads: ValueHeads

    def written(self, experience: Experience, episodes: Episode) -> tuple[Self, Experience]:
        steps = self.heads.steps.value + experience.reward.size
        return eqx.tree_at(lambda agent: agent.heads.steps.value, self, steps), experience


def make_value_agent(
    key: Array,
    observation: PyTree,
    num_actions: int,
    heads: Mapping[str, Head],
    network: Network,
    action_dimensions: int = 0,
    num_streams: int = 1,
    real_dimensions: int = 0,
    *,
    dueling: bool = False,
    first_epsilon: Fraction = 1.0,
    epsilon: Fraction = 0.05,
    exploration_steps: Annotated[int, Bounds(at_least=0)] = 10_000,
) -> ValueAgent:
    """A fresh agent; an `AgentMaker`, whose docstring explains the other arguments.

    The hidden layers of the values are those of `network.action_hidden`.

    Args:
        dueling: whether values are those of states plus advantages, each with hidden layers of its own.
        first_epsilon: share of uniformly random actions at first.
        epsilon: the same in the end.
        exploration_steps: environment steps over which the share falls from one to the other.
    """
    del num_streams
    if real_dimensions:
        raise ValueError(
            "this agent chooses the action of the largest value, and cannot choose among real numbers: --action-distribution bins"
        )
    if set(heads) != {"policy", "value"} or heads["value"] != Head(1, per_action=True):
        raise ValueError("this agent predicts one value per action, and nothing else but the policy that follows them")
    key_torso, key_core, key_advantage, key_state = jax.random.split(key, 4)
    torso, core, width = make_reader(key_torso, key_core, observation, network)
    dimensions, sizes = max(1, action_dimensions), (width, *network.action_hidden)
    advantage = MLP(key_advantage, (*sizes, num_actions * dimensions))
    state = MLP(key_state, (*sizes, dimensions)) if dueling else None
    made = ValueHeads(advantage, state, Carried(jnp.int32(0)), action_dimensions, (first_epsilon, epsilon, exploration_steps))
    return ValueAgent(torso, core, zero_values(made) if network.value_init == "zero" else made)

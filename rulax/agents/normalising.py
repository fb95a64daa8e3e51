"""An agent that normalises what it sees, what it is paid, or both, by statistics of its own life.

The statistics are carried with the agent: saved and restored with it, shared by all its streams, used wherever it acts. They
change where an agent may change, once after every unroll, so all steps of an unroll are read in the same way.
"""

from __future__ import annotations

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.base import Agent, Carried, PerStream, WrappedAgent
from rulax.envs.base import Episode
from rulax.types import Array, Experience, Policy, PyTree, now
from rulax.values.normalisation import Statistics, merge_statistics, over_deviation, standardised, start_statistics

DISCOUNT = 0.99  # of the return whose deviation scales rewards, whatever the rule's own; as in Gymnasium and Stable-Baselines3


class ObservationNormaliser(WrappedAgent):
    """Any agent, which sees every real number of an observation with mean 0 and deviation 1, at most 10 in size.

    Whole numbers (pixels in bytes, symbols) are left alone. What is stored and replayed stays as the environment showed it, so
    old experience is read by the statistics of today.
    """

    statistics: Carried  # a tuple: `Statistics` [*shape] of each part of an observation that is made of real numbers

    def act(self, observation: PyTree, first: Array, memory: PyTree) -> tuple[Policy, PyTree]:
        return self.agent.act(self.seen(observation), first, memory)

    def remember(self, experience: Experience) -> PyTree:
        return self.agent.remember(experience._replace(observation=self.seen(experience.observation)))

    def embed(self, experience: Experience) -> Any:
        return self.agent.embed(experience._replace(observation=self.seen(experience.observation)))

    def written(self, experience: Experience, episodes: Episode) -> tuple[Self, Experience]:
        """Count the observations of the unroll's valid steps; the last observation is the first of the next unroll."""
        # An agent with a table must write by what it acts by; what is stored stays as the environment showed it.
        after, kept = super().written(experience._replace(observation=self.seen(experience.observation)), episodes)
        kept = kept._replace(observation=experience.observation)
        parts = filter(is_floating, jax.tree.leaves(experience.observation))
        merged = tuple(
            merge_statistics(known, now(part), experience.valid) for known, part in zip(self.statistics.value, parts, strict=True)
        )
        return eqx.tree_at(lambda agent: agent.statistics.value, after, merged), kept

    def seen(self, observation: PyTree) -> PyTree:
        """Observations [..., *shape] as the agent inside sees them."""
        leaves, structure = jax.tree.flatten(observation)
        known = iter(self.statistics.value)
        return jax.tree.unflatten(structure, [standardised(next(known), leaf) if is_floating(leaf) else leaf for leaf in leaves])


class RewardNormaliser(WrappedAgent):
    """Any agent, which learns from rewards over the deviation of their discounted return, at most 10 in size.

    Their mean is not subtracted: that would change which behaviour is best. Replayed rewards stay as they were scaled when new.
    """

    statistics: Carried  # `Statistics` [] of the discounted return so far, one value per step
    returns: PerStream  # [B], that return at the last step of each stream

    def written(self, experience: Experience, episodes: Episode) -> tuple[Self, Experience]:
        """Follow the returns of the unroll, count them, then scale its rewards by what is known now."""
        after, experience = super().written(experience, episodes)

        def follow(so_far: Array, step: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            reward, first, valid = step
            # Not by `ended`: an episode may also be abandoned, which only the next first observation tells.
            so_far = jnp.where(first > 0, 0, so_far)
            so_far = jnp.where(valid, DISCOUNT * so_far + reward, so_far)
            return so_far, so_far

        steps = experience.reward, now(experience.first), experience.valid
        last, returns = jax.lax.scan(follow, self.returns.value, steps)
        statistics = merge_statistics(self.statistics.value, returns, experience.valid)
        reward = jnp.where(experience.valid, over_deviation(statistics, experience.reward), experience.reward)
        after = eqx.tree_at(lambda agent: (agent.statistics.value, agent.returns.value), after, (statistics, last))
        return after, experience._replace(reward=reward)


def is_floating(leaf: Any) -> bool:
    """Whether a part of an observation is made of real numbers."""
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def normalising(agent: Agent, observation: PyTree, num_streams: int, observations: bool, rewards: bool) -> Agent:
    """A fresh agent that normalises observations, rewards, or both; with neither it is the agent itself.

    Args:
        agent: acts and learns.
        observation: shapes and dtypes of one observation.
        num_streams: B, the streams that the agent acts in.
        observations: whether it sees observations normalised.
        rewards: whether it learns from normalised rewards.
    """
    if observations:
        real = filter(is_floating, jax.tree.leaves(observation))
        statistics: tuple[Statistics, ...] = tuple(start_statistics(part.shape, part.dtype) for part in real)
        if not statistics:
            raise ValueError("normalise_observations needs observations of real numbers; these are whole numbers, so leave it out")
        agent = ObservationNormaliser(agent, Carried(statistics))
    if rewards:
        agent = RewardNormaliser(agent, Carried(start_statistics()), PerStream(jnp.zeros(num_streams, jnp.float32)))
    return agent

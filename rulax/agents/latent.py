"""MAESN's agent: a Gaussian policy that also reads a latent variable, drawn once per episode from a Gaussian of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.agents.base import BaseAgent
from rulax.agents.layers import Linear
from rulax.agents.torsos import Torso, make_torso
from rulax.settings import Network
from rulax.types import Array, Experience, Predictions, PyTree, starts
from rulax.values.real_policies import Gaussian

NOISE = "noise"  # the part of an observation in which `envs/lasting.py: with_noise` shows what was drawn


class LatentPolicy(NamedTuple):
    """A Gaussian over actions, given a latent variable; where that was drawn, it counts as a part of the action."""

    actions: Gaussian  # [..., D]
    latents: Gaussian  # [..., L], what the latent variable is drawn from
    latent: Array  # [..., L], what was drawn
    drawn: (
        Array  # [...], 1 where it was drawn, at the start of an episode, else 0; a float, since gradients pass through predictions
    )

    def sample(self, key: Array) -> Array:
        return self.actions.sample(key)

    def greedy(self) -> Array:
        return self.actions.greedy()

    def log_probability(self, action: Array) -> Array:
        return self.actions.log_probability(action) + self.drawn * self.latents.log_probability(self.latent)

    def entropy(self) -> Array:
        return self.actions.entropy()


class LatentAgent(BaseAgent):
    """pi(a | s, z), z ~ N(mean, deviation²), drawn from the noise that the environment shows (`envs/lasting.py: with_noise`).

    z = mean + deviation * noise is computed where the agent acts, and recorded with the policy that acted. To an update it is
    data, as the action is: so the gradient with respect to its distribution is that of a likelihood ratio, and says which latent
    variables did better than others. A gradient through z would only say how actions near those that were taken would have done.
    """

    torso: Torso
    mean: Linear
    log_deviation: Array  # [D], of actions
    latents: Gaussian  # [L] each: mean and log-deviation of the latent variable

    def act(self, observation: Mapping[str, Array], first: Array, memory: PyTree) -> tuple[LatentPolicy, PyTree]:
        """The policy [B] for one observation per stream."""
        return self._policy(observation, first, self._latent(observation)), memory

    def embed(self, experience: Experience) -> LatentPolicy:
        """The policy [T+1, B], given the latent variables that acted."""
        # Nothing has acted upon the last observation: there it is the variable that this agent would draw.
        last = jax.tree.map(lambda part: part[-1:], experience.observation)
        assert isinstance(experience.behaviour, LatentPolicy)  # experience of such an agent
        latent = jnp.concatenate([experience.behaviour.latent, jax.lax.stop_gradient(self._latent(last))])
        return self._policy(experience.observation, experience.first, latent)

    def predict(self, embedded: LatentPolicy) -> Predictions:
        """All predictions."""
        return {"policy": embedded}

    def predict_taken(self, embedded: LatentPolicy, action: Array) -> Predictions:
        """The same as `predict`: none of them is per action."""
        return {"policy": embedded}

    def _latent(self, observation: Mapping[str, Array]) -> Array:
        return self.latents.mean + jnp.exp(self.latents.log_deviation) * observation[NOISE]

    def _policy(self, observation: Mapping[str, Array], first: Array, latent: Array) -> LatentPolicy:
        mean = self.mean(self.torso({**observation, NOISE: latent}))
        actions = Gaussian(mean, jnp.broadcast_to(self.log_deviation, mean.shape))
        latents = Gaussian(*(jnp.broadcast_to(each, latent.shape) for each in self.latents))
        return LatentPolicy(actions, latents, latent, starts(first).astype(mean.dtype))


def make_latent_agent(
    key: Array, observation: Mapping[str, jax.ShapeDtypeStruct], dimensions: int, network: Network, deviation: float = 1.0
) -> LatentAgent:
    """A fresh agent whose latent variable is standard normal: the prior.

    Args:
        key: randomness for its weights.
        observation: shapes and dtypes of one observation; its "noise" has the size L of the latent variable.
        dimensions: D, the dimensions of an action.
        network: sizes of the torso.
        deviation: of every dimension of an action.
    """
    if not isinstance(observation, Mapping) or NOISE not in observation:
        raise ValueError("an agent with a latent variable needs an environment that shows noise: envs/lasting.py: with_noise")
    key_torso, key_mean = jax.random.split(key)
    # Not almost zero, as in other agents: were all latent variables to lead to the same actions, none could be told to be better.
    mean = Linear(key_mean, network.hidden[-1], dimensions)
    prior = Gaussian(*jnp.zeros((2, *observation[NOISE].shape)))
    return LatentAgent(make_torso(key_torso, observation, network), mean, jnp.full(dimensions, jnp.log(deviation)), prior)

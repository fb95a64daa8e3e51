"""MAML's agent, which predicts nothing but a Gaussian policy; that of other rules is `CategoricalAgent` with a Gaussian head."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rulax.agents.base import BaseAgent
from rulax.agents.heads import STATE_HEAD_STD
from rulax.agents.layers import Linear
from rulax.agents.torsos import Torso, make_torso
from rulax.settings import Network
from rulax.types import Array, Experience, Predictions, PyTree
from rulax.values.real_policies import Gaussian


class GaussianAgent(BaseAgent):
    """A Gaussian policy over actions of D dimensions; its deviation is the same in every state, as in MAML's and TRPO's papers."""

    torso: Torso
    mean: Linear
    log_deviation: Array  # [D]

    def act(self, observation: Array, first: Array, memory: PyTree) -> tuple[Gaussian, PyTree]:
        """The policy [B, D] for one observation per stream."""
        return self._policy(observation), memory

    def embed(self, experience: Experience) -> Gaussian:
        """The policy [T+1, B, D]: no prediction is per action, so this is all there is."""
        return self._policy(experience.observation)

    def predict(self, embedded: Gaussian) -> Predictions:
        """All predictions, [..., D]."""
        return {"policy": embedded}

    def predict_taken(self, embedded: Gaussian, action: Array) -> Predictions:
        """The same as `predict`: none of them is per action."""
        return {"policy": embedded}

    def _policy(self, observation: Array) -> Gaussian:
        mean = self.mean(self.torso(observation))
        return Gaussian(mean, jnp.broadcast_to(self.log_deviation, mean.shape))


def make_gaussian_agent(
    key: Array, observation: jax.ShapeDtypeStruct, dimensions: int, network: Network, deviation: float = 1.0
) -> GaussianAgent:
    """A fresh agent whose mean is close to zero everywhere.

    Args:
        key: randomness for its weights.
        observation: shape and dtype of one observation.
        dimensions: D, the dimensions of an action.
        network: sizes of the torso.
        deviation: of every dimension.
    """
    key_torso, key_mean = jax.random.split(key)
    mean = Linear(key_mean, network.hidden[-1], dimensions, STATE_HEAD_STD)
    return GaussianAgent(make_torso(key_torso, observation, network), mean, jnp.full(dimensions, jnp.log(deviation)))

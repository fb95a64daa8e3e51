"""An agent whose actions are vectors of real numbers: a diagonal Gaussian whose mean is a network's output."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rulax.agents.base import BaseAgent
from rulax.agents.distributions import sample_gaussian
from rulax.agents.heads import STATE_HEAD_STD
from rulax.agents.layers import Linear
from rulax.agents.torsos import Torso, make_torso
from rulax.settings import Network
from rulax.types import Array, Experience, Factored, Policy, Predictions, PyTree


class GaussianAgent(BaseAgent):
    """A Gaussian policy over actions of D dimensions; its deviation is the same in every state, as in MAML's and TRPO's papers."""

    torso: Torso
    mean: Linear
    log_deviation: Array  # [D]

    def sample(self, key: Array, policy: Policy) -> Array:
        """Actions [B, D] from means and log-deviations [B, 2 D]."""
        assert not isinstance(policy, Factored)
        return sample_gaussian(key, policy)

    def act(self, observation: Array, first: Array, memory: PyTree) -> tuple[Array, PyTree]:
        """Means and log-deviations [B, 2 D] for one observation per stream."""
        return self._policy(observation), memory

    def embed(self, experience: Experience) -> Array:
        """Means and log-deviations [T+1, B, 2 D]: no prediction is per action, so this is all there is."""
        return self._policy(experience.observation)

    def predict(self, embedded: Array) -> Predictions:
        """All predictions, [..., 2 D]."""
        return {"policy": embedded}

    def predict_taken(self, embedded: Array, action: Array) -> Predictions:
        """The same as `predict`: none of them is per action."""
        return {"policy": embedded}

    def _policy(self, observation: Array) -> Array:
        mean = self.mean(self.torso(observation))
        return jnp.concatenate([mean, jnp.broadcast_to(self.log_deviation, mean.shape)], -1)


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

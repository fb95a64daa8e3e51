"""An agent whose actions are vectors of real numbers: a diagonal Gaussian whose mean the network says. It has the calls of
`agents/agent.py`, so that acting and learning do not tell the two apart."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.distributions import gaussian
from rulax.agents.heads import STATE_HEAD_STD
from rulax.agents.layers import Linear
from rulax.agents.torsos import Torso, make_torso
from rulax.settings import Network
from rulax.types import Array, Experience, Predictions, PyTree


class GaussianAgent(eqx.Module):
    """Parameters of a Gaussian policy; the deviation is the same in every state, as in the MAML and TRPO papers."""

    torso: Torso
    mean: Linear
    log_deviation: Array  # [D]

    sample = staticmethod(gaussian.sample)

    def initial_memory(self, num_streams: int) -> PyTree:
        """It has none."""
        return ()

    def act(self, observation: Array, first: Array, memory: PyTree) -> tuple[Array, PyTree]:
        """Means and log-deviations [B, 2 D] for one observation per stream."""
        return self._policy(observation), memory

    def embed(self, experience: Experience) -> Array:
        """The policy's numbers for each of the T + 1 observations: no action is looked at, so this is all there is."""
        return self._policy(experience.observation)

    def predict(self, embedded: Array) -> Predictions:
        """All predictions, [..., 2 D]."""
        return {"policy": embedded}

    def predict_taken(self, embedded: Array, action: Array) -> Predictions:
        """The same: none of them is per action."""
        return {"policy": embedded}

    def _policy(self, observation: Array) -> Array:
        mean = self.mean(self.torso(observation))
        return jnp.concatenate([mean, jnp.broadcast_to(self.log_deviation, mean.shape)], -1)


def make_gaussian_agent(
    key: Array, observation: jax.ShapeDtypeStruct, dimensions: int, network: Network, deviation: float = 1.0
) -> GaussianAgent:
    """A fresh agent that hardly prefers any direction."""
    key_torso, key_mean = jax.random.split(key)
    mean = Linear(key_mean, network.hidden[-1], dimensions, STATE_HEAD_STD)
    return GaussianAgent(make_torso(key_torso, observation, network), mean, jnp.full(dimensions, jnp.log(deviation)))

"""A trained agent as a user holds it: show it an observation, get an action."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rulax.types import Array, PyTree


@jax.jit
def _decide(params: PyTree, observation: Array, first: Array, memory: PyTree) -> tuple[Array, PyTree]:
    logits, memory = params.act(observation, first, memory)
    return logits, memory


class AgentHandle:
    """One agent's parameters and its memory of the episode so far."""

    def __init__(self, params: PyTree, observation: jax.ShapeDtypeStruct):
        self.params, self.observation = params, observation
        self.reset()

    def reset(self) -> None:
        """Begin a new episode. Only agents with a recurrent core remember anything."""
        self.memory: PyTree = None
        self.first = True

    def act(self, observation: Any, key: Array | None = None, greedy: bool = True) -> Any:
        """The action for one observation: an int, or an array if the observation has a leading axis of streams.

        Greedy takes the most likely action; otherwise it is drawn with `key`.
        """
        if not greedy and key is None:
            raise ValueError("act(greedy=False) draws an action at random and needs a key, for example jax.random.key(0)")
        observation = jnp.asarray(observation, self.observation.dtype)
        single = observation.shape == self.observation.shape
        if not single and observation.shape[1:] != self.observation.shape:
            raise ValueError(f"an observation has shape {self.observation.shape}, not {observation.shape}")
        batch = observation[None] if single else observation
        if self.memory is None:
            self.memory = self.params.initial_memory(len(batch))
        first = jnp.full(len(batch), self.first)
        logits, self.memory = _decide(self.params, batch, first, self.memory)
        self.first = False
        action = np.asarray(jnp.argmax(logits, -1) if greedy or key is None else jax.random.categorical(key, logits))
        return int(action[0]) if single else action

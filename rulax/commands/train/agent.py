"""A trained agent as a user holds it: show it an observation, get an action."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rulax.agents.distributions import likeliest_choice
from rulax.envs.adapters.stacking import Stacked
from rulax.types import Array, Level, Policy, PyTree


@jax.jit
def _decide(params: PyTree, observation: Array, first: Array, memory: PyTree) -> tuple[Policy, PyTree]:
    logits, memory = params.act(observation, first, memory)
    return logits, memory


class AgentHandle:
    """One agent's parameters, the environment that it was trained in, and its memory of the episode so far.

    Observations and actions are the environment's own: the index of a `Discrete` space is read, and counted, as it does; where
    frames are stacked it is shown one frame after the other.
    """

    def __init__(self, params: PyTree, environment: Any):
        self.params, self.environment, self.observation = params, environment, environment.observation
        self.reset()

    def reset(self, level: Level = Level.LIFE) -> None:
        """Begin a new episode with no memory at all; or, with a lower level, with the memory that lasts longer than that.

        An agent with `memory_level` "trial" is played as it was trained by `reset(Level.EPISODE)` between the episodes of a trial.
        """
        # Below that the memory stays, and the network itself clears what does not last beyond `first`.
        if level == Level.LIFE:
            self.memory: PyTree = None
        self.frames: PyTree = None  # the last ones, where the environment stacks them
        self.first = level

    def act(self, observation: Any, key: Array | None = None, greedy: bool = True) -> Any:
        """The action for one observation: an int, or an array if the observation has a leading axis of streams.

        Where an action has several dimensions, or is made of real numbers, it is an array of the environment's own shape.
        Greedy takes the most likely action; otherwise it is drawn with `key`.
        """
        if not greedy and key is None:
            raise ValueError("act(greedy=False) draws an action at random and needs a key, for example jax.random.key(0)")
        # The agent was trained on what the adapter makes of an observation, so the same is done here to the environment's own.
        shown = self.environment.preprocess(observation)
        if isinstance(self.environment, Stacked):
            shown = self.frames = self.environment.push(self.frames, shown)
        observation = jax.tree.map(lambda spec, part: jnp.asarray(part, spec.dtype), self.observation, shown)
        parts = list(zip(jax.tree.leaves(self.observation), jax.tree.leaves(observation), strict=True))  # one, or a dictionary's
        single = all(part.shape == spec.shape for spec, part in parts)
        for spec, part in parts:
            if not single and part.shape[1:] != spec.shape:
                raise ValueError(f"an observation has shape {spec.shape}, not {part.shape}")
        batch = jax.tree.map(lambda part: part[None], observation) if single else observation
        streams = len(jax.tree.leaves(batch)[0])
        if self.memory is None:
            self.memory = self.params.initial_memory(streams)
        remembered = [leaf.shape[0] for leaf in jax.tree.leaves(self.memory)]
        # Broadcasting might accept it silently and mix the memories of different episodes.
        if remembered and remembered[0] != streams:
            raise ValueError(
                f"the agent remembers {remembered[0]} stream(s) of this episode, but was shown {streams}; call reset() first"
            )
        first = jnp.full(streams, self.first, jnp.int8)
        logits, self.memory = _decide(self.params, batch, first, self.memory)
        # Only after the network has seen it: the next observation goes on with the same episode.
        self.first = Level.NOTHING
        chosen = likeliest_choice(logits) if greedy or key is None else self.params.sample(key, logits)
        action = self.environment.native_action(np.asarray(chosen))
        if not single:
            return action
        return int(action[0]) if action.ndim == 1 and np.issubdtype(action.dtype, np.integer) else action[0]

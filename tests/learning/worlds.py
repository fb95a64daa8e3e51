"""A world that counts, so that every number in a trajectory can be predicted."""

import dataclasses

import jax
import jax.numpy as jnp

from rulax.envs.base import Environment, Transition


@dataclasses.dataclass(frozen=True)
class Counter(Environment):
    """Observation: steps since the start. Reward: 10 * observation + action. Ends (or is cut off) after `length` steps."""

    length: int = 3
    cut: bool = False
    num_actions: int = 2
    observation = jax.ShapeDtypeStruct((1,), jnp.float32)

    def default_task(self):
        return jnp.float32(0)

    def sample_task(self, key):
        return jax.random.uniform(key)

    def reset(self, task, key):
        return jnp.int32(0), jnp.zeros(1)

    def step(self, task, state, action, key):
        reward = 10.0 * state + action + task
        ended = state + 1 >= self.length
        terminated = ended & (not self.cut)
        observation = (state + 1).astype(jnp.float32)[None]
        return state + 1, Transition(observation, reward, terminated, ended & self.cut)

"""An environment of your own: two pure functions and a task. Everything else (auto-reset, batching, statistics) is done for you."""

import dataclasses
import sys

import jax
import jax.numpy as jnp

import rulax
from rulax.envs.base import Environment, Transition


@dataclasses.dataclass(frozen=True)
class Guess(Environment):
    """The agent sees a number and must say whether it is above the task's threshold: +1 if right, -1 if wrong."""

    num_actions: int = 2
    observation = jax.ShapeDtypeStruct((1,), jnp.float32)

    def default_task(self):
        return jnp.float32(0.3)

    def sample_task(self, key):
        return jax.random.uniform(key, minval=-1.0, maxval=1.0)

    def reset(self, task, key):
        number = jax.random.uniform(key, (1,), minval=-1.0, maxval=1.0)
        return number, number

    def step(self, task, state, action, key):
        right = (state[0] > task) == (action == 1)
        reward = jnp.where(right, 1.0, -1.0)
        return state, Transition(state, reward, terminated=jnp.bool_(True), truncated=jnp.bool_(False))


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60_000
run = rulax.train(Guess(), rule="actor_critic", steps=steps, quiet=True)
print(run)
for number in (-0.5, 0.2, 0.4, 0.9):
    print(f"{number:+.1f} is", "above" if run.agent.act(jnp.array([number])) else "below")

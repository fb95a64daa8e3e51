"""An environment that counts, so that every number in a trajectory can be predicted; and a host environment of stacked frames."""

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np

from rulax.envs.base import Environment, Episode, HostEnvironment, HostStreams, Timestep, Transition
from rulax.envs.wrappers import streams as make_streams
from rulax.types import Level


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


class OnHost(HostEnvironment):
    """A compiled environment, stepped from the host: the same in the other form."""

    def __init__(self, environment: Environment):
        self.environment = environment
        self.num_actions, self.action_dimensions = environment.num_actions, environment.action_dimensions
        self.observation = environment.observation

    def open(self, num_streams):
        return HostedStreams(self.environment, num_streams)


class HostedStreams(HostStreams):
    def __init__(self, environment, num_streams):
        streams = make_streams(environment, num_streams)
        self.task = environment.default_task()
        self.begin, self.move = jax.jit(streams.start), jax.jit(streams.step)

    def start(self, seed):
        self.key, key = jax.random.split(jax.random.key(seed))
        self.state, timestep = self.begin(self.task, key)
        return jax.tree.map(np.asarray, timestep)

    def step(self, action):
        self.key, key = jax.random.split(self.key)
        self.state, timestep = self.move(self.task, self.state, action, key)
        return jax.tree.map(np.asarray, timestep)

    def close(self):
        pass


class Flicker(HostEnvironment):
    """Images [4, 4, 4] of random frames, stacked by a queue that starts black; episodes of 7 steps, the odd streams' cut off.

    `pause` seconds pass in every step; `frames` says whether replay may know that the images are stacks.
    """

    num_actions = 2
    observation = jax.ShapeDtypeStruct((4, 4, 4), np.uint8)

    def __init__(self, frames: int = 4, pause: float = 0.0):
        self.frames, self.pause = frames, pause

    def open(self, num_streams):
        return FlickerStreams(self, num_streams)


class FlickerStreams(HostStreams):
    def __init__(self, environment, num_streams):
        self.environment, self.number = environment, num_streams

    def start(self, seed):
        self.generator = np.random.default_rng(seed)
        self.queue = np.zeros((self.number, 4, 4, 4), np.uint8)
        self.count, self.dummy = np.zeros(self.number, int), np.zeros(self.number, bool)
        self.show(np.ones(self.number, bool))
        nothing = np.zeros(self.number, np.float32)
        ended = Episode(nothing > 0, nothing, nothing.astype(np.int32))
        first = np.full(self.number, Level.LIFE, np.int8)
        return Timestep(self.queue.copy(), first, nothing, nothing + 1, nothing == 0, ended)

    def show(self, fresh):
        self.queue[fresh] = 0
        self.queue[..., :-1] = self.queue[..., 1:].copy()
        self.queue[..., -1] = self.generator.integers(0, 256, (self.number, 4, 4))

    def step(self, action):
        time.sleep(self.environment.pause)
        reward = np.where(self.dummy, 0, action == (self.queue[:, 0, 0, -1] > 127)).astype(np.float32)
        self.count = np.where(self.dummy, 0, self.count + 1)
        ended, cut = self.count == 7, np.arange(self.number) % 2 == 1
        first, valid = self.dummy | (ended & ~cut), ~self.dummy
        self.show(first)
        self.dummy = ended & cut
        statistics = Episode(ended, 7 * ended.astype(np.float32), 7 * ended.astype(np.int32))
        self.count = np.where(ended & ~cut, 0, self.count)
        discount = np.where(ended & ~cut, 0, 1).astype(np.float32)
        return Timestep(self.queue.copy(), first.astype(np.int8), reward, discount, valid, statistics)

    def close(self):
        pass

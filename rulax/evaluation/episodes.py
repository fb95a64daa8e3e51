"""Evaluation: an agent plays whole episodes, and nothing is learned from them.

Every stream plays a fixed number of episodes from its start, and all of these count. So short episodes weigh no more than long
ones, as they would if streams were stopped after some time, or if the first N that end were taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.agents.base import Agent
from rulax.agents.distributions import likeliest_choice
from rulax.envs.adapters.restart import RestartingStreams
from rulax.envs.base import Environment, HostEnvironment
from rulax.envs.wrappers import streams as make_streams
from rulax.learning.rollout import Actor, begin
from rulax.types import Array, Policy, PyTree

MOST_STREAMS, MOST_HOST_STREAMS = 128, 16  # that play side by side
LONGEST = 30_000  # steps per episode on average, after which a stream is given up; an Atari game lasts up to 27,000
PIECE = 1000  # steps of one compiled call: between two of them Ctrl-C is heard


class Episodes(NamedTuple):
    """What N episodes came to."""

    returns: np.ndarray  # [N] float64, undiscounted sums of rewards; NaN where an episode did not end in time
    lengths: np.ndarray  # [N] int64; 0 where an episode did not end in time


# (agent, key, greedy, task) -> Episodes. The task is that of a compiled environment; None means its default one.
Evaluator = Callable[[Agent, Array, bool, PyTree], Episodes]


def evaluate(
    agent: Agent, environment: Environment | HostEnvironment, episodes: int, key: Array, greedy: bool = True, task: PyTree = None
) -> Episodes:
    """Let an agent play whole episodes.

    Args:
        agent: it stays as it is; its memory starts empty in every stream.
        environment: compiled or on the host.
        episodes: N, how many.
        key: all randomness of the environment and of drawn actions.
        greedy: the most likely action at every step; otherwise actions are drawn as in training.
        task: of a compiled environment; None means its default one.

    Returns:
        Returns and lengths [N].
    """
    return make_evaluator(environment, episodes)(agent, key, greedy, task)


def make_evaluator(environment: Environment | HostEnvironment, episodes: int, longest: int = LONGEST) -> Evaluator:
    """What `evaluate` calls: for repeated evaluations, since it compiles only once. `longest`: see `LONGEST`."""
    if episodes < 1:
        raise ValueError(f"an evaluation needs at least one episode, not {episodes}")
    if isinstance(environment, HostEnvironment):
        return HostEvaluator(environment, episodes, longest)
    return CompiledEvaluator(environment, episodes, longest)


def choose(agent: Agent, key: Array, policy: Policy, greedy: bool | Array) -> Array:
    """The most likely actions, or drawn ones; `greedy` may be traced, so that one program serves both."""
    return jnp.where(greedy, likeliest_choice(policy), agent.sample(key, policy))


def quotas(episodes: int, streams: int) -> np.ndarray:
    """How many of N episodes each stream plays, [B]."""
    return episodes // streams + (np.arange(streams) < episodes % streams)


class Tally(NamedTuple):
    """The episodes that have ended so far, those of stream b in row b, Q at most."""

    ended: Array  # [B] int32, how many
    returns: Array  # [B, Q]
    lengths: Array  # [B, Q] int32


def in_order(count: Any, returns: Any, lengths: Any, quota: np.ndarray) -> Episodes:
    """The N episodes of all streams; those that did not end are marked."""
    wanted, ended = (np.arange(returns.shape[1]) < each[:, None] for each in (quota, np.asarray(count)))
    returns = np.where(ended, np.asarray(returns, np.float64), np.nan)
    return Episodes(returns[wanted], np.where(ended, np.asarray(lengths, np.int64), 0)[wanted])


class CompiledEvaluator:
    """Plays in an environment inside of JAX: a thousand steps of all streams are one compiled call."""

    def __init__(self, environment: Environment, episodes: int, longest: int):
        self.environment, self.quota = environment, quotas(episodes, min(episodes, MOST_STREAMS))
        self.streams, self.most = make_streams(environment, len(self.quota)), longest * int(self.quota.max())
        self._begin, self._go_on = jax.jit(self._started), jax.jit(self._played)

    def __call__(self, agent: Agent, key: Array, greedy: bool, task: PyTree = None) -> Episodes:
        key_start, key_steps = jax.random.split(key)
        actor = self._begin(agent, self.environment.default_task() if task is None else task, key_start)
        shape = len(self.quota), int(self.quota.max())
        tally = Tally(jnp.zeros(shape[0], jnp.int32), jnp.zeros(shape, jnp.float32), jnp.zeros(shape, jnp.int32))
        for piece in range(-(-self.most // PIECE)):
            actor, tally = self._go_on(agent, actor, tally, jax.random.fold_in(key_steps, piece), greedy)
            if np.all(np.asarray(tally.ended) >= self.quota):
                break
        return in_order(*tally, self.quota)

    def _started(self, agent: Agent, task: PyTree, key: Array) -> Actor:
        return begin(self.streams, task, agent.initial_memory(len(self.quota)), key)

    def _played(self, agent: Agent, actor: Actor, tally: Tally, key: Array, greedy: Array) -> tuple[Actor, Tally]:
        def going(carry: tuple[Actor, Tally, Array]) -> Array:
            return (carry[2] < PIECE) & jnp.any(carry[1].ended < self.quota)

        def step(carry: tuple[Actor, Tally, Array]) -> tuple[Actor, Tally, Array]:
            actor, tally, number = carry
            key_action, key_env = jax.random.split(jax.random.fold_in(key, number))
            policy, memory = agent.act(actor.observation, actor.first, actor.memory)
            action = choose(agent, key_action, policy, greedy)
            env_state, timestep = self.streams.step(actor.task, actor.env_state, action, key_env)
            actor = Actor(actor.task, env_state, timestep.observation, timestep.first, memory)
            return actor, self._counted(tally, timestep.episode), number + 1

        return jax.lax.while_loop(going, step, (actor, tally, jnp.int32(0)))[:2]

    def _counted(self, tally: Tally, episode: Any) -> Tally:
        # No row has a place beyond its last, so episodes after a stream's quota are in no place at all.
        here = episode.ended[:, None] & (jnp.arange(tally.returns.shape[1]) == tally.ended[:, None])
        return Tally(
            tally.ended + episode.ended,
            jnp.where(here, episode.total[:, None], tally.returns),
            jnp.where(here, episode.length[:, None], tally.lengths),
        )


class HostEvaluator:
    """Plays in streams of its own of an environment that steps on the CPU; they are closed after every call."""

    def __init__(self, environment: HostEnvironment, episodes: int, longest: int):
        self.environment, self.quota = environment, quotas(episodes, min(episodes, MOST_HOST_STREAMS))
        self.most = longest * int(self.quota.max())
        self._decide = jax.jit(self._decided)

    def __call__(self, agent: Agent, key: Array, greedy: bool, task: PyTree = None) -> Episodes:
        del task  # a host environment has one
        seed = np.random.SeedSequence(np.asarray(jax.random.key_data(key)).reshape(-1).tolist()).generate_state(1)[0]
        streams = RestartingStreams(self.environment, len(self.quota))
        try:
            return self._played(agent, streams, int(seed), key, greedy)
        finally:
            streams.close()

    def _played(self, agent: Agent, streams: RestartingStreams, seed: int, key: Array, greedy: bool) -> Episodes:
        shape = len(self.quota), int(self.quota.max())
        count, returns, lengths = np.zeros(shape[0], int), np.zeros(shape), np.zeros(shape, int)
        timestep, memory = streams.start(seed), agent.initial_memory(shape[0])
        for number in range(self.most):
            action, memory = self._decide(agent, timestep.observation, timestep.first, memory, key, np.int32(number), greedy)
            timestep = streams.step(np.asarray(action))
            for stream in np.flatnonzero(timestep.episode.ended):
                if count[stream] < self.quota[stream]:
                    returns[stream, count[stream]] = timestep.episode.total[stream]
                    lengths[stream, count[stream]] = timestep.episode.length[stream]
                    count[stream] += 1
            if np.all(count >= self.quota):
                break
        return in_order(count, returns, lengths, self.quota)

    def _decided(
        self, agent: Agent, observation: PyTree, first: Array, memory: PyTree, key: Array, number: Array, greedy: Array
    ) -> tuple[Array, PyTree]:
        policy, memory = agent.act(observation, first, memory)
        return choose(agent, jax.random.fold_in(key, number), policy, greedy), memory

"""An agent at play, step by step, with a picture of each: what is watched, or saved as a film."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.agents.base import Agent
from rulax.envs.adapters import is_an_environments
from rulax.envs.adapters.restart import RestartingStreams
from rulax.envs.adapters.streams import CopiedStreams
from rulax.envs.base import Environment, HostEnvironment, HostStreams, Transition, WrappedStreams
from rulax.envs.render import picture_of, render
from rulax.evaluation.episodes import choose
from rulax.types import Array, Level, PyTree


class Moment(NamedTuple):
    """One picture of an episode: its first, or the one after a step."""

    picture: np.ndarray  # uint8 [H, W, 3]
    episode: int  # from 0
    step: int  # in this episode; 0 for the first picture
    total: float  # reward so far in this episode
    ended: bool
    truncated: bool = False  # whether a time limit ended it


def play(
    agent: Agent,
    environment: Environment | HostEnvironment,
    key: Array,
    episodes: int = 1,
    greedy: bool = True,
    task: PyTree = None,
) -> Iterator[Moment]:
    """Play episodes one after the other.

    Args:
        agent: it learns nothing.
        environment: compiled or on the host; one of Gymnasium's draws itself if it was made with `render_mode="rgb_array"`.
        key: all randomness.
        episodes: how many.
        greedy: the most likely actions, or drawn ones.
        task: of a compiled environment; None means its default one.
    """
    if isinstance(environment, HostEnvironment):
        return _on_host(agent, environment, key, episodes, greedy)
    return _compiled(agent, environment, key, episodes, greedy, environment.default_task() if task is None else task)


def _compiled(agent: Agent, environment: Environment, key: Array, episodes: int, greedy: bool, task: PyTree) -> Iterator[Moment]:
    # The environment itself and not its streams, which would replace the last state of an episode by the first of the next.
    @jax.jit
    def step(
        agent: Agent, state: PyTree, observation: PyTree, first: Array, memory: PyTree, key: Array
    ) -> tuple[PyTree, Transition, PyTree]:
        key_action, key_env = jax.random.split(key)
        policy, memory = agent.act(jax.tree.map(lambda x: x[None], observation), jnp.asarray(first, jnp.int8)[None], memory)
        action = choose(agent, key_action, policy, greedy)[0]
        state, transition = environment.step(task, state, action, key_env)
        return state, transition, memory

    follow, level_after = jax.jit(environment.next_episode), environment.next_level
    task_shown = jax.device_get(task)
    key, key_reset = jax.random.split(key)
    state, observation = jax.jit(environment.reset)(task, key_reset)
    first, memory = np.int8(Level.LIFE), agent.initial_memory(1)
    for episode in range(episodes):
        total, number, ended = 0.0, 0, False
        yield Moment(render(environment, task_shown, *jax.device_get((state, observation))), episode, 0, 0.0, False)
        while not ended:
            key, key_step = jax.random.split(key)
            state, transition, memory = step(agent, state, observation, first, memory, key_step)
            observation, first = transition.observation, np.int8(transition.first)
            total, number = total + float(transition.reward), number + 1
            ended = bool(transition.terminated) or bool(transition.truncated)
            picture = render(environment, task_shown, *jax.device_get((state, observation)))
            yield Moment(picture, episode, number, total, ended, ended and not bool(transition.terminated))
        key, key_next = jax.random.split(key)
        first = np.int8(level_after(task, state))
        state, observation = follow(task, state, key_next)


def _on_host(agent: Agent, environment: HostEnvironment, key: Array, episodes: int, greedy: bool) -> Iterator[Moment]:
    seed = np.random.SeedSequence(np.asarray(jax.random.key_data(key)).reshape(-1).tolist()).generate_state(1)[0]
    streams = RestartingStreams(environment, 1)
    look = _camera(streams, environment)

    @jax.jit
    def decide(agent: Agent, observation: PyTree, first: Array, memory: PyTree, key: Array) -> tuple[Array, PyTree]:
        policy, memory = agent.act(observation, first, memory)
        return choose(agent, key, policy, greedy), memory

    try:
        timestep, memory, number, total, episode = streams.start(int(seed)), agent.initial_memory(1), 0, 0.0, 0
        picture = look(timestep.observation)
        yield Moment(picture, 0, 0, 0.0, False)
        while episode < episodes:
            key, key_step = jax.random.split(key)
            action, memory = decide(agent, timestep.observation, timestep.first, memory, key_step)
            timestep = streams.step(np.asarray(action))
            if not timestep.valid[0] and not timestep.episode.ended[0]:  # a dummy step: the next episode begins
                number, total = 0, 0.0
                yield Moment(look(timestep.observation), episode, 0, 0.0, False)
                continue
            number, total, ended = number + 1, total + float(timestep.reward[0]), bool(timestep.episode.ended[0])
            # After a termination the stream shows the next episode already: then the picture before it stays.
            fresh = ended and timestep.first[0] > 0
            picture = picture if fresh else look(timestep.observation)
            yield Moment(picture, episode, number, total, ended, ended and not fresh)
            episode += ended
            if fresh and episode < episodes:
                number, total, picture = 0, 0.0, look(timestep.observation)
                yield Moment(picture, episode, 0, 0.0, False)
    finally:
        streams.close()


def _camera(streams: RestartingStreams, environment: HostEnvironment) -> Callable[[PyTree], np.ndarray]:
    """What takes the pictures: the environment's own renderer if it has one that works, else the observation is shown."""
    broken = False

    def look(observation: PyTree) -> np.ndarray:
        nonlocal broken
        if not broken:
            try:
                drawn = streams.guarded("render", _own_picture, streams)
            # Of many kinds: a missing package, no display, a renderer of the user's own. The episode goes on without it.
            except BaseException as error:
                if not is_an_environments(error):
                    raise
                drawn = None
            if drawn is not None:
                return drawn
            broken = True
        one = jax.tree.map(lambda x: np.asarray(x)[0], observation)
        return picture_of(environment.observation, one, environment.frames)

    return look


def _own_picture(streams: HostStreams) -> np.ndarray | None:
    """What a Gymnasium environment draws of itself, if `streams` are copies of one and it was made to do so."""
    while isinstance(streams, RestartingStreams | WrappedStreams):
        streams = streams.streams
    if not isinstance(streams, CopiedStreams):
        return None
    env = getattr(streams.copies[0], "env", None)
    if env is None or getattr(env, "render_mode", None) != "rgb_array":
        return None
    drawn = env.render()
    picture = None if drawn is None else np.asarray(drawn)
    return picture.astype(np.uint8) if picture is not None and picture.ndim == 3 and picture.shape[-1] == 3 else None

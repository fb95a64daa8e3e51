"""Acting in environments that step on the CPU: K agents with B streams each, one decision of all of them per compiled call.

It is `rollout.act` with the environment outside of JAX: the same steps, one by one. Training (learning/host.py) and discovery
(discovery/host.py) both act by it.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.agents import Agent
from rulax.agents.base import overwrite, write
from rulax.envs.base import Episode, HostEnvironment, HostStreams
from rulax.learning.life import Keys, Life, split_keys
from rulax.learning.rollout import Actor
from rulax.learning.update import LearnerState
from rulax.types import Array, Experience, Level, PyTree

HostMetrics = dict[str, np.ndarray]


class Unrolled(NamedTuple):
    """One unroll of every stream, and where it led."""

    fresh: Experience  # [K, B, T, ...]: a trajectory in one piece, as replay keeps it
    episodes: Episode  # [K, B, T] those that ended
    actor: Actor
    keys: Keys
    metrics: HostMetrics  # [K]


def unstarted(environment: HostEnvironment, memory: PyTree, streams: int) -> Actor:
    """Where one agent is before its streams were started. The observation stands for shapes only."""
    observation = jax.tree.map(lambda spec: jnp.zeros((streams, *spec.shape), spec.dtype), environment.observation)
    return Actor((), (), observation, jnp.full(streams, Level.LIFE, jnp.int8), memory)


class HostActing:
    """K agents that act in their streams, and write down what they keep of it."""

    def __init__(self, streams: HostStreams, life: Life):
        """Compiles nothing yet.

        Args:
            streams: all K * B of them, those of one agent side by side.
            life: shapes of the agents' lives, [K, ...].
        """
        self.streams = streams
        self.agents, self.actor, self.key = life.learner_state.params, life.actor, life.key
        self.shape: tuple[int, int] = life.actor.first.shape  # type: ignore[assignment]

    def act(self, params: Agent, actor: Actor, key: Array, unroll: int) -> Unrolled:
        """T = `unroll` steps in every stream.

        Args:
            params: the agents as they are, [K, ...].
            actor: where they are.
            key: of their lives, [K].
            unroll: steps.
        """
        keys, leaves = self._keys(key), jax.tree.leaves(params)  # leaves: to flatten an agent takes as long as to ask it
        seeds, streams = self.shape
        form = self.form(unroll)
        fresh = jax.tree.map(lambda leaf: np.empty((seeds * streams, *leaf.shape), leaf.dtype), form)  # new: JAX may keep it
        sums, ends = np.zeros((3, seeds)), self._no_episodes(unroll)
        observation, first = jax.tree.map(self.join, (actor.observation, actor.first))
        memory = actor.memory
        for number in range(unroll):
            decided, logits, memory = self.decide(leaves, observation, first, memory, keys.act, np.int32(number))
            # The call above returns before the actions are known, so the host copies while the device computes; `asarray` waits.
            put(fresh.observation, observation, number)
            put(fresh.first, first, number)
            action = np.asarray(decided)
            timestep = self.streams.step(action)
            put(fresh.action, action, number)
            put(fresh.behaviour, logits, number)
            put(fresh.reward, timestep.reward, number)
            put(fresh.discount, timestep.discount, number)
            put(fresh.valid, timestep.valid, number)
            ended = timestep.episode.ended
            if ended.any():
                sums += [(ended * values).reshape(self.shape).sum(1) for values in (1, *timestep.episode[1:])]
                jax.tree.map(lambda whole, part, number=number: put(whole, part, number), ends, timestep.episode)
            observation, first = timestep.observation, timestep.first
        # The observation after the last step, which is bootstrapped from: time T of T + 1.
        put(fresh.observation, observation, -1)
        put(fresh.first, first, -1)
        fresh, ends = jax.tree.map(self.split, (fresh, ends))
        # The memory before the unroll; `memory` by now is the one after it.
        fresh = fresh._replace(memory=jax.tree.map(np.asarray, actor.memory))
        metrics = {
            "episodes": sums[0].astype(np.int32),
            "episode_return": sums[1].astype(np.float32),
            "episode_length": sums[2].astype(np.float32),
            "bad_rewards": (~np.isfinite(fresh.reward)).sum((1, 2)).astype(np.int32),
        }
        return Unrolled(fresh, ends, self.look(actor._replace(memory=memory), observation, first), keys, metrics)

    def look(self, actor: Actor, observation: PyTree, first: Any) -> Actor:
        """The agents' place, where all streams [K * B, ...] now show this."""
        observation, first = jax.tree.map(self.split, (observation, first))
        return actor._replace(observation=observation, first=first)

    def written(self, state: LearnerState, acted: Unrolled) -> tuple[LearnerState, Experience, PyTree]:
        """Every agent after it wrote its unroll down, the experience [K, B, T, ...] to learn from, and what it wrote."""
        if not self.writes:
            return state, acted.fresh, ()
        replaced, changed = self._write(state.params, acted.fresh, acted.episodes)
        fresh = jax.tree.map(
            lambda new, old: old if new is None else np.asarray(new), changed, acted.fresh, is_leaf=lambda x: x is None
        )
        return state._replace(params=overwrite(state.params, replaced)), fresh, replaced

    # -- compiled parts -------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _keys(self) -> Any:
        return jax.jit(jax.vmap(lambda key: split_keys(Life((), (), (), key))))  # type: ignore[arg-type]

    @functools.cached_property
    def decide(self) -> Any:
        """From the observations of all streams, [K * B, ...], to their actions."""
        agents = jax.tree.structure(self.agents)

        def one(agent: Agent, observation: PyTree, first: Array, memory: PyTree, key: Array, number: Array) -> tuple:
            logits, memory = agent.act(observation, first, memory)
            # Folding the step's number in, instead of splitting a key for each step, lets one program and one key serve the unroll.
            return agent.sample(jax.random.fold_in(key, number), logits), logits, memory

        def decide(leaves: list[Array], observation: PyTree, first: Array, memory: PyTree, keys: Array, number: Array) -> tuple:
            observation, first = jax.tree.map(self.split, (observation, first))
            parts = jax.tree.unflatten(agents, leaves), observation, first, memory, keys, number
            action, logits, memory = jax.vmap(one, in_axes=(0, 0, 0, 0, 0, None))(*parts)
            return *jax.tree.map(self.join, (action, logits)), memory

        return jax.jit(decide)

    @functools.cached_property
    def _write(self) -> Any:
        """From agents, experience and episodes [K, B, T, ...] to what `written` changes of the first two, with None elsewhere."""

        def one(agent: Agent, fresh: Experience, episodes: Episode) -> tuple[PyTree, Experience]:
            given = in_time(fresh)
            _, kept, replaced = write(agent, given, swapped(episodes))
            # What is returned unchanged is no output of the program, so it is not copied back from the device.
            changed = jax.tree.map(lambda new, old: None if new is old else new, kept, given)
            return replaced, swapped(changed._replace(memory=()))._replace(memory=changed.memory)

        return jax.jit(jax.vmap(one))

    @functools.cached_property
    def writes(self) -> bool:
        """Whether there is anything that these agents write: copies to the device and back are only made if so."""
        return bool(jax.tree.leaves(self._write_form(1)))

    def wrote(self, unroll: int) -> PyTree:
        """What they write of one unroll as shapes, [K, ...]."""
        return self._write_form(unroll)[0]

    def _write_form(self, unroll: int) -> Any:
        shape = lambda leaf: jax.ShapeDtypeStruct((*self.shape, *leaf.shape), leaf.dtype)  # noqa: E731
        episodes = jax.tree.map(self.split, self._no_episodes(unroll))
        return jax.eval_shape(self._write, self.agents, jax.tree.map(shape, self.form(unroll)), episodes)

    # -- shapes ---------------------------------------------------------------------------------------------------------------

    def form(self, unroll: int) -> Experience:
        """One trajectory as shapes, [T, ...], from what the agent decides and the environment shows."""
        shown, decided = self._one_step

        def over(steps: int, tree: PyTree) -> PyTree:
            return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((steps, *leaf.shape[1:]), leaf.dtype), tree)

        real, flag = (jax.ShapeDtypeStruct((1,), dtype) for dtype in (np.float32, np.bool_))
        memory = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), self.actor.memory)
        observation, first = over(unroll + 1, shown)
        action, behaviour, reward, valid = over(unroll, (*decided[:2], real, flag))
        return Experience(observation, action, reward, reward, first, valid, behaviour, memory)

    @functools.cached_property
    def _one_step(self) -> tuple[Any, Any]:
        """What all streams show and what is decided in them, as shapes [K * B, ...]."""
        number = jax.ShapeDtypeStruct((), np.int32)
        shown = jax.eval_shape(lambda actor: jax.tree.map(self.join, (actor.observation, actor.first)), self.actor)
        return shown, jax.eval_shape(self.decide, jax.tree.leaves(self.agents), *shown, self.actor.memory, self.key, number)

    def _no_episodes(self, unroll: int) -> Episode:
        """Statistics [K * B, T] of no episode at all."""
        shape = (self.shape[0] * self.shape[1], unroll)
        return Episode(*(np.zeros(shape, dtype) for dtype in (np.bool_, np.float32, np.int32)))  # type: ignore[arg-type]

    def split(self, x: Any) -> Any:
        """From [K * B] to [K, B]."""
        return x.reshape(*self.shape, *x.shape[1:])

    def join(self, x: Any) -> Any:
        """From [K, B] to [K * B]."""
        return x.reshape(-1, *x.shape[2:])


def swapped(tree: PyTree) -> PyTree:
    """Leaves [B, T, ...] as [T, B, ...], and the other way round."""
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)


def in_time(trajectories: Experience) -> Experience:
    """Experience [T, B] from trajectories [B, T], in which form the host keeps them."""
    return swapped(trajectories._replace(memory=()))._replace(memory=trajectories.memory)


def put(into: PyTree, values: PyTree, time: int) -> None:
    """Write values [K * B, ...] at one time of [K * B, T, ...]."""

    def write(whole: np.ndarray, part: Any) -> None:
        whole[:, time] = part

    if isinstance(into, np.ndarray):  # nearly always, and a map takes ten times as long
        write(into, values)
    else:
        jax.tree.map(write, into, values)

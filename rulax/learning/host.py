"""Training in environments that step on the CPU (Gymnasium): the same life as in learning/train.py, with acting done by the host.

All seeds share one set of streams, [K * B], and each decision is one compiled call for all of them. While the streams are stepped,
a second thread can learn from the unroll before (`overlap`): the agent then acts as it was before that update.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from rulax.agents import Agent
from rulax.agents.base import overwrite, write
from rulax.envs.adapters.restart import RestartingStreams
from rulax.envs.base import Episode, HostEnvironment
from rulax.learning import host_replay
from rulax.learning.frames import unfold_observation
from rulax.learning.host_replay import HostDrawn, HostReplay
from rulax.learning.life import (
    Keys,
    Learned,
    Life,
    after_burn_in,
    batch_size,
    checked_update,
    is_prioritised,
    split_keys,
)
from rulax.learning.rollout import Actor
from rulax.learning.train import CHUNK_SECONDS, MAX_CHUNK, BaseTrainer, TrainerConfig, TrainState, not_measured
from rulax.learning.update import NOTHING_OWN, LearnerState
from rulax.rules.base import Recipe
from rulax.types import Array, Experience, Level, PyTree

HostMetrics = dict[str, np.ndarray]


class Unrolled(NamedTuple):
    """One unroll of every stream, and where it led."""

    fresh: Experience  # [K, B, T, ...]: a trajectory in one piece, as replay keeps it
    episodes: Episode  # [K, B, T] those that ended
    actor: Actor
    keys: Keys
    metrics: HostMetrics  # [K]


class HostTrainer(BaseTrainer):
    """Trains K agents in a host environment.

    A resumed run starts new episodes, with an empty replay buffer that is filled again to its warm-up: neither is in a checkpoint.
    With `overlap`, the unroll that is being learned from and the one after it are on their way when `advance` returns, and lost
    to a run that is stopped there; which agent acted in which unroll does not depend on that, nor on any timing.

    Writing an unroll down (`Agent.written`) is the first part of learning from it: the agent that is written to is the one that is
    about to be updated, and the thread that updates it does it. With `overlap` the whole agent that acts is one update old, what it
    carries included: unroll i + 1 is acted while unroll i is learned from, with a table that holds unrolls 0 to i - 1.
    """

    environment: HostEnvironment

    def __init__(
        self,
        environment: HostEnvironment,
        recipe: Recipe,
        config: TrainerConfig,
        hyperparameters: Mapping[str, ArrayLike] = NOTHING_OWN,
        tasks: PyTree = None,
    ):
        super().__init__(environment, recipe, config, hyperparameters, tasks)
        learning = recipe.learning
        self.streams = RestartingStreams(environment, learning.streams * config.seeds, config.most_restarts)
        # Replayed experience is off-policy anyway; rules that learn from fresh experience alone act and learn in turns.
        self.overlap = bool(learning.replay) if config.overlap == "auto" else config.overlap == "on"
        self.shape = (config.seeds, learning.streams)
        self.replay: HostReplay | None = None
        self._thread = ThreadPoolExecutor(1, "learner")  # JAX runs what one thread asks for in order; so learning has its own
        self._learning: tuple[Future, Unrolled] | None = None
        self._unmeasured: HostMetrics | None = None
        self._counted = np.zeros_like(self.streams.restarts)  # restarts that metrics have told of; a first reset may fail, too

    def _start(self, key: Array, hyperparameters: dict[str, Array], task: PyTree) -> Life:
        key_agent, key_life = jax.random.split(key)
        streams = self.recipe.learning.streams
        state = self._fresh_agent(key_agent, hyperparameters)
        # These stand for shapes only: `resume` resets the streams and puts their first observations here.
        observation = jax.tree.map(lambda spec: jnp.zeros((streams, *spec.shape), spec.dtype), self.environment.observation)
        actor = Actor((), (), observation, jnp.full(streams, Level.LIFE, jnp.int8), state.params.initial_memory(streams))
        return Life(state, actor, (), key_life)

    # -- what the command line drives ---------------------------------------------------------------------------------------

    def reserve(self, seeds: int = 0) -> str:
        learning, config = self.recipe.learning, self.config
        if not learning.replay:
            return ""
        return host_replay.reserve(self._stored, seeds or config.seeds, learning.streams, learning.capacity, config.replay_limit)

    def init(self, key: Array) -> TrainState:
        """K fresh agents in freshly reset streams."""
        return self.resume(self._init(key))

    def check(self) -> None:
        """Make an agent and an update, as shapes only: the rest happens outside of JAX and cannot be traced."""
        life, learning = self.skeleton().life, self.recipe.learning
        lead = (self.config.seeds, batch_size(learning))
        form = self._stored if learning.replay else self._form
        drawn = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*lead, *leaf.shape), leaf.dtype), form)
        jax.eval_shape(self._update, self.rule_params, self.numbers, life.learner_state, drawn, life.key)

    def compile(self, state: TrainState) -> None:
        """Nothing yet: each part is compiled when it is first called."""

    def resume(self, state: TrainState) -> TrainState:
        """Reset the streams, with a seed that depends on the agents' keys and their age, and forget what was replayed."""
        # The learner's thread writes to the buffer, so it must be idle before the buffer is replaced.
        self._finish()
        learning = self.recipe.learning
        if learning.replay:
            self.replay = None  # the old one goes first
            sizes = self.config.seeds, learning.streams, learning.capacity
            self.replay = HostReplay(self._stored, *sizes, is_prioritised(learning))
        words = np.asarray(jax.random.key_data(state.life.key)).reshape(-1)
        seed = np.random.SeedSequence([*words.tolist(), int(state.iteration)]).generate_state(1)[0]
        timestep = self.streams.start(int(seed))
        actor = self._look(state.life.actor, timestep.observation, timestep.first)
        # The count is NumPy's: the host reads it after every unroll, and from the device it would have to be fetched each time.
        return TrainState(state.life._replace(actor=actor), np.asarray(state.iteration))  # type: ignore[arg-type]

    def advance(self, state: TrainState, most: int = MAX_CHUNK) -> tuple[TrainState, HostMetrics]:
        began = time.perf_counter()
        rows: list[HostMetrics] = []
        while not rows or (len(rows) < most and time.perf_counter() - began < CHUNK_SECONDS and not self.done(state)):
            state, metrics = self._overlapped(state) if self.overlap else self._in_turns(state)
            rows.append(metrics)
        return state, {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    @property
    def last_failure(self) -> str:
        return self.streams.said

    def flops_per_iteration(self, state: TrainState) -> float:
        """NaN: part of the work is outside of the compiler."""
        return float("nan")

    def close(self) -> None:
        """Close the streams and end the learner's thread."""
        self._finish()
        self._thread.shutdown()
        self.streams.close()

    # -- one iteration --------------------------------------------------------------------------------------------------------

    def _in_turns(self, state: TrainState) -> tuple[TrainState, HostMetrics]:
        acted = self._act(state.life.learner_state.params, state.life.actor, state.life.key)
        return self._concluded(state, acted, self._learn(state.life.learner_state, acted))

    def _overlapped(self, state: TrainState) -> tuple[TrainState, HostMetrics]:
        """The next unroll is acted while the last one is learned from, so by the agent from before that."""
        params = state.life.learner_state.params
        if self._learning is None:
            acted = self._act(params, state.life.actor, state.life.key)
            self._learning = (self._thread.submit(self._learn, state.life.learner_state, acted), acted)
        learning, acted = self._learning
        made = int(state.iteration) + 1
        last = made >= self.total_iterations or self.pause_at(made)  # where agents may be changed, nothing of theirs is on its way
        # Acting comes before `result`, which waits. `params` act even if the update is done by now: timing must not change a run.
        following = None if last else self._act(params, acted.actor, acted.keys.life)
        state, metrics = self._concluded(state, acted, learning.result())
        self._learning = following and (self._thread.submit(self._learn, state.life.learner_state, following), following)
        return state, metrics

    def _concluded(
        self, state: TrainState, acted: Unrolled, learned: tuple[LearnerState, HostMetrics]
    ) -> tuple[TrainState, HostMetrics]:
        # The buffer belongs to the trainer and not to a life, which is what a checkpoint holds.
        life = Life(learned[0], acted.actor, (), acted.keys.life)
        return TrainState(life, state.iteration + np.int32(1)), acted.metrics | learned[1]

    def _finish(self) -> None:
        """Wait for what is still being learned, and forget it."""
        if self._learning is not None:
            # `exception` waits without raising: the streams are to be closed even if learning failed.
            self._learning[0].exception()
            self._learning = None

    # -- acting ---------------------------------------------------------------------------------------------------------------

    def _act(self, params: Agent, actor: Actor, key: Array) -> Unrolled:
        keys, leaves = self._keys(key), jax.tree.leaves(params)  # leaves: to flatten an agent takes as long as to ask it
        seeds, streams = self.shape
        fresh = jax.tree.map(lambda leaf: np.empty((seeds * streams, *leaf.shape), leaf.dtype), self._form)  # new: JAX may keep it
        sums, ends = np.zeros((3, seeds)), self._no_episodes()
        observation, first = jax.tree.map(self._join, (actor.observation, actor.first))
        memory = actor.memory
        for number in range(self.recipe.learning.unroll):
            decided, logits, memory = self._decide(leaves, observation, first, memory, keys.act, np.int32(number))
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
        fresh, ends = jax.tree.map(self._split, (fresh, ends))
        # The memory before the unroll; `memory` by now is the one after it.
        fresh = fresh._replace(memory=jax.tree.map(np.asarray, actor.memory))
        metrics = {
            "episodes": sums[0].astype(np.int32),
            "episode_return": sums[1].astype(np.float32),
            "episode_length": sums[2].astype(np.float32),
            "bad_rewards": (~np.isfinite(fresh.reward)).sum((1, 2)).astype(np.int32),
            "restarts": self._split(self.streams.restarts - self._counted).sum(1).astype(np.int32),
        }
        self._counted = self.streams.restarts.copy()
        return Unrolled(fresh, ends, self._look(actor._replace(memory=memory), observation, first), keys, metrics)

    def _no_episodes(self) -> Episode:
        """Statistics [K * B, T] of no episode at all."""
        shape = (self.shape[0] * self.shape[1], self.recipe.learning.unroll)
        return Episode(*(np.zeros(shape, dtype) for dtype in (np.bool_, np.float32, np.int32)))  # type: ignore[arg-type]

    @functools.cached_property
    def _keys(self) -> Any:
        return jax.jit(jax.vmap(lambda key: split_keys(Life((), (), (), key))))  # type: ignore[arg-type]

    @functools.cached_property
    def _decide(self) -> Any:
        """From the observations of all streams, [K * B, ...], to their actions."""
        agents = jax.tree.structure(self.skeleton().life.learner_state.params)

        def one(agent: Agent, observation: PyTree, first: Array, memory: PyTree, key: Array, number: Array) -> tuple:
            logits, memory = agent.act(observation, first, memory)
            # Folding the step's number in, instead of splitting a key for each step, lets one program and one key serve the unroll.
            return agent.sample(jax.random.fold_in(key, number), logits), logits, memory

        def decide(leaves: list[Array], observation: PyTree, first: Array, memory: PyTree, keys: Array, number: Array) -> tuple:
            observation, first = jax.tree.map(self._split, (observation, first))
            parts = jax.tree.unflatten(agents, leaves), observation, first, memory, keys, number
            action, logits, memory = jax.vmap(one, in_axes=(0, 0, 0, 0, 0, None))(*parts)
            return *jax.tree.map(self._join, (action, logits)), memory

        return jax.jit(decide)

    def _split(self, x: Any) -> Any:
        """From [K * B] to [K, B]."""
        return x.reshape(*self.shape, *x.shape[1:])

    def _join(self, x: Any) -> Any:
        """From [K, B] to [K * B]."""
        return x.reshape(-1, *x.shape[2:])

    def _look(self, actor: Actor, observation: PyTree, first: Any) -> Actor:
        observation, first = jax.tree.map(self._split, (observation, first))
        return actor._replace(observation=observation, first=first)

    # -- learning -------------------------------------------------------------------------------------------------------------

    def _learn(self, state: LearnerState, acted: Unrolled) -> tuple[LearnerState, HostMetrics]:
        """Write the unroll down, store it, draw a batch, and one update of every agent, once the replay buffers hold enough."""
        learning = self.recipe.learning
        state, fresh = self._written(state, acted)
        keys_mix, keys_update = self._update_keys(acted.keys.learn)
        if self.replay:
            fresh = host_replay.to_store(fresh, self.environment.observation, self.environment.frames)
            self.replay.add(fresh)
        batch, drawn = batch_size(learning), HostDrawn(fresh, ())
        if self.replay or batch != learning.streams:
            powers = learning.replay_priority, learning.replay_correction
            drawn = host_replay.draw(self.replay, fresh, batch, learning.replay, keys_mix, powers)
        # By what was ever stored, as `warm_iterations` counts: a buffer smaller than the warm-up never holds that much.
        if self.replay and self.replay.stored < learning.warmup:
            return state, self._nothing(state, drawn.experience, keys_update)
        state, metrics, priority = self._update(self.rule_params, self.numbers, state, drawn.experience, keys_update)
        if self.replay and isinstance(drawn.places, np.ndarray):
            self.replay.renew(drawn.places, np.asarray(priority))
        return state, jax.tree.map(np.asarray, metrics)

    def _nothing(self, state: LearnerState, drawn: Experience, keys: Array) -> HostMetrics:
        """The metrics of an update that is not made yet."""
        if self._unmeasured is None:
            example = jax.eval_shape(self._update, self.rule_params, self.numbers, state, drawn, keys).metrics
            self._unmeasured = jax.tree.map(lambda like: np.asarray(not_measured(like)), example)
        return self._unmeasured

    def _written(self, state: LearnerState, acted: Unrolled) -> tuple[LearnerState, Experience]:
        """Every agent after it wrote its unroll down, and the experience [K, B, T, ...] that it wants to learn from."""
        if not self._writes:
            return state, acted.fresh
        replaced, changed = self._write(state.params, acted.fresh, acted.episodes)
        fresh = jax.tree.map(
            lambda new, old: old if new is None else np.asarray(new), changed, acted.fresh, is_leaf=lambda x: x is None
        )
        return state._replace(params=overwrite(state.params, replaced)), fresh

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
    def _writes(self) -> bool:
        """Whether there is anything that these agents write: copies to the device and back are only made if so."""
        shape = lambda leaf: jax.ShapeDtypeStruct((*self.shape, *leaf.shape), leaf.dtype)  # noqa: E731
        episodes = jax.tree.map(self._split, self._no_episodes())
        agents = self.skeleton().life.learner_state.params
        return bool(jax.tree.leaves(jax.eval_shape(self._write, agents, jax.tree.map(shape, self._form), episodes)))

    @functools.cached_property
    def _update_keys(self) -> Any:
        # The same two keys per agent as in `life.sample_and_update`, [K] each.
        return jax.jit(lambda keys: tuple(jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)))

    @functools.cached_property
    def _update(self) -> Any:
        def one(rule_params: PyTree, state: LearnerState, drawn: Experience, key: Array) -> Learned:
            experience = in_time(drawn)
            experience = experience._replace(observation=unfold_observation(experience.observation))
            experience = after_burn_in(state.params, experience, self.recipe.learning.burn_in)
            return checked_update(self.learner, rule_params, state, experience, key)

        def every(rule_params: PyTree, numbers: dict[str, Array], state: LearnerState, *rest: Any) -> Learned:
            state = self._with_numbers(state, numbers)
            learned = jax.vmap(one, in_axes=(self.rule_axes(rule_params), 0, 0, 0))(rule_params, state, *rest)
            return learned._replace(learner_state=self._without_numbers(learned.learner_state))

        return jax.jit(every)  # nothing is donated: the parameters go on acting

    # -- shapes ---------------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _form(self) -> Experience:
        """One trajectory as shapes, [T, ...], from what the agent decides and the environment shows."""
        life, time = self.skeleton().life, self.recipe.learning.unroll
        number = jax.ShapeDtypeStruct((), np.int32)
        shown = jax.eval_shape(lambda actor: jax.tree.map(self._join, (actor.observation, actor.first)), life.actor)
        decided = jax.eval_shape(
            self._decide, jax.tree.leaves(life.learner_state.params), *shown, life.actor.memory, life.key, number
        )

        def over(steps: int, tree: PyTree) -> PyTree:
            return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((steps, *leaf.shape[1:]), leaf.dtype), tree)

        real, flag = (jax.ShapeDtypeStruct((1,), dtype) for dtype in (np.float32, np.bool_))
        memory = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), life.actor.memory)
        observation, first = over(time + 1, shown)
        action, behaviour, reward, valid = over(time, (*decided[:2], real, flag))
        return Experience(observation, action, reward, reward, first, valid, behaviour, memory)

    @functools.cached_property
    def _stored(self) -> Experience:
        return host_replay.stored_form(self._form, self.environment.observation, self.environment.frames)


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

"""Training in environments that step on the CPU (Gymnasium): the same life as in learning/train.py, with acting done by the host.

All seeds share one set of streams, [K * B], and each decision is one compiled call for all of them. While the streams are stepped,
a second thread can learn from the unroll before (`overlap`): the agent then acts as it was before that update.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from rulax.agents import Agent
from rulax.envs.adapters.restart import RestartingStreams
from rulax.envs.base import HostEnvironment
from rulax.learning import host_replay
from rulax.learning.frames import unfold_observation
from rulax.learning.host_acting import HostActing, HostMetrics, Unrolled, in_time, unstarted
from rulax.learning.host_replay import HostDrawn, HostReplay
from rulax.learning.life import Learned, Life, after_burn_in, batch_size, checked_update, is_prioritised
from rulax.learning.rollout import Actor
from rulax.learning.train import CHUNK_SECONDS, MAX_CHUNK, BaseTrainer, TrainerConfig, TrainState, not_measured
from rulax.learning.update import NOTHING_OWN, LearnerState
from rulax.rules.base import Recipe
from rulax.types import Array, Experience, PyTree


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
        self.replay: HostReplay | None = None
        self._thread = ThreadPoolExecutor(1, "learner")  # JAX runs what one thread asks for in order; so learning has its own
        self._learning: tuple[Future, Unrolled] | None = None
        self._unmeasured: HostMetrics | None = None
        self._counted = np.zeros_like(self.streams.restarts)  # restarts that metrics have told of; a first reset may fail, too

    @functools.cached_property
    def acting(self) -> HostActing:
        """The agents in their streams."""
        return HostActing(self.streams, self.skeleton().life)

    def _start(self, key: Array, hyperparameters: dict[str, Array], task: PyTree) -> Life:
        key_agent, key_life = jax.random.split(key)
        streams = self.recipe.learning.streams
        state = self._fresh_agent(key_agent, hyperparameters)
        # `resume` resets the streams and puts their first observations here.
        return Life(state, unstarted(self.environment, state.params.initial_memory(streams), streams), (), key_life)

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
        actor = self.acting.look(state.life.actor, timestep.observation, timestep.first)
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

    def release(self) -> None:
        self._finish()
        self.replay = None
        self.streams.release()

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
        acted = self.acting.act(params, actor, key, self.recipe.learning.unroll)
        restarts = self.acting.split(self.streams.restarts - self._counted).sum(1).astype(np.int32)
        self._counted = self.streams.restarts.copy()
        return acted._replace(metrics=acted.metrics | {"restarts": restarts})

    # -- learning -------------------------------------------------------------------------------------------------------------

    def _learn(self, state: LearnerState, acted: Unrolled) -> tuple[LearnerState, HostMetrics]:
        """Write the unroll down, store it, draw a batch, and one update of every agent, once the replay buffers hold enough."""
        learning = self.recipe.learning
        state, fresh, _ = self.acting.written(state, acted)
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
        return self.acting.form(self.recipe.learning.unroll)

    @functools.cached_property
    def _stored(self) -> Experience:
        return host_replay.stored_form(self._form, self.environment.observation, self.environment.frames)

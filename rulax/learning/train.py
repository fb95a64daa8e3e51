"""Training: K agents, one rule, to the end of the budget. Jittable environments run in compiled chunks, all seeds at once.

A `Trainer` is what the command line drives: `init`, then `advance` until it is `done`. Metrics are returned, [I, K] for I
iterations of K seeds; nothing is printed here. One iteration is: act for an unroll in every stream, let the agent write down what
it keeps of that, store it for replay, make one update.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from rulax.agents import Agent
from rulax.envs.base import Environment, HostEnvironment, Streams
from rulax.envs.wrappers import streams as make_streams
from rulax.learning.life import (
    Learned,
    Life,
    collect,
    empty_replay,
    gradient_steps,
    init_agent,
    lie,
    make_learner,
    sample_and_update,
    split_keys,
    store,
    warm_iterations,
)
from rulax.learning.members import check_hyperparameters, check_tasks, numbers_of
from rulax.learning.rollout import begin
from rulax.learning.update import NOTHING_OWN, LearnerState
from rulax.parallel.mesh import ONE_DEVICE, Layout
from rulax.parallel.processes import from_first
from rulax.rules.base import Recipe
from rulax.types import Array, Experience, Metrics, PyTree

CHUNK_SECONDS = 1.0  # how long a compiled chunk should last: short enough for a prompt Ctrl-C, long enough to hide the host
COMPILE_FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}  # for what runs once
MAX_CHUNK = 1024  # iterations for which a chunk has room to record metrics


@dataclasses.dataclass(frozen=True)
class TrainerConfig:
    """What to train, beside the recipe."""

    seeds: int = 1
    """Agents trained side by side."""
    total_steps: int = 100_000
    """Environment steps per agent."""
    task: Literal["default", "random"] = "default"
    """The environment's own task, or one drawn per agent."""
    rule_seed: int = 0
    """Seed for the parameters of a rule that brings none of its own."""
    overlap: Literal["auto", "on", "off"] = "auto"
    """Host environments: act while learning, with parameters that are one update old; auto does so where experience is replayed."""
    replay_limit: int = 0
    """Host environments: largest replay buffers of all seeds, in bytes; 0 means 80 % of the memory that is free."""
    most_restarts: int = 10
    """Host environments: how often the environment of one stream may fail and be restarted."""
    layout: Layout = ONE_DEVICE
    """On which devices the agents live."""


class TrainState(NamedTuple):
    """All lives, and how far they have come."""

    life: Life  # leaves [K, ...]
    iteration: Array  # [] int32


class Trainer(Protocol):
    """Trains K agents by one rule in one environment. `make_trainer` makes the one that suits the environment."""

    recipe: Recipe
    config: TrainerConfig
    layout: Layout  # on which devices the agents live
    rule_params: PyTree  # an argument of what is compiled: it may be set to others of the same shapes at any time
    steps_per_iteration: int  # environment steps of one agent
    total_iterations: int
    warm_iterations: int  # iterations at the start in which replay buffers are filled and nothing is learned
    # (iterations made) -> whether the agents may be changed then: no unroll is on its way when `advance` ends there.
    pause_at: Callable[[int], bool]

    @property
    def environment(self) -> Environment | HostEnvironment:
        """Where the agents live."""

    @property
    def places(self) -> PyTree:
        """Where the arrays of a state lie on devices."""

    def init(self, key: Array) -> TrainState:
        """K fresh agents."""

    def skeleton(self) -> TrainState:
        """Shapes and dtypes of the state, without making one: what a checkpoint is checked against."""

    def resume(self, state: TrainState) -> TrainState:
        """The state to continue from, given one that was saved."""

    def check(self) -> None:
        """Raise what `advance` would, if environment, rule and network do not fit together; nothing is compiled or run."""

    def compile(self, state: TrainState) -> None:
        """Compile what `advance` runs, unless it is compiled already."""

    def advance(self, state: TrainState, most: int = ...) -> tuple[TrainState, dict[str, np.ndarray]]:
        """Go on for about a second and at most `most` iterations: the next state (the old one is consumed), and metrics [I, K]."""

    def done(self, state: TrainState) -> bool:
        """Whether the budget is spent."""

    def steps(self, state: TrainState) -> int:
        """Environment steps per agent so far."""

    def agent(self, state: TrainState, seed: int = 0) -> Agent:
        """The agent of one seed."""

    def task(self, state: TrainState, seed: int = 0) -> PyTree:
        """The task of one seed; () in a host environment."""

    def reserve(self, seeds: int = 0) -> str:
        """What a run of so many seeds (0: its own) takes of the host's memory, in a sentence; a ValueError if that is too much."""

    def release(self) -> None:
        """Give back what `resume` takes anew, environments and replay on the host, and keep what is compiled."""

    def flops_per_iteration(self, state: TrainState) -> float:
        """Floating-point operations of one iteration of all seeds; NaN if they are not known."""

    @property
    def last_failure(self) -> str:
        """The error message of the last environment that failed and was restarted; "" if none did."""

    def close(self) -> None:
        """Release environments and threads; to close twice does no harm.

        After it, `init`, `resume` and `advance` must not be called. What only reads a state still works: `agent`, `skeleton`,
        `done`, `steps`.
        """


class BaseTrainer(abc.ABC):
    """What trainers of both kinds share: the budget, the learner, and K lives that start."""

    environment: Environment | HostEnvironment

    def __init__(
        self,
        environment: Environment | HostEnvironment,
        recipe: Recipe,
        config: TrainerConfig,
        hyperparameters: Mapping[str, ArrayLike] = NOTHING_OWN,
        tasks: PyTree = None,
    ):
        """A trainer of K = `config.seeds` agents, which compiles nothing yet.

        Args:
            environment: where they act.
            recipe: the rule, and settings that all agents share.
            config: seeds, steps and where tasks come from.
            hyperparameters: settings that differ between the agents, [K] each (`learning/members.py` lists their names). They
                are part of the state, so that they can change during training without compiling again.
            tasks: one task per agent, leaves [K, ...], in the place of `config.task`.
        """
        self.environment, self.recipe, self.config, self.layout = environment, recipe, config, config.layout
        self.hyperparameters = check_hyperparameters(hyperparameters, recipe.learning, config.seeds)
        self.tasks = check_tasks(tasks, environment, config.seeds)
        learning = recipe.learning
        self.steps_per_iteration = learning.streams * learning.unroll
        self.total_iterations = max(1, -(-config.total_steps // self.steps_per_iteration))
        self.warm_iterations = warm_iterations(learning)
        # A shortened run is the start of a longer one: its learning rate does not fall to zero before the time.
        scheduled = max(self.total_iterations, -(-learning.schedule_steps // self.steps_per_iteration))
        # Iterations that only fill replay take no gradient step, so they are not part of the schedule.
        updates = scheduled - self.warm_iterations
        # Arguments of what is compiled, like the rule's parameters: runs that differ in nothing else share one program.
        self.numbers = numbers_of(learning, gradient_steps(learning, updates), self.hyperparameters)
        self.learner = make_learner(recipe, updates, (*self.hyperparameters, *self.numbers))
        # May be replaced between chunks, by values of the same shapes: each leaf as the rule makes it (all agents share it), or
        # with a leading axis [K] (one per agent). The first chunk decides which.
        self.rule_params = recipe.rule.init(jax.random.key(config.rule_seed))
        self._ranks = jax.tree.map(jnp.ndim, self.rule_params)
        self.pause_at: Callable[[int], bool] = lambda iteration: False

    @property
    def last_failure(self) -> str:
        return ""

    @abc.abstractmethod
    def _start(self, key: Array, hyperparameters: dict[str, Array], task: PyTree) -> Life:
        """One life before its first step; `hyperparameters` [] are the agent's own, `task` is None unless one was given."""

    def _fresh_agent(self, key: Array, hyperparameters: dict[str, Array]) -> LearnerState:
        """A new agent. What all agents share is no part of its state, so that checkpoints hold only what a life has changed."""
        given = hyperparameters | {name: jnp.ones(()) for name in self.numbers}  # no value is read yet
        state = init_agent(self.recipe, self.learner, self.environment, key, given)
        return state._replace(hyperparameters=hyperparameters)

    def _with_numbers(self, state: LearnerState, numbers: dict[str, Array]) -> LearnerState:
        """All agents [K, ...] as an update wants them: what they share stands next to what each has of its own."""
        shared = {name: jnp.full(self.config.seeds, value) for name, value in numbers.items()}
        return state._replace(hyperparameters=state.hyperparameters | shared)

    def _without_numbers(self, state: LearnerState) -> LearnerState:
        """The inverse of `_with_numbers`."""
        return state._replace(hyperparameters={name: state.hyperparameters[name] for name in self.hyperparameters})

    def _init(self, key: Array) -> TrainState:
        layout = self.layout
        start = layout.jit(self._initial_state, layout.everywhere, self.places, compiler_options=COMPILE_FAST)
        return start(layout.place(key, layout.everywhere))

    @property
    def places(self) -> TrainState:
        """Where the state lies."""
        return TrainState(lie(self.layout), self.layout.everywhere)

    def _initial_state(self, key: Array) -> TrainState:
        life = jax.vmap(self._start)(jax.random.split(key, self.config.seeds), self.hyperparameters, self.tasks)
        return TrainState(life, jnp.zeros((), jnp.int32))

    def rule_axes(self, rule_params: PyTree) -> PyTree:
        """Which axis of each leaf is that of the agents: none if they share it, the first if it is stacked."""
        return jax.tree.map(lambda leaf, rank: None if jnp.ndim(leaf) == rank else 0, rule_params, self._ranks)

    def skeleton(self) -> TrainState:
        return jax.eval_shape(self._initial_state, jax.random.key(0))

    def done(self, state: TrainState) -> bool:
        return int(state.iteration) >= self.total_iterations

    def steps(self, state: TrainState) -> int:
        return int(state.iteration) * self.steps_per_iteration

    def agent(self, state: TrainState, seed: int = 0) -> Agent:
        return self.layout.local(jax.tree.map(lambda x: x[seed], state.life.learner_state.params))

    def task(self, state: TrainState, seed: int = 0) -> PyTree:
        return self.layout.local(jax.tree.map(lambda x: x[seed], state.life.actor.task))


class CompiledTrainer(BaseTrainer):
    """Trains K agents in a jittable environment: a chunk of iterations is one compiled program."""

    environment: Environment
    compile_options: dict[str, Any] | None = None  # `COMPILE_FAST` where the program will run only for seconds

    def __init__(
        self,
        environment: Environment,
        recipe: Recipe,
        config: TrainerConfig,
        hyperparameters: Mapping[str, ArrayLike] = NOTHING_OWN,
        tasks: PyTree = None,
    ):
        super().__init__(environment, recipe, config, hyperparameters, tasks)
        self.streams: Streams = make_streams(environment, recipe.learning.streams)
        self._chunk_size = 1
        self._compiled: Any = None

    def _start(self, key: Array, hyperparameters: dict[str, Array], task: PyTree) -> Life:
        # Split alike whether a task is drawn or given, so that a seed means the same agent and the same later randomness.
        key_task, key_agent, key_streams, key_life = jax.random.split(key, 4)
        if task is None:
            random_task = self.config.task == "random"
            task = self.environment.sample_task(key_task) if random_task else self.environment.default_task()
        state = self._fresh_agent(key_agent, hyperparameters)
        memory = state.params.initial_memory(self.recipe.learning.streams)
        actor = begin(self.streams, task, memory, key_streams)
        return Life(state, actor, empty_replay(self.recipe.learning, self.environment, state.params, memory), key_life)

    # -- what the command line drives -----------------------------------------------------------------------------------------

    def init(self, key: Array) -> TrainState:
        return self._init(key)

    def resume(self, state: TrainState) -> TrainState:
        """The saved state itself: it holds everything."""
        return self.layout.place(state, self.places)

    def reserve(self, seeds: int = 0) -> str:
        """Nothing: everything is on the device."""
        return ""

    def check(self) -> None:
        """Trace one iteration."""
        jax.eval_shape(self._iteration, self.rule_params, self.numbers, self.skeleton())

    def advance(self, state: TrainState, most: int = MAX_CHUNK) -> tuple[TrainState, dict[str, np.ndarray]]:
        # Before the clock starts: the length of chunks adapts to the time of running alone.
        self.compile(state)
        left = self.total_iterations - int(state.iteration)
        number = from_first(max(1, min(self._chunk_size, left, most, MAX_CHUNK)))  # by its clock; others may be slower
        given = self._arguments(state, number)
        began = time.perf_counter()
        # JAX returns before the work is done; without waiting, the time of dispatch would be measured.
        state, metrics = jax.block_until_ready(self._compiled(*given))
        self._adapt(number, time.perf_counter() - began)
        return state, {name: np.asarray(values)[:number] for name, values in metrics.items()}

    def compile(self, state: TrainState) -> None:
        if self._compiled is None:
            self._compiled = self._compile(state)

    def flops_per_iteration(self, state: TrainState) -> float:
        """Floating-point operations of one iteration of all seeds, as the compiler counts them (loops are counted once)."""
        lowered = jax.jit(self._iteration).lower(*self._arguments(state)[:3])
        cost = lowered.compile().cost_analysis()
        return float((cost[0] if isinstance(cost, list) else cost or {}).get("flops", float("nan")))

    def release(self) -> None:
        """Nothing is taken."""

    def close(self) -> None:
        """Nothing to release."""

    # -- compiled parts ---------------------------------------------------------------------------------------------------

    def _compile(self, state: TrainState) -> Any:
        # The number of iterations is an argument and not a shape, so one program serves chunks of every length.
        everywhere, given = self.layout.everywhere, self._arguments(state)
        wanted = (self._places_of_rule(), everywhere, self.places, everywhere)
        chunk = self.layout.jit(self._chunk, wanted, (self.places, everywhere), donate_argnums=2)
        return chunk.lower(*given).compile(compiler_options=self.compile_options)

    def _arguments(self, state: TrainState, number: int = 1) -> tuple[PyTree, dict[str, Array], TrainState, Array]:
        """What a chunk is called with, where it has to lie: whoever changes agents between chunks need not think of that."""
        layout, shared = self.layout, (self.numbers, jnp.int32(number))
        numbers, wanted = layout.place(shared, layout.everywhere)
        return layout.place(self.rule_params, self._places_of_rule()), numbers, layout.place(state, self.places), wanted

    def _places_of_rule(self) -> PyTree:
        # A leaf that no agent has to itself is on all devices.
        layout = self.layout
        ranks = jax.tree.map(lambda leaf, rank: jnp.ndim(leaf) == rank, self.rule_params, self._ranks)
        return jax.tree.map(lambda shared: layout.everywhere if shared else layout.members, ranks)

    def _chunk(
        self, rule_params: PyTree, numbers: dict[str, Array], state: TrainState, number: Array
    ) -> tuple[TrainState, Metrics]:
        # A loop with a traced number of turns cannot stack outputs as `scan` does, so there is room for the longest chunk and
        # `advance` cuts off what was not written.
        example = jax.eval_shape(self._iteration, rule_params, numbers, state)[1]
        rows = jax.tree.map(lambda x: jnp.zeros((MAX_CHUNK, *x.shape), x.dtype), example)

        def body(index: Array, carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            state, rows = carry
            state, metrics = self._iteration(rule_params, numbers, state)
            return state, jax.tree.map(lambda row, value: row.at[index].set(value), rows, metrics)

        return jax.lax.fori_loop(0, number, body, (state, rows))

    def _iteration(self, rule_params: PyTree, numbers: dict[str, Array], state: TrainState) -> tuple[TrainState, Metrics]:
        keys = jax.vmap(split_keys)(state.life)
        one = functools.partial(collect, self.streams, self.recipe.learning.unroll)
        life, fresh, acted = jax.vmap(one)(state.life, keys.act)
        # Stored before the update: `warm_iterations` counts on it, and a draw from the buffer may already return the fresh unroll.
        state = TrainState(jax.vmap(store)(life, fresh)._replace(key=keys.life), state.iteration)
        state, learned = self.learn(rule_params, numbers, state, fresh, keys.learn)
        return state, acted | learned

    def learn(
        self, rule_params: PyTree, numbers: dict[str, Array], state: TrainState, fresh: Experience, keys: Array
    ) -> tuple[TrainState, Metrics]:
        """One update of every agent, once the replay buffers hold enough; the iteration is then over.

        Args:
            rule_params: parameters of the rule, shared or one per agent [K, ...].
            numbers: hyper-parameters that all agents share, [] each.
            state: after the fresh experience was stored.
            fresh: experience [K, T, B].
            keys: [K].
        """
        life, iteration = state

        # Not whole lives: a `cond` that returned those could copy their replay buffers.
        def updated(life: Life) -> Learned:
            one = functools.partial(sample_and_update, self.learner, self.recipe.learning)
            life = life._replace(learner_state=self._with_numbers(life.learner_state, numbers))
            learned = jax.vmap(one, in_axes=(self.rule_axes(rule_params), 0, 0, 0))(rule_params, life, fresh, keys)
            return learned._replace(learner_state=self._without_numbers(learned.learner_state))

        if self.warm_iterations:
            nothing = jax.tree.map(not_measured, jax.eval_shape(updated, life).metrics)
            priority = life.replay.priority if life.replay else ()
            ready = iteration >= self.warm_iterations  # one boolean for all seeds, so that the update is really skipped
            learned = jax.lax.cond(ready, updated, lambda life: Learned(life.learner_state, nothing, priority), life)
        else:
            learned = updated(life)
        if life.replay:
            life = life._replace(replay=life.replay._replace(priority=learned.priority))
        return TrainState(life._replace(learner_state=learned.learner_state), iteration + 1), learned.metrics

    def _adapt(self, number: int, seconds: float) -> None:
        wanted = number * CHUNK_SECONDS / max(seconds, 1e-6)
        self._chunk_size = int(np.clip(wanted, 1, 4 * self._chunk_size))  # grow by steps: the first chunks are noisy


def not_measured(like: jax.ShapeDtypeStruct) -> Array:
    """The value of a metric before the first update: NaN, or 0 for a count."""
    return jnp.full(like.shape, jnp.nan if jnp.issubdtype(like.dtype, jnp.floating) else 0, like.dtype)


def make_trainer(
    environment: Environment | HostEnvironment,
    recipe: Recipe,
    config: TrainerConfig,
    hyperparameters: Mapping[str, ArrayLike] = NOTHING_OWN,
    tasks: PyTree = None,
) -> Trainer:
    """The trainer for this kind of environment; arguments as for `BaseTrainer`.

    Args:
        environment: where the agents act; it decides which trainer it is.
        recipe: the rule, and settings that all agents share.
        config: seeds K, steps and where tasks come from.
        hyperparameters: settings that differ between the agents, [K] each.
        tasks: one task per agent, leaves [K, ...], in the place of `config.task`.
    """
    if isinstance(environment, HostEnvironment):
        # Not at the top: that module imports this one.
        from rulax.learning.host import HostTrainer

        return HostTrainer(environment, recipe, config, hyperparameters, tasks)
    return CompiledTrainer(environment, recipe, config, hyperparameters, tasks)

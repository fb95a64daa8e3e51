"""Distributions of tasks, built from environments. A task is a pytree of numbers, so a distribution is `sample_task` under
`vmap`.

Three things end, and each has its own consequence:

* an **episode** of the environment: the environment starts again (`first` is `Level.EPISODE`), and a memory that lasts for a trial
  goes on;
* a **trial**, several episodes of one task: to the streams, and so to returns, this is the end of an episode (`terminated`), and
  the next trial starts with `Level.TRIAL`, which clears such a memory;
* a **task**: after some trials another one is drawn. It starts with `Level.TRIAL` as well.

    trial          several episodes as one, with what happened in them in the observation: what RL² learns in
    recurring      contexts that come back, each with its own task, identified by a barcode
    randomised     constants of the task drawn from ranges
    each_episode   the same, drawn anew for every episode: domain randomisation
    with_reward    a different reward
    finite_set     a fixed number of tasks instead of a distribution
    mutable        a hook that changes a task a little, for populations of environments

The option `trial`, `contexts` or `tasks` of `registry.make` applies the first two and `finite_set` by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rulax.envs.base import Around, Environment, Transition
from rulax.envs.ranges import Union, at, ranges_of, write_union
from rulax.envs.wrappers import Wrapped, as_vector, beside, select, vector_size
from rulax.errors import UserError, suggestion
from rulax.types import Array, Level, PyTree


class Ends(NamedTuple):
    """Which of the three ended with the last step."""

    episode: Array  # [] bool
    trial: Array  # [] bool
    task: Array  # [] bool


class TrialState(NamedTuple):
    """A task, the state of its environment, and how much of the trial and of the task is over."""

    task: PyTree
    env_state: PyTree
    episodes: Array  # [] int32, ended in this trial
    trials: Array  # [] int32, ended of this task
    steps: Array  # [] int32, in this trial
    ends: Ends


@dataclasses.dataclass(frozen=True)
class Trial(Wrapped):
    """`episodes` episodes of one task as one episode; after `trials` such trials another task is drawn.

    The observation is the environment's own (flattened), the previous action (one-hot), its reward, whether it ended an episode,
    and with `clock` the fraction of `clock` steps that is over. At the start of a trial all but the first part are 0. The
    environment's task becomes part of the state, because the agent has to find it out. With `withheld` the reward is shown as 0:
    an ablation that leaves an agent nothing to learn from within a trial.
    """

    episodes: int = 1
    trials: int = 1
    clock: int = 0
    withheld: bool = False

    def __post_init__(self) -> None:
        if self.episodes < 1 or self.trials < 1 or self.clock < 0:
            raise ValueError(
                f"a trial needs at least one episode, a task at least one trial, and the clock no negative number, not "
                f"episodes={self.episodes}, trials={self.trials}, clock={self.clock}"
            )

    real_dimensions = 0  # type: ignore[assignment]  # the action that an observation shows is a choice
    one_task = True  # type: ignore[assignment]  # from outside: those of the environment are drawn in here

    @property
    def observation(self) -> jax.ShapeDtypeStruct:  # type: ignore[override]
        size = vector_size(self.environment.observation) + self._choices() + 2 + bool(self.clock)
        return jax.ShapeDtypeStruct((size,), jnp.float32)

    def default_task(self) -> PyTree:
        # Tasks are drawn inside, trial by trial, so from outside there is nothing to choose.
        return ()

    def sample_task(self, key: Array) -> PyTree:
        del key
        return ()

    def reset(self, task: PyTree, key: Array) -> tuple[TrialState, Array]:
        key_task, key_env = jax.random.split(key)
        return self._begin(self.environment.sample_task(key_task), jnp.int32(0), key_env)

    def next_episode(self, task: PyTree, state: TrialState, key: Array) -> tuple[TrialState, Array]:
        """The next trial, of the same task until its trials are over."""
        fresh, observation = self.reset(task, key)
        # Decided while tracing: with one trial per task the second start need not be computed.
        if self.trials == 1:
            return fresh, observation
        # The same key as above: only one of the two starts is kept.
        same, same_observation = self._begin(state.task, state.trials, key)
        return select(state.ends.task, (fresh, observation), (same, same_observation))

    def next_level(self, task: PyTree, state: TrialState) -> Level:
        return Level.TRIAL

    def _begin(self, task: PyTree, trials: Array, key: Array) -> tuple[TrialState, Array]:
        env_state, observation = self.environment.reset(task, key)
        never = jnp.bool_(False)
        state = TrialState(task, env_state, jnp.int32(0), trials, jnp.int32(0), Ends(never, never, never))
        return state, self._show(observation, jnp.zeros(self._choices()), jnp.float32(0), never, state.steps)

    def step(self, task: PyTree, state: TrialState, action: Array, key: Array) -> tuple[TrialState, Transition]:
        key_step, key_next = jax.random.split(key)
        env_state, transition = self.environment.step(state.task, state.env_state, action, key_step)
        # How an inner episode ends makes no difference: to returns the trial goes on, and only its own end terminates.
        over = transition.terminated | transition.truncated
        # The environment starts again in here, because `AutoReset` sees nothing but the end of the trial.
        next_state, next_observation = self.environment.next_episode(state.task, env_state, key_next)
        env_state, observation = select(over, (next_state, next_observation), (env_state, transition.observation))
        episodes, steps = state.episodes + over, state.steps + 1
        ended = over & (episodes >= self.episodes)
        trials = state.trials + ended
        ends = Ends(over, ended, ended & (trials >= self.trials))
        before = jax.nn.one_hot(action, self.num_actions).reshape(-1)
        shown = self._show(observation, before, transition.reward, over, steps)
        state = TrialState(state.task, env_state, episodes, trials, steps, ends)
        # Inside of a trial nothing above an episode starts, whatever the environment itself may consist of.
        first = jnp.where(over, Level.EPISODE, jnp.minimum(transition.first, Level.EPISODE)).astype(jnp.int8)
        return state, Transition(shown, transition.reward, ended, jnp.bool_(False), first)

    def _choices(self) -> int:
        return self.num_actions * max(1, self.action_dimensions)

    def expected_reward(self, task: PyTree, state: TrialState, action: Array) -> Array:
        """The mean reward of an action in the current task, if the environment knows it."""
        del task
        return self.environment.expected_reward(state.task, state.env_state, action)  # type: ignore[attr-defined]

    def _show(self, observation: PyTree, action: Array, reward: Array, over: Array, steps: Array) -> Array:
        reward = jnp.zeros_like(reward) if self.withheld else reward
        # The inputs of RL² (Duan et al. 2016): without the reward and the end a memory could not infer the task.
        parts = [observation, action, reward, over]
        return as_vector([*parts, steps / self.clock] if self.clock else parts)


class RecurringState(NamedTuple):
    """The contexts of an epoch, and which of them is met now."""

    tasks: PyTree  # [C, ...]
    barcodes: Array  # [C, bits]
    left: Array  # [C] int32, how often each will be met after this episode
    context: Array  # [] int32
    env_state: PyTree


@dataclasses.dataclass(frozen=True)
class Recurring(Wrapped):
    """`contexts` tasks, each with a random barcode of `bits` bits that every observation shows, each met `repeats` times.

    Observations become dictionaries, with the barcode as "context"; what the environment showed is in "observation" (a dictionary
    gets one more entry). The order is random; every meeting is an episode. After all of them an epoch is over: new tasks with new
    barcodes are drawn, and the next episode starts with `Level.TRIAL`.

    Streams that start together stay together: all contexts are new to all of them at once, and later none is to any. `staggered`
    shortens the first epoch of each stream by a random number of repeats, so that later ones start at different times.
    """

    contexts: int = 10
    repeats: int = 10
    bits: int = 10
    staggered: bool = False

    one_task = True  # type: ignore[assignment]  # from outside: those of the environment are drawn in here

    def __post_init__(self) -> None:
        if self.contexts < 1 or self.repeats < 1 or 2**self.bits < self.contexts:
            raise ValueError(f"{self.contexts} contexts need at least as many barcodes; {self.bits} bits make {2**self.bits}")

    @property
    def observation(self) -> dict[str, PyTree]:  # type: ignore[override]
        return beside(self.environment.observation, "context", jax.ShapeDtypeStruct((self.bits,), jnp.float32))

    def default_task(self) -> PyTree:
        return ()

    def sample_task(self, key: Array) -> PyTree:
        del key
        return ()

    def reset(self, task: PyTree, key: Array) -> tuple[RecurringState, PyTree]:
        if not self.staggered:
            return self._begin(key, self.repeats)
        key_repeats, key_begin = jax.random.split(key)
        return self._begin(key_begin, jax.random.randint(key_repeats, (), 1, self.repeats + 1))

    def _begin(self, key: Array, repeats: int | Array) -> tuple[RecurringState, PyTree]:
        """Start an epoch in which each context is met so many times."""
        key_tasks, key_codes, key_meet = jax.random.split(key, 3)
        tasks = jax.vmap(self.environment.sample_task)(jax.random.split(key_tasks, self.contexts))
        # Different numbers have different barcodes: two contexts that look alike could not be told apart.
        numbers = distinct(key_codes, 2**self.bits, self.contexts)
        barcodes = ((numbers[:, None] >> jnp.arange(self.bits)) & 1).astype(jnp.float32)
        left = jnp.full(self.contexts, repeats, jnp.int32)
        # The last two are placeholders that `_meet` fills in.
        return self._meet(RecurringState(tasks, barcodes, left, jnp.int32(0), ()), key_meet)

    def next_episode(self, task: PyTree, state: RecurringState, key: Array) -> tuple[RecurringState, PyTree]:
        return select(self._is_last(state), self._begin(key, self.repeats), self._meet(state, key))

    def next_level(self, task: PyTree, state: RecurringState) -> Array:
        return jnp.where(self._is_last(state), Level.TRIAL, Level.EPISODE)

    def step(self, task: PyTree, state: RecurringState, action: Array, key: Array) -> tuple[RecurringState, Transition]:
        env_state, transition = self.environment.step(self._task(state), state.env_state, action, key)
        shown = self._show(state, transition.observation)
        return state._replace(env_state=env_state), transition._replace(observation=shown)

    def _is_last(self, state: RecurringState) -> Array:
        return jnp.all(state.left == 0)

    def _meet(self, state: RecurringState, key: Array) -> tuple[RecurringState, PyTree]:
        key_context, key_env = jax.random.split(key)
        # One of the meetings that are left, each equally likely: the same as a shuffled list of all, without sorting one at every
        # step. Where none is left the result is discarded.
        number = jax.random.randint(key_context, (), 0, jnp.maximum(jnp.sum(state.left), 1))
        context = jnp.argmax(number < jnp.cumsum(state.left)).astype(jnp.int32)
        state = state._replace(context=context, left=state.left.at[context].add(-1))
        env_state, observation = self.environment.reset(self._task(state), key_env)
        return state._replace(env_state=env_state), self._show(state, observation)

    def _task(self, state: RecurringState) -> PyTree:
        return jax.tree.map(lambda x: x[state.context], state.tasks)

    def expected_reward(self, task: PyTree, state: RecurringState, action: Array) -> Array:
        """The mean reward of an action in the current context, if the environment knows it."""
        del task
        return self.environment.expected_reward(self._task(state), state.env_state, action)  # type: ignore[attr-defined]

    def _show(self, state: RecurringState, observation: PyTree) -> dict[str, PyTree]:
        return beside(observation, "context", state.barcodes[state.context])


def draws_tasks(environment: Any) -> bool:
    """Whether an environment draws tasks by itself while it runs, so that none can be given to it: a `Trial`, or `Recurring`."""
    while not isinstance(environment, Trial | Recurring):
        if not isinstance(environment, Around):
            return False
        environment = environment.environment
    return True


def distinct(key: Array, limit: int, number: int) -> Array:
    """`number` different whole numbers below `limit`, every set of them equally likely (their order is not), [number] int32.

    Floyd's way: the i-th draw is from one number more than the draw before, and a number that was drawn already is replaced by the
    largest, which cannot have been. `jax.random.choice` would sort all numbers below `limit`, at every step of every stream.
    """
    largest = limit - number + jnp.arange(number)
    draws = jax.random.randint(key, (number,), 0, largest + 1)

    def add(i: Array, chosen: Array) -> Array:
        return chosen.at[i].set(jnp.where(jnp.any(chosen == draws[i]), largest[i], draws[i]))

    return jax.lax.fori_loop(0, number, add, jnp.full(number, -1, draws.dtype))


@dataclasses.dataclass(frozen=True)
class Randomised(Wrapped):
    """Tasks with some constants drawn from ranges: (name, intervals, fields that get the number). The rest is the default task."""

    ranges: tuple[tuple[str, Union, tuple[str, ...]], ...]

    def sample_task(self, key: Array) -> PyTree:
        return self.redraw(self.environment.default_task(), key)

    def redraw(self, task: PyTree, key: Array) -> PyTree:
        """A task with these constants drawn anew, and all others as they are."""
        drawn = {}
        for each, (_, union, fields) in zip(jax.random.split(key, len(self.ranges)), self.ranges, strict=True):
            for field in fields:
                # With the shape and dtype of the field, so that all tasks fit the same compiled program; several fields of one
                # shape get equal numbers, because the key is the same.
                like = jnp.asarray(getattr(task, field))
                drawn[field] = at(union, jax.random.uniform(each, like.shape, like.dtype), jnp).astype(like.dtype)
        return task._replace(**drawn)


class EachState(NamedTuple):
    """An environment's state, and the task of this episode."""

    task: PyTree
    env_state: PyTree


@dataclasses.dataclass(frozen=True)
class EachEpisode(Wrapped):
    """A randomised environment whose constants are drawn anew for every episode, and not once for a task.

    The task that it is given from outside has the constants that are not drawn.
    """

    environment: Randomised

    @property
    def inner(self) -> Environment:
        """The environment as it was before anything was drawn."""
        return self.environment.environment

    def sample_task(self, key: Array) -> PyTree:
        return self.inner.sample_task(key)

    def reset(self, task: PyTree, key: Array) -> tuple[EachState, PyTree]:
        key_task, key_env = jax.random.split(key)
        task = self.environment.redraw(task, key_task)
        env_state, observation = self.inner.reset(task, key_env)
        return EachState(task, env_state), observation

    def next_episode(self, task: PyTree, state: EachState, key: Array) -> tuple[EachState, PyTree]:
        key_task, key_env = jax.random.split(key)
        task = self.environment.redraw(task, key_task)
        env_state, observation = self.inner.next_episode(task, state.env_state, key_env)
        return EachState(task, env_state), observation

    def next_level(self, task: PyTree, state: EachState) -> Array | int:
        return self.inner.next_level(state.task, state.env_state)

    def step(self, task: PyTree, state: EachState, action: Array, key: Array) -> tuple[EachState, Transition]:
        env_state, transition = self.inner.step(state.task, state.env_state, action, key)
        return state._replace(env_state=env_state), transition


@dataclasses.dataclass(frozen=True)
class WithReward(Wrapped):
    """The same environment with another reward: `reward(task, state before the step, action, transition)` -> []."""

    reward: Callable[[PyTree, PyTree, Array, Transition], Array]

    def step(self, task: PyTree, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Transition]:
        after, transition = self.environment.step(task, state, action, key)
        return after, transition._replace(reward=self.reward(task, state, action, transition))


@dataclasses.dataclass(frozen=True)
class FiniteSet(Wrapped):
    """`number` tasks, fixed by `seed`, instead of a distribution."""

    number: int
    seed: int = 0

    def task(self, index: Array | int) -> PyTree:
        """One of them."""
        # Drawn again from its index instead of stored: the index may be traced, and any number of tasks costs no memory.
        return self.environment.sample_task(jax.random.fold_in(jax.random.key(self.seed), index))

    def sample_task(self, key: Array) -> PyTree:
        return self.task(jax.random.randint(key, (), 0, self.number))


@dataclasses.dataclass(frozen=True)
class Mutable(Wrapped):
    """Tasks that can be changed a little: `mutate(task, key)` returns a similar task of the same structure."""

    mutate: Callable[[PyTree, Array], PyTree]


def trial(environment: Environment, episodes: int = 1, trials: int = 1, clock: int = 0) -> Trial:
    """`episodes` episodes per trial and `trials` trials per task; see `Trial`."""
    return Trial(environment, episodes, trials, clock)


def recurring(environment: Environment, contexts: int = 10, repeats: int = 10, bits: int = 10) -> Recurring:
    """Contexts that come back; see `Recurring`."""
    return Recurring(environment, contexts, repeats, bits)


def randomised(environment: Environment, name: str = "", /, **ranges: Any) -> Randomised:
    """Tasks from ranges: `randomised(CartPole(), half_length=(0.25, 0.75), force=[(1, 5), (15, 20)])`; see `ranges.py`.

    A name is a field of the task, or one of the environment's `short_names`. Errors call the environment `name`.
    """
    task, name = environment.default_task(), name or type(environment).__name__
    # Real numbers only: what is counted, or picked from a list, has no range.
    fields = [
        field for field in getattr(task, "_fields", ()) if jnp.issubdtype(jnp.result_type(getattr(task, field)), jnp.floating)
    ]
    if not fields:
        raise UserError(f"'{name}' has nothing to randomise: its task has no real-valued constants")
    short = environment.short_names
    known = [*fields, *(each for each in short if each not in fields)]
    read = ranges_of(name, "randomise", ranges)
    for each in read:
        if each not in known:
            raise UserError(f"'{name}' has no constant '{each}'{suggestion(each, known)} (it has {', '.join(known)})")
    targets = {each: (each,) if each in fields else short[each] for each in read}
    taken = [field for each in targets.values() for field in each]
    twice = [field for field in taken if taken.count(field) > 1]
    if twice:
        raise UserError(
            f"randomise gives '{name}' two ranges for {twice[0]}: {', '.join(e for e in read if twice[0] in targets[e])}"
        )
    for each, union in read.items():
        if union[0][0] <= 0 and any(field in environment.positive for field in targets[each]):
            raise UserError(f"randomise: {each} of '{name}' must be above 0, not {write_union(union)}")
    return Randomised(environment, tuple((each, union, targets[each]) for each, union in read.items()))


def each_episode(environment: Environment, name: str = "", /, **ranges: Any) -> EachEpisode:
    """The same, drawn anew for every episode: domain randomisation; see `EachEpisode`."""
    return EachEpisode(randomised(environment, name, **ranges))


def with_reward(environment: Environment, reward: Callable[[PyTree, PyTree, Array, Transition], Array]) -> WithReward:
    """Another reward; see `WithReward`."""
    return WithReward(environment, reward)


def finite_set(environment: Environment, number: int, seed: int = 0) -> FiniteSet:
    """A fixed set of tasks; see `FiniteSet`."""
    return FiniteSet(environment, number, seed)


def mutable(environment: Environment, mutate: Callable[[PyTree, Array], PyTree]) -> Mutable:
    """A mutation hook; see `Mutable`."""
    return Mutable(environment, mutate)


def mutation_of(environment: Any) -> Callable[[PyTree, Array], PyTree]:
    """How an environment changes its tasks: its own `mutate`, or that of the first one inside of it that has one."""
    inner = environment
    while not hasattr(inner, "mutate"):
        # These have tasks of their own, which what is inside cannot change.
        if isinstance(inner, Trial | Recurring | EachEpisode | FiniteSet) or not hasattr(inner, "environment"):
            raise UserError(
                f"{type(innermost(environment)).__name__} cannot mutate its tasks: give it a method mutate(task, key), "
                "or one from outside with mutable(environment, mutate)"
            )
        inner = inner.environment
    return inner.mutate


def innermost(environment: Any) -> Any:
    """The environment inside of all others around it."""
    while hasattr(environment, "environment"):
        environment = environment.environment
    return environment

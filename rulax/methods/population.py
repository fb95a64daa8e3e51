"""A trainer whose agents are a population: it trains as any other, and between stretches of learning it takes a turn of `pbt.py`.

    trainer = PopulationTrainer(make_trainer(...), pbt, every=40)      # iterations between turns
    state = trainer.init(key);  state, metrics = trainer.advance(state)

The turn is taken when a stretch *begins*, from what the one before has measured. So a run that ended at a turn and goes on later
takes it then, like one that never stopped. Everything that a turn needs is in the state; what it did is in `turns`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.agents import Agent
from rulax.learning.members import HYPERPARAMETERS
from rulax.learning.train import MAX_CHUNK, Trainer, TrainState
from rulax.methods.pbt import Pbt, Turned, draw, turn
from rulax.rules.adjustable import CONSTANTS
from rulax.types import Array, PyTree


class PopulationState(NamedTuple):
    """A population in the middle of a stretch."""

    training: TrainState
    hyperparameters: dict[str, Array]  # [K] those that are in force
    scores: Array  # [K] at the last turn; NaN: no episode had ended
    episodes: Array  # [K] that ended since then
    returns: Array  # [K] the sum of theirs
    key: Array  # of the turns to come


class TurnRecord(NamedTuple):
    """What a turn did, for readers: plain lists of K numbers."""

    step: int  # environment steps per agent at which it was taken
    scores: list[float | None]  # before it; None: unknown
    parents: list[int]
    hyperparameters: dict[str, list[float]]  # after it


class AroundTrainer:
    """A trainer around another one, whose state is a part of its own; what it does not say otherwise the inner one does."""

    def __init__(self, inner: Trainer):
        self.inner = inner
        self.recipe, self.config, self.layout = inner.recipe, inner.config, inner.layout
        self.steps_per_iteration, self.total_iterations = inner.steps_per_iteration, inner.total_iterations
        self.warm_iterations = inner.warm_iterations
        self.check, self.reserve, self.close = inner.check, inner.reserve, inner.close

    @property
    def environment(self) -> Any:
        """Where the agents live."""
        return self.inner.environment

    @property
    def places(self) -> PyTree:
        """Of the inner trainer's state."""
        return self.inner.places

    @property
    def rule_params(self) -> PyTree:
        """Of the inner trainer."""
        return self.inner.rule_params

    @property
    def last_failure(self) -> str:
        """Of the inner trainer."""
        return self.inner.last_failure

    def training(self, state: Any) -> TrainState:
        """The inner trainer's state."""
        return state

    def done(self, state: Any) -> bool:
        """Whether the budget is spent."""
        return self.inner.done(self.training(state))

    def steps(self, state: Any) -> int:
        """Environment steps per agent so far."""
        return self.inner.steps(self.training(state))

    def agent(self, state: Any, seed: int = 0) -> Agent:
        """One agent."""
        return self.inner.agent(self.training(state), seed)

    def task(self, state: Any, seed: int = 0) -> PyTree:
        """The task of one agent; () in a host environment."""
        return self.inner.task(self.training(state), seed)

    def flops_per_iteration(self, state: Any) -> float:
        """Of all agents; NaN if they are not known."""
        return self.inner.flops_per_iteration(self.training(state))

    def install(self, training: TrainState, hyperparameters: Mapping[str, Array]) -> TrainState:
        """Put hyper-parameters [K] in force: those of learning are part of the agents' state, the rule's are its parameters."""
        self.set_constants(hyperparameters)
        # Copies: the inner trainer may take the buffers of its state for its own.
        own = {name: jnp.array(values) for name, values in hyperparameters.items() if name in HYPERPARAMETERS}
        learner_state = training.life.learner_state._replace(hyperparameters=own)
        return training._replace(life=training.life._replace(learner_state=learner_state))

    def set_constants(self, hyperparameters: Mapping[str, Array]) -> None:
        """Give the rule its own among them."""
        constants = {name: values for name, values in hyperparameters.items() if name not in HYPERPARAMETERS}
        if constants:
            self.inner.rule_params = self.inner.rule_params | {CONSTANTS: constants}


class PopulationTrainer(AroundTrainer):
    """Trains K agents as one population."""

    def __init__(self, inner: Trainer, pbt: Pbt, every: int, first: Mapping[str, float] | None = None):
        """
        Args:
            inner: trains the agents. It was made with hyper-parameters of its own for those names of `pbt.spaces` that are in
                `HYPERPARAMETERS`, whatever their values; the others are constants of its rule, which is `adjustable`.
            pbt: what a turn does.
            every: iterations between two turns.
            first: hyper-parameters that the first member begins with; the others draw theirs.
        """
        super().__init__(inner)
        self.pbt, self.every, self.first = pbt, every, first
        self.turns: list[TurnRecord] = []  # since `told` was last called
        inner.pause_at = lambda iteration: iteration % every == 0
        self.set_constants(self._drawn(jax.random.key(0)))  # one for each agent from the first program on
        self._turn = jax.jit(functools.partial(turn, pbt))

    def _drawn(self, key: Array) -> dict[str, Array]:
        drawn = draw(self.pbt.spaces, self.config.seeds, key)
        return {name: values.at[0].set((self.first or {}).get(name, values[0])) for name, values in drawn.items()}

    def _state(self, training: TrainState, key: Array) -> PopulationState:
        key_drawn, key_turns = jax.random.split(key)
        nothing = jnp.zeros(self.config.seeds)
        return PopulationState(training, self._drawn(key_drawn), nothing + jnp.nan, nothing, nothing, key_turns)

    def init(self, key: Array) -> PopulationState:
        """K fresh agents with hyper-parameters that were drawn."""
        key_agents, key = jax.random.split(key)
        state = self._state(self.inner.init(key_agents), key)
        self._tell_beginning(state)
        return state._replace(training=self.install(state.training, state.hyperparameters))

    def skeleton(self) -> PopulationState:
        """Shapes and dtypes of the state."""
        return jax.eval_shape(self._state, self.inner.skeleton(), jax.random.key(0))

    def resume(self, state: PopulationState) -> PopulationState:
        """The state to continue from, given one that was saved."""
        state = state._replace(training=self.inner.resume(state.training))
        if not int(state.training.iteration):
            self._tell_beginning(state)
        return state

    def _tell_beginning(self, state: PopulationState) -> None:
        itself = list(range(self.config.seeds))
        self.turns = [TurnRecord(0, [None] * len(itself), itself, lists(state.hyperparameters))]

    def training(self, state: PopulationState) -> TrainState:
        """The inner trainer's state."""
        return state.training

    def compile(self, state: PopulationState) -> None:
        """Compile what `advance` runs, unless it is compiled already."""
        self.inner.compile(state.training)

    def advance(self, state: PopulationState, most: int = MAX_CHUNK) -> tuple[PopulationState, dict[str, np.ndarray]]:
        """A turn, if one is due, then about a second of training, and never beyond the next turn."""
        made = int(state.training.iteration)
        if made and made % self.every == 0:
            state = self._take_turn(state)
        # The state alone decides what happens next, whatever this trainer did before.
        self.set_constants(state.hyperparameters)
        training, metrics = self.inner.advance(state.training, min(most, self.every - made % self.every))
        episodes, returns = (sum_onto(metrics[name], so_far) for name, so_far in counted(state))
        state = state._replace(training=training, episodes=episodes, returns=returns)
        shape = metrics["episodes"].shape
        own = {name: np.broadcast_to(np.asarray(values), shape) for name, values in state.hyperparameters.items()}
        return state, metrics | own

    def told(self) -> list[TurnRecord]:
        """What the turns since the last call did; the first one says how the population began."""
        told, self.turns = self.turns, []
        return told

    def _take_turn(self, state: PopulationState) -> PopulationState:
        key, key_turn = jax.random.split(state.key)
        scores = scores_of(state)
        life = state.training.life
        turned: Turned = self._turn(life.learner_state, state.hyperparameters, scores, key_turn)
        training = state.training._replace(life=life._replace(learner_state=turned.members))
        known = [None if np.isnan(score) else float(score) for score in np.asarray(scores)]
        parents = np.asarray(turned.parents).tolist()
        self.turns.append(TurnRecord(self.steps(state), known, parents, lists(turned.hyperparameters)))
        nothing = jnp.zeros_like(state.episodes)
        training = self.install(training, turned.hyperparameters)
        return PopulationState(training, turned.hyperparameters, turned.scores, nothing, nothing, key)


def scores_of(state: PopulationState) -> Array:
    """The mean return [K] of the episodes that ended since the last turn; where none did, the score of that turn."""
    return jnp.where(state.episodes > 0, state.returns / jnp.maximum(state.episodes, 1), state.scores)


def counted(state: PopulationState) -> list[tuple[str, Array]]:
    """Sums since the last turn, by the metric that they add up."""
    return [("episodes", state.episodes), ("episode_return", state.returns)]


def sum_onto(values: np.ndarray, so_far: Array) -> Array:
    """Metrics [I, K] added to sums [K], one after the other: so the sum does not depend on where chunks begin."""
    rows = np.concatenate([np.asarray(so_far, np.float32)[None], values.astype(np.float32)])
    return jnp.asarray(np.add.accumulate(rows)[-1])


def lists(hyperparameters: Mapping[str, Array]) -> dict[str, list[float]]:
    """Arrays [K] as lists."""
    return {name: np.asarray(values).astype(float).tolist() for name, values in hyperparameters.items()}

"""The data of all analyses: an agent's life with snapshots, and what a snapshot does and predicts when it is left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.agents import Agent
from rulax.envs.base import Episode
from rulax.learning.rollout import act, begin
from rulax.learning.train import CompiledTrainer
from rulax.learning.update import slow_agent
from rulax.types import Array, Batch, Experience, Predictions, PyTree, starts

Values = Callable[[Predictions], Array]  # predictions [T+1, B, ...] -> value of each state [T+1, B]


class Snapshot(NamedTuple):
    """One agent in the middle of its life, on the host."""

    step: int  # of the environment
    params: Agent
    slow: Agent
    rule_state: PyTree


class LivedLife(NamedTuple):
    """What came of training."""

    steps: list[int]
    returns: list[float | None]  # mean over the episodes that ended since the point before
    snapshots: list[Snapshot]
    finished: bool


def live(
    trainer: CompiledTrainer, seed: int, snapshots: int, go_on: Callable[[int, float | None], bool], points: int = 60
) -> LivedLife:
    """Train one agent to the end of its budget, with a snapshot at birth, at the end and evenly between (0: none at all).

    `go_on(step, return)` is asked after every chunk, about once a second; False ends the life early.
    """
    state = trainer.init(jax.random.key(seed))
    marks = np.linspace(0, trainer.total_iterations, max(snapshots, 2)).round().astype(int).tolist() if snapshots else []
    found, steps, returns, totals, episodes = [], [], [], 0.0, 0  # type: ignore[var-annotated]
    wanted = True
    while True:
        iteration = int(state.iteration)
        if marks and iteration >= marks[0]:
            found.append(snapshot(trainer, state))
            marks = [mark for mark in marks if mark > iteration]
        if trainer.done(state) or not wanted:
            break
        upto_mark = marks[0] - iteration if marks else trainer.total_iterations
        # Never past a snapshot, and a point of the curve at a time: fast rules do all of a short life in a few chunks.
        state, metrics = trainer.advance(state, min(upto_mark, max(1, trainer.total_iterations // points)))
        totals, episodes = totals + float(np.sum(metrics["episode_return"])), episodes + int(np.sum(metrics["episodes"]))
        step = trainer.steps(state)
        mean = totals / episodes if episodes else None
        if trainer.done(state) or (mean is not None and step - (steps[-1] if steps else 0) >= trainer.config.total_steps / points):
            steps.append(step)
            returns.append(mean)
            totals, episodes = 0.0, 0
        wanted = go_on(step, mean)
    return LivedLife(steps, returns, found, trainer.done(state))


def snapshot(trainer: CompiledTrainer, state: PyTree) -> Snapshot:
    """Copies, because the next chunk takes the state's memory for itself."""
    found = jax.tree.map(lambda x: np.array(x[0]), state.life.learner_state._replace(optimiser_state=()))
    return Snapshot(trainer.steps(state), found.params, slow_agent(found), found.rule_state)


class Observed(NamedTuple):
    """A snapshot left alone for a while: it acts with its own policy and learns nothing."""

    batch: Any  # `Batch` [L, B], predictions [L+1, B]; on the host, as everything here
    value: np.ndarray  # [L+1, B] what the agent thinks that each state is worth
    episode: np.ndarray  # [L, B] number of the episode that a step belongs to
    mean_return: float | None


def observe(trainer: CompiledTrainer, length: int, values: Values) -> Callable[[Snapshot, Array], Observed]:
    """A function that watches snapshots for `length` steps in every stream; compiled once for all of them."""

    @jax.jit
    def watch(params: Agent, slow: Agent, key: Array) -> tuple[Batch, Array, Episode]:
        key_start, key_act = jax.random.split(key)
        memory = params.initial_memory(trainer.recipe.learning.streams)
        actor = begin(trainer.streams, trainer.environment.default_task(), memory, key_start)
        _, experience, episodes = act(trainer.streams, params, actor, length, key_act)
        experience = experience._replace(reward=experience.reward * trainer.learner.reward_scale)  # what the rule saw in training
        predicted: list[Predictions] = [agent.predict(agent.embed(experience)) for agent in (params, slow)]
        return Batch(experience, *predicted), values(predicted[0]), episodes

    def make_signals(found: Snapshot, key: Array) -> Observed:
        # To the host at once: each operation on a device outside of a compiled program would be compiled by itself.
        batch, value, episodes = jax.tree.map(np.asarray, watch(found.params, found.slow, key))
        mean = float(episodes.total[episodes.ended].mean()) if episodes.ended.any() else None
        return Observed(batch, value, number_episodes(batch.experience.first), mean)

    return make_signals


def number_episodes(first: np.ndarray) -> np.ndarray:
    """From `first` [L+1, B] a number for each step's episode, [L, B]; no two streams share one."""
    count = np.cumsum(starts(first[:-1]), axis=0)
    return count + np.arange(first.shape[1]) * (len(first) + 1)


def windows(batch: Any, length: int, memory: PyTree = ()) -> Any:
    """The recording [L, B] cut into trajectories of `length` steps, as a learner would see them: [length, W].

    `memory` [W, ...] is what an agent with a memory starts each of them with.
    """
    starts = range(0, batch.experience.action.shape[0] - length + 1, length)

    def cut(x: np.ndarray, extra: int = 0) -> np.ndarray:
        return np.concatenate([x[start : start + length + extra] for start in starts], axis=1)

    old = batch.experience
    fields: dict[str, Any] = {name: cut(getattr(old, name)) for name in ("action", "reward", "discount", "valid", "behaviour")}
    fields["first"] = cut(old.first, 1)
    seen = jax.tree.map(lambda x: cut(x, 1), old.observation)
    experience = Experience(observation=seen, memory=memory, **fields)
    predictions: list[Any] = [{name: cut(value, 1) for name, value in read.items()} for read in (batch.online, batch.slow)]
    return Batch(experience, *predictions)


def first_streams(batch: Any, number: int) -> Any:
    """The first few streams, without observations: what the analyses of a rule alone read."""
    experience = batch.experience._replace(observation=(), memory=())
    return jax.tree.map(lambda x: x[:, :number], batch._replace(experience=experience))


def values_of(trainer: Any, largest: float | None) -> Values:
    """How to read the value of a state off the predictions of a rule's agents; zero where the rule has none."""
    from rulax.values.two_hot import BINS, SMALL_BINS, Bins, expected_value

    head = trainer.recipe.rule.heads(trainer.environment.num_actions).get("value")

    def values(predictions: Predictions) -> Array:
        policy = jax.nn.softmax(predictions["policy"])
        if head is None:
            return jnp.zeros(policy.shape[:-1])
        known = {kind.number: kind for kind in (BINS, SMALL_BINS)}
        bins = Bins(head.size, largest) if largest else known.get(head.size, Bins(head.size, float(head.size // 2)))
        read = expected_value(predictions["value"], bins)
        return jnp.sum(policy * read, -1) if head.per_action else read

    return values

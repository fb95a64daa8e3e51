"""The data of all analyses: training with snapshots, and what each snapshot does and predicts once it has stopped learning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.agents import Agent
from rulax.envs.base import Episode
from rulax.learning.rollout import act, begin
from rulax.learning.train import CompiledTrainer, Trainer
from rulax.learning.update import slow_agent
from rulax.types import Array, Batch, Experience, Predictions, PyTree, starts

Values = Callable[[Predictions], Array]  # predictions [T+1, B, ...] -> value of each state [T+1, B]


class Snapshot(NamedTuple):
    """One agent at some point of its training, on the host."""

    step: int  # of the environment
    params: Agent
    slow: Agent
    rule_state: PyTree


class TrainingRecord(NamedTuple):
    """The learning curve of one agent, and its snapshots."""

    steps: list[int]
    returns: list[float | None]  # mean over the episodes that ended since the previous point; None if there were none
    snapshots: list[Snapshot]
    finished: bool


def train_with_snapshots(
    trainer: CompiledTrainer, seed: int, snapshots: int, go_on: Callable[[int, float | None], bool], points: int = 60
) -> TrainingRecord:
    """Train one agent to the end of its budget.

    Args:
        trainer: of a single seed.
        seed: of the agent.
        snapshots: how many, evenly spaced, the first before and the last after training; 0 for none.
        go_on: called with the step and the latest mean return after every chunk, about once a second; False ends training early.
        points: of the learning curve, at most.
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
        # Not past the next snapshot, nor past the next point of the curve: fast rules would train to the end in a few chunks.
        state, metrics = trainer.advance(state, min(upto_mark, max(1, trainer.total_iterations // points)))
        totals, episodes = totals + float(np.sum(metrics["episode_return"])), episodes + int(np.sum(metrics["episodes"]))
        step = trainer.steps(state)
        mean = totals / episodes if episodes else None
        if trainer.done(state) or (mean is not None and step - (steps[-1] if steps else 0) >= trainer.config.total_steps / points):
            steps.append(step)
            returns.append(mean)
            totals, episodes = 0.0, 0
        wanted = go_on(step, mean)
    return TrainingRecord(steps, returns, found, trainer.done(state))


def snapshot(trainer: CompiledTrainer, state: PyTree) -> Snapshot:
    """A copy of the agent: the next chunk donates the buffers of the state."""
    # Without the optimiser's state, which no analysis reads.
    found = jax.tree.map(lambda x: np.array(x[0]), state.life.learner_state._replace(optimiser_state=()))
    return Snapshot(trainer.steps(state), found.params, slow_agent(found), found.rule_state)


class Observed(NamedTuple):
    """What a snapshot did over some steps with its own policy, without learning."""

    batch: Any  # `Batch` [L, B], predictions [L+1, B]; on the host, as everything here
    value: np.ndarray  # [L+1, B] the agent's own value of each state
    episode: np.ndarray  # [L, B] number of the episode that each step belongs to
    mean_return: float | None


def observe(trainer: CompiledTrainer, length: int, values: Values) -> Callable[[Snapshot, Array], Observed]:
    """Make a function that records a snapshot, compiled once for all of them.

    Args:
        trainer: the one that trained the agent; gives the environment, its streams and the scale of rewards.
        length: steps per stream.
        values: reads the value of each state off the predictions.

    Returns:
        (snapshot, key) -> what it did in `length` steps of every stream.
    """

    @jax.jit
    def rollout(params: Agent, slow: Agent, key: Array) -> tuple[Batch, Array, Episode]:
        key_start, key_act = jax.random.split(key)
        memory = params.initial_memory(trainer.recipe.learning.streams)
        actor = begin(trainer.streams, trainer.environment.default_task(), memory, key_start)
        _, experience, episodes = act(trainer.streams, params, actor, length, key_act)
        experience = experience._replace(reward=experience.reward * trainer.learner.reward_scale)  # as in training
        predicted: list[Predictions] = [agent.predict(agent.embed(experience)) for agent in (params, slow)]
        return Batch(experience, *predicted), values(predicted[0]), episodes

    def observe_one(found: Snapshot, key: Array) -> Observed:
        # To the host at once: outside a compiled program, each operation on a device array would be compiled by itself.
        batch, value, episodes = jax.tree.map(np.asarray, rollout(found.params, found.slow, key))
        mean = float(episodes.total[episodes.ended].mean()) if episodes.ended.any() else None
        return Observed(batch, value, number_episodes(batch.experience.first), mean)

    return observe_one


def number_episodes(first: np.ndarray) -> np.ndarray:
    """A number for each step's episode, [L, B], from `first` [L+1, B]; no two streams share a number."""
    count = np.cumsum(starts(first[:-1]), axis=0)
    # A stream has fewer than `len(first)` starts, so the offsets keep streams apart.
    return count + np.arange(first.shape[1]) * (len(first) + 1)


def windows(batch: Any, length: int, memory: PyTree = ()) -> Any:
    """Cut a recording [L, B] into trajectories of `length` steps, as a learner would get them: [length, W].

    `memory` [W, ...] is the recurrent state before each of them; () for agents without one.
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
    """The first `number` streams, without observations: enough for analyses of the rule alone."""
    experience = batch.experience._replace(observation=(), memory=())
    return jax.tree.map(lambda x: x[:, :number], batch._replace(experience=experience))


def values_of(trainer: Trainer, largest: float | None) -> Values:
    """How to read the value of a state off the predictions of a rule's agents; zero if the rule has no value head.

    `largest` is the largest value that the head can represent; None infers it from the number of bins.
    """
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

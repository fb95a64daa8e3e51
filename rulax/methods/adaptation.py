"""Learning to be born well: what MAML, its first-order form and Reptile share. Nothing learns here that does not learn elsewhere:
updates are `learning/update.py`, made ready by `discovery/memory.py` and differentiated by `discovery/estimators.py`.

A trial is one task: an agent is born with the meta-parameters, makes a few updates, and is then asked what it has learned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rulax.discovery.estimators import Problem
from rulax.discovery.memory import Updates, make_updates
from rulax.discovery.window import Record
from rulax.envs.base import Episode
from rulax.envs.wrappers import TimeLimit, select, streams
from rulax.learning.rollout import act, begin
from rulax.learning.update import Learner, LearnerState, init_learner_state, mean_loss, read, update
from rulax.rules.base import UpdateRule
from rulax.rules.regression import PREDICTION, as_experience
from rulax.types import Array, Batch, Experience, Metrics, PyTree, later, now, starts


class Tasks(NamedTuple):
    """A distribution of tasks, and how an agent gets to know one of them."""

    sample: Callable[[Array], PyTree]  # key -> task
    # task, agent, key -> what the next update learns from, and what the agent is judged by as it is
    collect: Callable[[PyTree, PyTree, Array], tuple[Experience, Experience]]
    score: Callable[[Experience, PyTree], Array]  # what it is judged by, agent -> what the agent is worth
    fresh: bool  # whether every update gets new experience, or the same again


class Learned(NamedTuple):
    """What is left of a life whose experience was made elsewhere."""

    learner_state: LearnerState
    key: Array


class Trial(NamedTuple):
    """One agent and its task."""

    life: Learned  # after its updates
    record: Record  # of them
    judged: Experience  # [N+1, ...] what it is judged by after 0, 1, ... N of them
    scores: Array  # [N+1] and what it was worth


def in_world(environment: Any, trajectories: int) -> Tasks:
    """Tasks of an environment with a `horizon`: whole episodes in so many streams. An agent is judged by what it does anyway."""
    world = streams(TimeLimit(environment, environment.horizon), trajectories)

    def collect(task: PyTree, agent: PyTree, key: Array) -> tuple[Experience, Experience]:
        key_start, key_act = jax.random.split(key)
        agent = jax.lax.stop_gradient(agent)  # what happens is data: no derivative passes through the environment
        actor = begin(world, task, agent.initial_memory(trajectories), key_start)
        _, experience, episode = act(world, agent, actor, environment.horizon, key_act)
        experience = whole_episodes(experience, episode)
        return experience, experience

    return Tasks(environment.sample_task, collect, lambda experience, agent: mean_return(experience), fresh=True)


def whole_episodes(experience: Experience, episode: Episode) -> Experience:
    """Without the episodes that the batch cut off, of which nobody knows the return; as in the sampler of the MAML code."""
    ends_later = jax.lax.cummax(episode.ended.astype(jnp.int32), 0, reverse=True) > 0
    return experience._replace(valid=experience.valid & ends_later)


def mean_return(experience: Experience) -> Array:
    """Mean over streams of the *first* episode's return: to count all that ended would prefer short ones."""
    first_episode = jnp.cumsum(starts(now(experience.first)), 0) == 1
    return jnp.mean(jnp.sum(jnp.where(first_episode, experience.reward, 0.0), 0))


def with_examples(family: Any, number: int, judged: int, fresh: bool = False) -> Tasks:
    """Supervised tasks: `number` examples per update, by default the same ones again, and `judged` others."""

    def collect(task: PyTree, agent: PyTree, key: Array) -> tuple[Experience, Experience]:
        key_learn, key_judge = jax.random.split(key)
        learned, asked = family.examples(task, key_learn, number), family.examples(task, key_judge, judged)
        return as_experience(*learned), as_experience(*asked)

    return Tasks(family.sample_task, collect, squared_error, fresh)


def squared_error(experience: Experience, agent: PyTree) -> Array:
    """Mean squared error of the agent's predictions."""
    predicted = agent.predict(agent.embed(experience))[PREDICTION][..., 0]
    return jnp.mean(jnp.square(now(predicted) - experience.reward))


def attempt(tasks: Tasks, learner: Learner, meta_params: PyTree, key: Array, times: int) -> Trial:
    """Draw a task and make `times` updates on it, each from what the agent as it then is finds out."""
    key_task, key_agent, key_update = jax.random.split(key, 3)
    task = tasks.sample(key_task)
    initial = init_learner_state(learner, meta_params, key_agent)
    keys = jax.random.split(key_update, times + 1)
    data_keys = keys if tasks.fresh else jnp.broadcast_to(key_update, keys.shape)

    def one(state: LearnerState, inputs: tuple[Array, Array]) -> tuple[LearnerState, tuple[Experience, Experience, Array]]:
        key, last = inputs
        learned, judged = tasks.collect(task, state.params, key)
        after, _ = update(learner, {}, state, learned, key)
        # The last time it is only judged. One loop with an update too many is half of the code to compile.
        return select(last, state, after), (learned, judged, tasks.score(judged, state.params))

    after, (learned, judged, scores) = jax.lax.scan(one, initial, (data_keys, jnp.arange(times + 1) == times))
    record = Record(initial, now(learned), keys[:-1])
    return Trial(Learned(after, key_agent), record, judged, scores)


class Window(NamedTuple):
    """What an outer rule judges: agents, and the experience that belongs to each."""

    agents: PyTree  # [M, ...]
    judged: Experience  # [M, ...]


def recorded(learner: Learner, outer: UpdateRule, strategy: str = "plain") -> Problem[Trial, Window]:
    """Trials are lived again from their record, as functions of what their agents were born with; a rule's loss judges them.

    Judged is the agent after each of its updates (Antoniou et al. 2019; with one update this is MAML), or the newborn where it
    makes none. Experience is data, as in `discovery/window.py`: so a trial may be learned from more than once.
    """

    def enter(meta_params: PyTree, trial: Trial) -> tuple[PyTree, Trial]:
        initial = init_learner_state(learner, meta_params, trial.life.key)
        return {}, trial._replace(
            life=trial.life._replace(learner_state=initial), record=trial.record._replace(learner_state=initial)
        )

    def live(updates: Updates, rule_params: PyTree, trial: Trial) -> tuple[Trial, Window, Metrics]:
        initial, experience, keys, _ = trial.record
        if not len(keys):
            return trial, Window(jax.tree.map(lambda x: x[None], initial.params), trial.judged), {}

        def one(state: LearnerState, inputs: tuple[Experience, Array]) -> tuple[LearnerState, PyTree]:
            state = updates.one(rule_params, state, *inputs).state
            return state, state.params

        # Not `memory.repeat`: what it saves in short windows is the derivative in the first agent, which is all that counts here.
        after, agents = jax.lax.scan(one, initial, (experience, keys))
        return trial._replace(life=trial.life._replace(learner_state=after)), Window(agents, later(trial.judged)), {}

    def loss(window: Window) -> Array:
        def one(inputs: Window) -> Array:
            taken = read(inputs.agents, inputs.judged).taken
            targets, _, _ = outer.targets({}, {}, Batch(inputs.judged, {}, {}))  # rules without a critic read no predictions
            return mean_loss(taken, outer, {}, targets, inputs.judged)[0]

        return jnp.mean(jax.lax.map(one, window))

    def judge(updates: Updates, rule_params: PyTree, trial: Trial, window: Window) -> tuple[Array, Metrics]:
        return loss(window), {}

    def fitness(trial: Trial, window: Window, metrics: Metrics) -> Array:
        # Not the recorded return: what an agent did is data, so only the loss says whether another agent would do better.
        return -loss(window)

    def end_params(trial: Trial) -> PyTree:
        return trial.life.learner_state.params

    return Problem(enter, live, make_updates(learner, strategy), judge, fitness, end_params)


def lived(learner: Learner, outer: UpdateRule) -> Problem[Trial, Window]:
    """Trials as they were: for an estimator that only asks where they ended."""

    def live(updates: Updates, rule_params: PyTree, trial: Trial) -> tuple[Trial, Window, Metrics]:
        last = jax.tree.map(lambda x: x[None], trial.life.learner_state.params)
        return trial, Window(last, jax.tree.map(lambda x: x[-1:], trial.judged)), {}

    return recorded(learner, outer)._replace(enter=lambda meta_params, trial: ({}, trial), live=live)

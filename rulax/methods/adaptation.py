"""Adaptation to a task, which MAML and Reptile share: an agent starts from the meta-parameters and makes a few updates.

The updates themselves are `learning/update.py`. Experience is recorded, so that `discovery/estimators.py` can differentiate the
same updates again as a function of where they started.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rulax.agents.base import Agent, join, split
from rulax.discovery.window import Record
from rulax.envs.base import Environment, Episode
from rulax.envs.regression import Regression
from rulax.envs.wrappers import TimeLimit, select, streams
from rulax.learning.rollout import act, begin
from rulax.learning.update import Learner, LearnerState, init_learner_state, update
from rulax.rules.regression import PREDICTION, as_experience
from rulax.types import Array, Experience, PyTree, now, starts

# (learner, meta_params, task, key) -> an agent before its first update, with any hyper-parameters of its own. This is where
# meta-parameters that belong to one task (MAESN's latents), or step sizes that are learned, enter.
Init = Callable[[Learner, PyTree, PyTree, Array], LearnerState]


def from_meta_params(learner: Learner, meta_params: PyTree, task: PyTree, key: Array) -> LearnerState:
    """MAML's and Reptile's start: the meta-parameters are the agent, whatever the task."""
    del task
    return init_learner_state(learner, meta_params, key)


class Tasks(NamedTuple):
    """A distribution of tasks, how an agent starts in one of them, and how it collects data there."""

    sample: Callable[[Array], PyTree]  # key -> task
    # (task, agent, key) -> experience for the next update, experience to validate this agent with
    collect: Callable[[PyTree, Agent, Array], tuple[Experience, Experience]]
    score: Callable[[Experience, Agent], Array]  # (validation experience, agent) -> return or error, []
    fresh: bool  # whether every update gets new experience, or all updates the same
    init: Init = from_meta_params  # called in every adaptation, and again where its outer gradient is taken


class RecordedLife(NamedTuple):
    """The part of a `Life` that estimators read, for agents whose experience is recorded elsewhere."""

    learner_state: LearnerState
    key: Array


class Adaptation(NamedTuple):
    """One agent that has adapted to one task by N updates."""

    life: RecordedLife  # after the updates
    record: Record  # of the updates: the agent before them, their experience [N, ...] and their keys [N]
    validation: Experience  # [N+1, ...] of the agent after 0, 1, ... N updates
    scores: Array  # [N+1] of the same agents
    task: PyTree = ()  # as `Tasks.sample` returned it


class MetaState(NamedTuple):
    """What a meta-update changes."""

    meta_params: PyTree  # what `Tasks.init` starts every task with; meta-learned is its trained part (agents/base.py)
    optimiser_state: PyTree  # for that part


def init_meta_state(optimiser: optax.GradientTransformation, meta_params: PyTree) -> MetaState:
    """The state before the first meta-update."""
    return MetaState(meta_params, optimiser.init(split(meta_params)[0]))


def adapt(tasks: Tasks, learner: Learner, meta_params: PyTree, key: Array, updates: int) -> Adaptation:
    """Draw a task and make a number of updates on it, each from experience of the agent as it is by then.

    Args:
        tasks: the distribution of tasks.
        learner: the inner rule and its optimiser.
        meta_params: what to start from, as `tasks.init` reads it. What it carries stays as it is: nothing is written
            (`Agent.written`).
        key: all randomness of the task, the agent and its experience.
        updates: the number N of updates; 0 only validates the initial agent.
    """
    key_task, key_agent, key_data, key_update = jax.random.split(key, 4)
    task = tasks.sample(key_task)
    initial = tasks.init(learner, meta_params, task, key_agent)
    data_keys, update_keys = (jax.random.split(each, updates + 1) for each in (key_data, key_update))
    if not tasks.fresh:
        # One key for all updates draws the same examples for all of them.
        data_keys = jnp.broadcast_to(key_data, data_keys.shape)

    def one(state: LearnerState, inputs: tuple[Array, Array, Array]) -> tuple[LearnerState, tuple[Experience, Experience, Array]]:
        key_collect, key_update, last = inputs
        experience, validation = tasks.collect(task, state.params, key_collect)
        after, _ = update(learner, {}, state, experience, key_update)
        # The last agent is only validated. To discard one update costs less than to compile collection twice.
        return select(last, state, after), (experience, validation, tasks.score(validation, state.params))

    inputs = data_keys, update_keys, jnp.arange(updates + 1) == updates
    after, (experience, validation, scores) = jax.lax.scan(one, initial, inputs)
    # Without the last experience and key, whose update was discarded.
    record = Record(initial, now(experience), now(update_keys))
    return Adaptation(RecordedLife(after, key_agent), record, validation, scores, task)


def adapt_to_tasks(tasks: Tasks, learner: Learner, meta_params: PyTree, key: Array, updates: int, number: int) -> Adaptation:
    """Adapt to `number` tasks independently, all from the same meta-parameters; leaves [number, ...]."""
    keys = jax.random.split(key, number)
    return jax.vmap(lambda key: adapt(tasks, learner, meta_params, key, updates))(keys)


def follow_mean(optimiser: optax.GradientTransformation, state: MetaState, gradients: PyTree) -> tuple[MetaState, PyTree]:
    """One step of the meta-optimiser along the mean of the tasks' gradients [tasks, ...]: the next state, and that mean."""
    mean = jax.tree.map(lambda g: jnp.mean(g, 0), gradients)
    trained, carried = split(state.meta_params)
    change, optimiser_state = optimiser.update(mean, state.optimiser_state, trained)
    return MetaState(join(optax.apply_updates(trained, change), carried), optimiser_state), mean


# -- tasks of an environment ------------------------------------------------------------------------------------------------------


def environment_tasks(environment: Environment, horizon: int, trajectories: int) -> Tasks:
    """The tasks of an environment: one episode of at most `horizon` steps in each of `trajectories` streams.

    An update and the validation of the agent before it use the same episodes: both need trajectories of that very agent.
    """
    limited = streams(TimeLimit(environment, horizon), trajectories)

    def collect(task: PyTree, agent: Agent, key: Array) -> tuple[Experience, Experience]:
        key_start, key_act = jax.random.split(key)
        agent = jax.lax.stop_gradient(agent)  # experience is data: no derivative passes through the environment
        actor = begin(limited, task, agent.initial_memory(trajectories), key_start)
        _, experience, episode = act(limited, agent, actor, horizon, key_act)
        experience = whole_episodes(experience, episode)
        return experience, experience

    return Tasks(environment.sample_task, collect, lambda experience, agent: mean_return(experience), fresh=True)


def whole_episodes(experience: Experience, episode: Episode) -> Experience:
    """Mark the steps of episodes that the batch cuts off as invalid: their return is unknown. MAML's own sampler does the same."""
    # A running maximum from the end: true up to the last episode that ends within the batch.
    ends_later = jax.lax.cummax(episode.ended.astype(jnp.int32), 0, reverse=True) > 0
    return experience._replace(valid=experience.valid & ends_later)


def mean_return(experience: Experience) -> Array:
    """Mean over streams of the *first* episode's return, []. A mean over all episodes would favour short ones."""
    # The first observation of a stream is a start, so its first episode has the count 1.
    first_episode = jnp.cumsum(starts(now(experience.first)), 0) == 1
    return jnp.mean(jnp.sum(jnp.where(first_episode, experience.reward, 0.0), 0))


def mean_return_of_all(experience: Experience) -> Array:
    """Mean over all whole episodes of their return, [], as MAML's own code reports it: the more short ones, the more they count."""
    begun = starts(now(experience.first)) & experience.valid
    return jnp.sum(jnp.where(experience.valid, experience.reward, 0.0)) / jnp.maximum(jnp.sum(begun), 1)


# -- supervised tasks -------------------------------------------------------------------------------------------------------------


def regression_tasks(family: Regression, examples: int, validated: int, fresh: bool = False) -> Tasks:
    """Supervised tasks: `examples` per update, by default the same ones for every update, and `validated` others to validate."""

    def collect(task: PyTree, agent: Agent, key: Array) -> tuple[Experience, Experience]:
        key_learn, key_validate = jax.random.split(key)
        learned, validation = family.examples(task, key_learn, examples), family.examples(task, key_validate, validated)
        return as_experience(*learned), as_experience(*validation)

    return Tasks(family.sample_task, collect, squared_error, fresh)


def squared_error(experience: Experience, agent: Agent) -> Array:
    """Mean squared error of the agent's predictions, []."""
    predicted = agent.predict(agent.embed(experience))[PREDICTION][..., 0]
    return jnp.mean(jnp.square(now(predicted) - experience.reward))

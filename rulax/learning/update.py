"""One update of one agent from one batch of experience: predict, targets, loss, gradient, step.

A rule's targets need the predictions for every action, but its loss touches only the action that was taken. So the embedding of
the observations is computed once and read twice: `predict` for all actions (forward only, feeds the targets) and `predict_taken`
(what the gradient passes through). The backward pass runs over one row per step instead of one per action.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.ad_checkpoint import checkpoint_name

from rulax.agents.base import Agent, join, split
from rulax.rules.base import UpdateRule
from rulax.types import Array, Batch, Experience, Metrics, Predictions, PyTree, now

INNER_GRADIENT = "inner gradient"  # by this name discovery/memory.py can keep it and forget the rest


class Learner(NamedTuple):
    """What stays fixed over an agent's life: the rule, and how its gradient becomes steps."""

    rule: UpdateRule
    optimiser: optax.GradientTransformation
    epochs: int = 1
    minibatches: int = 1
    slow_decay: float = 0.9
    reward_scale: float = 1.0
    gradient: Callable | None = None  # another way to compute `gradient`; discovery/memory.py has one that stores less


class LearnerState(NamedTuple):
    """One agent in the middle of its life: everything that an update changes."""

    params: Agent  # the agent itself, what it carries included (agents/base.py)
    slow: Agent  # slowly moving copy of its trained part; None in the place of what is carried, see `slow_agent`
    optimiser_state: PyTree  # for the trained part
    rule_state: PyTree  # the rule's memory over this lifetime
    updates: Array  # [] how many updates it has made


class Reading(NamedTuple):
    """The agent's predictions at the taken actions, and the way from their gradient back to the parameters."""

    taken: Predictions  # [T, B, ...]
    pull_back: Callable[[Predictions], tuple[PyTree]]  # a gradient like `taken` -> one like the agent's trained part
    embedding: PyTree  # what `Agent.embed` returned, leaves [T+1, B, ...]
    params: Agent


def init_learner_state(learner: Learner, params: Agent, key: Array) -> LearnerState:
    """The state of an agent before its first update; its slow copy equals itself."""
    trained, _ = split(params)
    copy = jax.tree.map(jnp.copy, trained)  # a copy, because donated buffers may not be shared
    return LearnerState(params, copy, learner.optimiser.init(trained), learner.rule.start(key), jnp.zeros((), jnp.int32))


def slow_agent(state: LearnerState) -> Agent:
    """The slow copy as an agent: trained arrays move slowly, what is carried is the agent's own as it is now."""
    return join(state.slow, split(state.params)[1])


def update(
    learner: Learner, rule_params: PyTree, state: LearnerState, experience: Experience, key: Array
) -> tuple[LearnerState, Metrics]:
    """One update: targets once, then one gradient step, or `epochs` x `minibatches` of them with the same targets.

    Args:
        learner: the rule, the optimiser and their settings.
        rule_params: parameters of the rule.
        state: the agent before the update.
        experience: the batch [T, B].
        key: randomness for the order of minibatches.

    Returns:
        The agent after the update, and metrics [].
    """
    if learner.reward_scale != 1:
        experience = experience._replace(reward=experience.reward * learner.reward_scale)
    reading = read(state.params, experience)
    copy = slow_agent(state)
    slow = copy.predict(copy.embed(experience))
    batch = Batch(experience, state.params.predict(reading.embedding), slow)
    targets, rule_state, metrics = learner.rule.targets(rule_params, state.rule_state, batch)
    trained, carried = split(state.params)
    mixed = jax.tree.map(lambda old, new: learner.slow_decay * old + (1 - learner.slow_decay) * new, state.slow, trained)
    if learner.epochs * learner.minibatches == 1:
        grads, loss_metrics = (learner.gradient or gradient)(learner.rule, reading, targets, experience)
        grads = checkpoint_name(grads, INNER_GRADIENT)
        trained, optimiser_state = step(learner, trained, state.optimiser_state, grads)
    else:
        trained, optimiser_state, loss_metrics = passes(learner, state, targets, experience, key)
    state = LearnerState(join(trained, carried), mixed, optimiser_state, rule_state, state.updates + 1)
    return state, metrics | loss_metrics


def read(params: Agent, experience: Experience) -> Reading:
    """Predict at the actions of experience [T, B], keeping the way back to the agent's trained part."""
    trained, carried = split(params)
    taken, pull_back, embedding = jax.vjp(
        lambda trained: taken_and_embedding(join(trained, carried), experience), trained, has_aux=True
    )
    return Reading(taken, pull_back, embedding, params)


def taken_and_embedding(params: Agent, experience: Experience) -> tuple[Predictions, PyTree]:
    """The predictions that the loss touches [T, B, ...], and the embedding [T+1, B, ...] that they are computed from."""
    embedding = params.embed(experience)
    return params.predict_taken(now(embedding), experience.action), embedding


def gradient(rule: UpdateRule, reading: Reading, targets: PyTree, experience: Experience) -> tuple[PyTree, Metrics]:
    """Gradient of the mean loss over valid steps: first with respect to the taken predictions, then pulled back."""
    slopes, metrics = jax.grad(mean_loss, has_aux=True)(reading.taken, rule, targets, experience)
    (grads,) = reading.pull_back(slopes)
    return grads, metrics | {"gradient_norm": optax.global_norm(grads)}


def mean_loss(taken: Predictions, rule: UpdateRule, targets: PyTree, experience: Experience) -> tuple[Array, Metrics]:
    """The rule's loss, averaged over valid steps."""
    loss, metrics = rule.loss(taken, targets, experience)
    # A choice, not a product: an invalid step may hold anything, even a NaN.
    total = jnp.sum(jnp.where(experience.valid, loss, 0))
    mean = total / (jnp.sum(experience.valid).astype(loss.dtype) + 1e-8)
    return mean, metrics | {"loss": mean}


def step(learner: Learner, trained: PyTree, optimiser_state: PyTree, grads: PyTree) -> tuple[PyTree, PyTree]:
    """Apply one gradient to the trained part of an agent: that part and the optimiser's state after it."""
    updates, optimiser_state = learner.optimiser.update(grads, optimiser_state, trained)
    return optax.apply_updates(trained, updates), optimiser_state


def passes(
    learner: Learner, state: LearnerState, targets: PyTree, experience: Experience, key: Array
) -> tuple[PyTree, PyTree, Metrics]:
    """Several gradient steps on one batch, each on a random subset of its streams (so that memory stays in order).

    Returns the trained part of the agent, the optimiser's state, and means of the metrics.
    """
    carried = split(state.params)[1]
    streams = experience.action.shape[1]
    size = streams // learner.minibatches
    orders = jax.vmap(lambda k: jax.random.permutation(k, streams))(jax.random.split(key, learner.epochs))
    subsets = orders.reshape(learner.epochs * learner.minibatches, size)

    def one_pass(carry: tuple[PyTree, PyTree], subset: Array) -> tuple[tuple[PyTree, PyTree], Metrics]:
        trained, optimiser_state = carry
        part = take_streams(experience, subset)
        part_targets = jax.tree.map(lambda x: jnp.take(x, subset, axis=1), targets)
        grads, metrics = gradient(learner.rule, read(join(trained, carried), part), part_targets, part)
        return step(learner, trained, optimiser_state, grads), metrics

    (trained, optimiser_state), metrics = jax.lax.scan(one_pass, (split(state.params)[0], state.optimiser_state), subsets)
    return trained, optimiser_state, jax.tree.map(jnp.mean, metrics)


def take_streams(experience: Experience, index: Array) -> Experience:
    """The experience of the streams with these numbers [M], in this order."""
    parts = jax.tree.map(lambda x: jnp.take(x, index, axis=1), experience._replace(memory=()))
    return parts._replace(memory=jax.tree.map(lambda x: jnp.take(x, index, axis=0), experience.memory))

"""One update of one agent from one batch of experience: predictions, targets, loss, gradient, step.

A rule's targets need the predictions for every action, but its loss touches only the action taken. So the embedding of the
observations is computed once and read twice: by `predict` for all actions (forward only, for the targets) and by `predict_taken`
(what the gradient passes through). The backward pass then runs over one row per step instead of one per action.

An update has two halves. `make_targets` asks the rule what the predictions should become; `follow_targets` takes the gradient
steps. `update` is one after the other; discovery calls the halves itself, because it also penalises targets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from jax.ad_checkpoint import checkpoint_name

from rulax.rules.base import UpdateRule
from rulax.types import Array, Batch, Experience, LearnerState, Metrics, Predictions, PyTree, now

INNER_GRADIENT = "inner gradient"  # the name under which rematerialisation (discovery/memory.py) saves it


class Reading(NamedTuple):
    """An agent's predictions at the actions taken, and the way from a gradient with respect to them back to its parameters."""

    taken: Predictions  # [T, B, size] each
    pull_back: Callable[[Predictions], tuple[PyTree]]  # the VJP of `taken` as a function of `params`
    embedding: PyTree  # [T+1, B, ...] whatever the agent's `embed` returns: what all its heads read
    params: PyTree  # the agent that made the predictions


class GradientFunction(Protocol):
    """How the gradient of a rule's mean loss is computed: `gradient` below, or a function with another derivative of its own."""

    def __call__(
        self, rule: UpdateRule, rule_params: PyTree, reading: Reading, targets: PyTree, experience: Experience, /
    ) -> tuple[PyTree, Metrics]:
        """The gradient with respect to the agent's parameters, and metrics."""
        ...


class Learner(NamedTuple):
    """What stays fixed over an agent's lifetime: the rule, and how its gradient becomes steps."""

    rule: UpdateRule
    optimiser: optax.GradientTransformation
    epochs: int = 1  # passes over each batch
    minibatches: int = 1  # gradient steps per pass, each on a share of the streams
    slow_decay: float = 0.9  # of the slow copy, per update
    reward_scale: float = 1.0
    gradient: GradientFunction | None = None  # instead of `gradient`; discovery/memory.py has one that stores less


class Targets(NamedTuple):
    """What the rule wants, computed once per update."""

    experience: Experience  # with scaled rewards
    batch: Batch
    reading: Reading
    targets: PyTree  # [T, B, ...] each
    rule_state: PyTree
    metrics: Metrics


def init_learner_state(learner: Learner, params: PyTree, key: Array) -> LearnerState:
    """The state of a new agent; its slow copy equals the agent."""
    copy = jax.tree.map(jnp.copy, params)  # a copy, because donated buffers may not be shared
    return LearnerState(params, copy, learner.optimiser.init(params), learner.rule.start(key), jnp.zeros((), jnp.int32))


def update(
    learner: Learner, rule_params: PyTree, state: LearnerState, experience: Experience, key: Array
) -> tuple[LearnerState, Metrics]:
    """One update of one agent.

    Args:
        learner: the rule and how its gradient becomes steps.
        rule_params: the rule's parameters, {} for a hand-designed rule.
        state: the agent before the update.
        experience: what it learns from, [T, B, ...].
        key: randomness of minibatches; unused if there is one gradient step per update.
    """
    made = make_targets(learner, rule_params, state, experience)
    return follow_targets(learner, rule_params, state, made, key)


def make_targets(learner: Learner, rule_params: PyTree, state: LearnerState, experience: Experience) -> Targets:
    """The first half of an update: read the experience and compute the rule's targets."""
    if learner.reward_scale != 1:
        experience = experience._replace(reward=experience.reward * learner.reward_scale)
    reading = read(state.params, experience)
    slow = state.slow.predict(state.slow.embed(experience))
    batch = Batch(experience, state.params.predict(reading.embedding), slow)
    targets, rule_state, metrics = learner.rule.targets(rule_params, state.rule_state, batch)
    return Targets(experience, batch, reading, targets, rule_state, metrics)


def follow_targets(
    learner: Learner, rule_params: PyTree, state: LearnerState, made: Targets, key: Array
) -> tuple[LearnerState, Metrics]:
    """The second half: one gradient step, or `epochs` x `minibatches` of them, all with the same targets."""
    mixed = jax.tree.map(lambda old, new: learner.slow_decay * old + (1 - learner.slow_decay) * new, state.slow, state.params)
    if learner.epochs * learner.minibatches == 1:
        compute = learner.gradient or gradient
        grads, loss_metrics = compute(learner.rule, rule_params, made.reading, made.targets, made.experience)
        grads = checkpoint_name(grads, INNER_GRADIENT)
        params, optimiser_state = step(learner, state.params, state.optimiser_state, grads)
    else:
        params, optimiser_state, loss_metrics = passes(learner, rule_params, state, made.targets, made.experience, key)
    state = LearnerState(params, mixed, optimiser_state, made.rule_state, state.updates + 1)
    return state, made.metrics | loss_metrics


def read(params: PyTree, experience: Experience) -> Reading:
    """Predict at the actions taken, keeping the way back to the parameters."""
    taken, pull_back, embedding = jax.vjp(lambda params: taken_and_embedding(params, experience), params, has_aux=True)
    return Reading(taken, pull_back, embedding, params)


def taken_and_embedding(params: PyTree, experience: Experience) -> tuple[Predictions, PyTree]:
    """The predictions that the loss touches, and the embedding of all T + 1 observations that they are read from."""
    embedding = params.embed(experience)
    return params.predict_taken(now(embedding), experience.action), embedding


def gradient(
    rule: UpdateRule, rule_params: PyTree, reading: Reading, targets: PyTree, experience: Experience
) -> tuple[PyTree, Metrics]:
    """Gradient of the mean loss: with respect to the taken predictions, which is cheap, then pulled back to the parameters."""
    slopes, metrics = jax.grad(mean_loss, has_aux=True)(reading.taken, rule, rule_params, targets, experience)
    (grads,) = reading.pull_back(slopes)
    return grads, metrics | {"gradient_norm": optax.global_norm(grads)}


def mean_loss(
    taken: Predictions, rule: UpdateRule, rule_params: PyTree, targets: PyTree, experience: Experience
) -> tuple[Array, Metrics]:
    """The rule's loss, averaged over valid steps: a scalar, and metrics."""
    loss, metrics = rule.loss(rule_params, taken, targets, experience)
    # `where` rather than a product with the mask: an invalid step may hold a NaN.
    total = jnp.sum(jnp.where(experience.valid, loss, 0))
    mean = total / (jnp.sum(experience.valid).astype(loss.dtype) + 1e-8)
    return mean, metrics | {"loss": mean}


def step(learner: Learner, params: PyTree, optimiser_state: PyTree, grads: PyTree) -> tuple[PyTree, PyTree]:
    """Apply one gradient."""
    updates, optimiser_state = learner.optimiser.update(grads, optimiser_state, params)
    return optax.apply_updates(params, updates), optimiser_state


def passes(
    learner: Learner, rule_params: PyTree, state: LearnerState, targets: PyTree, experience: Experience, key: Array
) -> tuple[PyTree, PyTree, Metrics]:
    """Several gradient steps on one batch, each on a random subset of whole streams, so that recurrent agents read them in order.

    Returns the parameters, the optimiser's state, and metrics averaged over the steps.
    """
    streams = experience.action.shape[1]
    size = streams // learner.minibatches
    orders = jax.vmap(lambda k: jax.random.permutation(k, streams))(jax.random.split(key, learner.epochs))
    subsets = orders.reshape(learner.epochs * learner.minibatches, size)

    def one_pass(carry: tuple[PyTree, PyTree], subset: Array) -> tuple[tuple[PyTree, PyTree], Metrics]:
        params, optimiser_state = carry
        part = take_streams(experience, subset)
        part_targets = jax.tree.map(lambda x: jnp.take(x, subset, axis=1), targets)
        grads, metrics = gradient(learner.rule, rule_params, read(params, part), part_targets, part)
        return step(learner, params, optimiser_state, grads), metrics

    (params, optimiser_state), metrics = jax.lax.scan(one_pass, (state.params, state.optimiser_state), subsets)
    return params, optimiser_state, jax.tree.map(jnp.mean, metrics)


def take_streams(experience: Experience, index: Array) -> Experience:
    """The experience of some streams only."""
    parts = jax.tree.map(lambda x: jnp.take(x, index, axis=1), experience._replace(memory=()))
    return parts._replace(memory=jax.tree.map(lambda x: jnp.take(x, index, axis=0), experience.memory))

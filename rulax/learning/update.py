"""Turns one batch of experience into the next parameters of one agent: predict, targets, loss, gradient, step.

A rule's targets need the predictions for every action, but its loss touches only the action that was taken. So the embedding of
the observations is computed once and read twice: `predict` for all actions (forward only, feeds the targets) and `predict_taken`
(what the gradient passes through). The backward pass runs over one row per step instead of one per action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.ad_checkpoint import checkpoint_name

from rulax.rules.base import UpdateRule
from rulax.types import NOTHING_OWN, Array, Batch, Experience, LearnerState, Metrics, Predictions, PyTree, now

INNER_GRADIENT = "inner gradient"  # by this name discovery/memory.py can keep it and forget the rest


class Learner(NamedTuple):
    """What stays fixed over an agent's life: the rule, and how its gradient becomes steps."""

    rule: UpdateRule
    optimiser: optax.GradientTransformation | optax.GradientTransformationExtraArgs
    epochs: int = 1
    minibatches: int = 1
    slow_decay: float = 0.9
    reward_scale: float = 1.0
    gradient: Callable | None = None  # another way to compute `gradient`; discovery/memory.py has one that stores less


class Reading(NamedTuple):
    """The agent's predictions at the taken actions, and the way from their gradient back to the parameters."""

    taken: Predictions  # [T, B, ...]
    pull_back: Callable[[Predictions], tuple[PyTree]]
    embedding: Array  # [T+1, B, D]
    params: PyTree


def init_learner_state(
    learner: Learner, params: PyTree, key: Array, hyperparameters: Mapping[str, Array] = NOTHING_OWN
) -> LearnerState:
    """An agent before its first update: its slow copy is itself.

    Args:
        learner: if the agent has hyper-parameters of its own, one that was made for their names (`life.make_learner`).
        params: the agent.
        key: for the rule's state.
        hyperparameters: what this agent has of its own, [] each.
    """
    copy = jax.tree.map(jnp.copy, params)  # a copy, because donated buffers may not be shared
    optimiser_state, rule_state = learner.optimiser.init(params), learner.rule.start(key)
    return LearnerState(params, copy, optimiser_state, rule_state, jnp.zeros((), jnp.int32), dict(hyperparameters))


def update(
    learner: Learner, rule_params: PyTree, state: LearnerState, experience: Experience, key: Array
) -> tuple[LearnerState, Metrics]:
    """One update: targets once, then one gradient step, or `epochs` x `minibatches` of them with the same targets."""
    own = state.hyperparameters
    if "reward_scale" in own or learner.reward_scale != 1:
        experience = experience._replace(reward=experience.reward * own.get("reward_scale", learner.reward_scale))
    reading = read(state.params, experience)
    slow = state.slow.predict(state.slow.embed(experience))
    batch = Batch(experience, state.params.predict(reading.embedding), slow)
    targets, rule_state, metrics = learner.rule.targets(rule_params, state.rule_state, batch)
    decay = own.get("slow_decay", learner.slow_decay)
    mixed = jax.tree.map(lambda old, new: decay * old + (1 - decay) * new, state.slow, state.params)
    if learner.epochs * learner.minibatches == 1:
        grads, loss_metrics = (learner.gradient or gradient)(learner.rule, reading, targets, experience)
        grads = checkpoint_name(grads, INNER_GRADIENT)
        params, optimiser_state = step(learner, state.params, state.optimiser_state, grads, own)
    else:
        params, optimiser_state, loss_metrics = passes(learner, state, targets, experience, key)
    state = LearnerState(params, mixed, optimiser_state, rule_state, state.updates + 1, own)
    return state, metrics | loss_metrics


def read(params: PyTree, experience: Experience) -> Reading:
    """Read the experience once, keeping the way back."""
    taken, pull_back, embedding = jax.vjp(lambda params: taken_and_embedding(params, experience), params, has_aux=True)
    return Reading(taken, pull_back, embedding, params)


def taken_and_embedding(params: PyTree, experience: Experience) -> tuple[Predictions, Array]:
    """The predictions that the loss touches, and what they are read from."""
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


def step(
    learner: Learner, params: PyTree, optimiser_state: PyTree, grads: PyTree, own: Mapping[str, Array]
) -> tuple[PyTree, PyTree]:
    """Apply one gradient, with the agent's own hyper-parameters if it has any."""
    extra = {"hyperparameters": own} if own else {}
    updates, optimiser_state = learner.optimiser.update(grads, optimiser_state, params, **extra)
    return optax.apply_updates(params, updates), optimiser_state


def passes(
    learner: Learner, state: LearnerState, targets: PyTree, experience: Experience, key: Array
) -> tuple[PyTree, PyTree, Metrics]:
    """Several gradient steps on one batch, each on a random subset of its streams (so that memory stays in order)."""
    streams = experience.action.shape[1]
    size = streams // learner.minibatches
    orders = jax.vmap(lambda k: jax.random.permutation(k, streams))(jax.random.split(key, learner.epochs))
    subsets = orders.reshape(learner.epochs * learner.minibatches, size)

    def one_pass(carry: tuple[PyTree, PyTree], subset: Array) -> tuple[tuple[PyTree, PyTree], Metrics]:
        params, optimiser_state = carry
        part = take_streams(experience, subset)
        part_targets = jax.tree.map(lambda x: jnp.take(x, subset, axis=1), targets)
        grads, metrics = gradient(learner.rule, read(params, part), part_targets, part)
        return step(learner, params, optimiser_state, grads, state.hyperparameters), metrics

    (params, optimiser_state), metrics = jax.lax.scan(one_pass, (state.params, state.optimiser_state), subsets)
    return params, optimiser_state, jax.tree.map(jnp.mean, metrics)


def take_streams(experience: Experience, index: Array) -> Experience:
    """The experience of some streams only."""
    parts = jax.tree.map(lambda x: jnp.take(x, index, axis=1), experience._replace(memory=()))
    return parts._replace(memory=jax.tree.map(lambda x: jnp.take(x, index, axis=0), experience.memory))

"""One update of one agent from one batch of experience: predictions, targets, loss, gradient, step.

A rule's targets need the predictions for every action, but its loss touches only the action taken. So the embedding of the
observations is computed once and read twice: by `predict` for all actions (forward only, for the targets) and by `predict_taken`
(what the gradient passes through). The backward pass then runs over one row per step instead of one per action.

An update has two halves. `make_targets` asks the rule what the predictions should become; `follow_targets` takes the gradient
steps. `update` is one after the other; discovery calls the halves itself, because it also penalises targets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from jax.ad_checkpoint import checkpoint_name

from rulax.agents.base import Agent, join, split
from rulax.rules.base import UpdateRule
from rulax.types import Array, Batch, Experience, Metrics, Predictions, PyTree, now

NOTHING_OWN: dict[str, Array] = {}  # every hyper-parameter is the one that all agents share
INNER_GRADIENT = "inner gradient"  # the name under which rematerialisation (discovery/memory.py) saves it


class LearnerState(NamedTuple):
    """One agent in the middle of its life: everything that an update changes."""

    params: Agent  # the agent itself, what it carries included (agents/base.py)
    slow: Agent  # slowly moving copy of its trained part; None in the place of what is carried, see `slow_agent`
    optimiser_state: PyTree  # for the trained part
    rule_state: PyTree  # the rule's memory over this lifetime
    updates: Array  # [] how many updates it has made
    # Those that this agent has of its own, see learning/members.py: [] each, or any tree that an optimiser of one's own reads.
    hyperparameters: dict[str, PyTree] = NOTHING_OWN


class Reading(NamedTuple):
    """An agent's predictions at the actions taken, and the way from a gradient with respect to them back to its parameters."""

    taken: Predictions  # [T, B, size] each
    pull_back: Callable[[Predictions], tuple[PyTree]]  # the VJP of `taken` as a function of the agent's trained part
    embedding: PyTree  # [T+1, B, ...] whatever the agent's `embed` returns: what all its heads read
    params: Agent  # the agent that made the predictions


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
    optimiser: optax.GradientTransformation | optax.GradientTransformationExtraArgs
    epochs: int = 1  # passes over each batch
    minibatches: int = 1  # gradient steps per pass, each on a share of the batch
    shuffle: str = "streams"  # what is shared out: whole streams, or single steps
    slow_decay: float = 0.9  # of the slow copy, each time it moves
    slow_period: int = 0  # updates between two moves; 0 and 1 mean one at every update
    reward_scale: float = 1.0
    prioritised: bool = False  # whether the rule is asked for priorities (learning/priorities.py)
    own: tuple[str, ...] = ()  # names of the hyper-parameters that each agent has of its own
    gradient: GradientFunction | None = None  # instead of `gradient`; discovery/memory.py has one that stores less


class Targets(NamedTuple):
    """What the rule wants, computed once per update."""

    experience: Experience  # with scaled rewards
    batch: Batch
    reading: Reading
    targets: PyTree  # [T, B, ...] each
    rule_state: PyTree
    metrics: Metrics


def init_learner_state(
    learner: Learner, params: Agent, key: Array, hyperparameters: Mapping[str, PyTree] = NOTHING_OWN
) -> LearnerState:
    """An agent before its first update: its slow copy is itself.

    Args:
        learner: if the agent has hyper-parameters of its own, one that was made for their names (`life.make_learner`).
        params: the agent.
        key: for the rule's state.
        hyperparameters: what this agent has of its own: [] each, or any tree that an optimiser of one's own reads.
    """
    if set(hyperparameters) != set(learner.own):
        # The optimiser would ignore them without a word.
        raise ValueError(f"the learner was made for the hyper-parameters {sorted(learner.own)}, not {sorted(hyperparameters)}")
    trained, _ = split(params)
    copy = jax.tree.map(jnp.copy, trained)  # a copy, because donated buffers may not be shared
    optimiser_state, rule_state = learner.optimiser.init(trained), learner.rule.start(key)
    return LearnerState(params, copy, optimiser_state, rule_state, jnp.zeros((), jnp.int32), dict(hyperparameters))


def slow_agent(state: LearnerState) -> Agent:
    """The slow copy as an agent: trained arrays move slowly, what is carried is the agent's own as it is now."""
    return join(state.slow, split(state.params)[1])


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
    """The first half of an update: read the experience and compute the rule's targets.

    Args:
        learner: the rule and how its gradient becomes steps.
        rule_params: the rule's parameters, {} for a hand-designed rule.
        state: the agent before the update.
        experience: what it learns from, [T, B, ...].
    """
    own = state.hyperparameters
    # A scale of 1 is left out of the program. An agent's own is an array whose value the program does not know.
    if "reward_scale" in own or learner.reward_scale != 1:
        experience = experience._replace(reward=experience.reward * own.get("reward_scale", learner.reward_scale))
    reading = read(state.params, experience)
    copy = slow_agent(state)
    slow = copy.predict(copy.embed(experience))
    batch = Batch(experience, state.params.predict(reading.embedding), slow)
    targets, rule_state, metrics = learner.rule.targets(rule_params, state.rule_state, batch)
    return Targets(experience, batch, reading, targets, rule_state, metrics)


def follow_targets(
    learner: Learner, rule_params: PyTree, state: LearnerState, made: Targets, key: Array
) -> tuple[LearnerState, Metrics]:
    """The second half: one gradient step, or `epochs` x `minibatches` of them, all with the same targets.

    Args:
        learner: the rule and how its gradient becomes steps.
        rule_params: the rule's parameters, {} for a hand-designed rule.
        state: the agent before the update.
        made: what `make_targets` made of the same state.
        key: randomness of minibatches; unused if there is one gradient step per update.
    """
    trained, carried = split(state.params)
    own = state.hyperparameters
    decay = own.get("slow_decay", learner.slow_decay)
    # From the parameters before this step: the slow copy of the next update holds nothing of what this one changes.
    mixed = jax.tree.map(lambda old, new: decay * old + (1 - decay) * new, state.slow, trained)
    if learner.slow_period > 1:
        due = state.updates % learner.slow_period == 0
        mixed = jax.tree.map(lambda old, new: jnp.where(due, new, old), state.slow, mixed)
    # With one gradient step the loss is taken at the parameters that made the targets, so that forward pass is used again. In
    # `passes` it is stale from the second step on, and each subset of the streams is read anew.
    if learner.epochs * learner.minibatches == 1:
        compute = learner.gradient or gradient
        grads, loss_metrics = compute(learner.rule, rule_params, made.reading, made.targets, made.experience)
        grads = checkpoint_name(grads, INNER_GRADIENT)
        trained, optimiser_state = step(learner, trained, state.optimiser_state, grads, own)
    else:
        trained, optimiser_state, loss_metrics = passes(learner, rule_params, state, made.targets, made.experience, key)
    state = LearnerState(join(trained, carried), mixed, optimiser_state, made.rule_state, state.updates + 1, own)
    return state, made.metrics | loss_metrics


def read(params: Agent, experience: Experience) -> Reading:
    """Predict at the actions of experience [T, B], keeping the way back to the agent's trained part."""
    trained, carried = split(params)
    # The embedding is auxiliary: the targets made from it are constants to the inner gradient, and the loss touches only `taken`.
    taken, pull_back, embedding = jax.vjp(
        lambda trained: taken_and_embedding(join(trained, carried), experience), trained, has_aux=True
    )
    return Reading(taken, pull_back, embedding, params)


def taken_and_embedding(params: Agent, experience: Experience) -> tuple[Predictions, PyTree]:
    """The predictions that the loss touches [T, B, ...], and the embedding [T+1, B, ...] that they are computed from."""
    embedding = params.embed(experience)
    # No action follows the last observation; only the targets read it, to bootstrap.
    return params.predict_taken(now(embedding), experience.action), embedding


def gradient(
    rule: UpdateRule, rule_params: PyTree, reading: Reading, targets: PyTree, experience: Experience
) -> tuple[PyTree, Metrics]:
    """Gradient of the mean loss: with respect to the taken predictions, which is cheap, then pulled back to the parameters.

    Args:
        rule: whose loss is differentiated.
        rule_params: the rule's parameters, {} for a hand-designed rule.
        reading: the agent's predictions at the actions taken, and the way back to its parameters.
        targets: the rule's, leaves [T, B, ...].
        experience: what the agent has read, [T, B, ...].
    """
    # Not one `grad` through the whole network: `read` has already run forwards when the targets were made.
    slopes, metrics = jax.grad(mean_loss, has_aux=True)(reading.taken, rule, rule_params, targets, experience)
    (grads,) = reading.pull_back(slopes)
    return grads, metrics | {"gradient_norm": optax.global_norm(grads)}


def mean_loss(
    taken: Predictions, rule: UpdateRule, rule_params: PyTree, targets: PyTree, experience: Experience
) -> tuple[Array, Metrics]:
    """The rule's loss, averaged over valid steps: a scalar, and metrics.

    The only place where weights of experience count: they multiply the loss of a step, whatever the rule.

    Args:
        taken: the agent's predictions at the actions taken, [T, B, size] each.
        rule: whose loss it is.
        rule_params: the rule's parameters, {} for a hand-designed rule.
        targets: the rule's, leaves [T, B, ...].
        experience: [T, B, ...]; its `valid` says which steps count.
    """
    loss, metrics = rule.loss(rule_params, taken, targets, experience)
    if experience.weight is not None:
        loss = loss * experience.weight
    # `where` rather than a product with the mask: an invalid step may hold a NaN.
    total = jnp.sum(jnp.where(experience.valid, loss, 0))
    # The small number makes the mean 0, not NaN, where no step is valid.
    mean = total / (jnp.sum(experience.valid).astype(loss.dtype) + 1e-8)
    return mean, metrics | {"loss": mean}


def step(
    learner: Learner, trained: PyTree, optimiser_state: PyTree, grads: PyTree, own: Mapping[str, Array]
) -> tuple[PyTree, PyTree]:
    """Apply one gradient to the trained part of an agent, with the agent's own hyper-parameters if it has any.

    Returns that part and the optimiser's state after it.

    Args:
        learner: its optimiser makes the step.
        trained: the trained part of the agent.
        optimiser_state: the optimiser's state before the step.
        grads: the gradient, with the structure of `trained`.
        own: the agent's own hyper-parameters by name, [] each; {} if it has none.
    """
    # Optimisers of optax that take no extra arguments would refuse the keyword.
    extra = {"hyperparameters": own} if own else {}
    updates, optimiser_state = learner.optimiser.update(grads, optimiser_state, trained, **extra)
    return optax.apply_updates(trained, updates), optimiser_state


def passes(
    learner: Learner, rule_params: PyTree, state: LearnerState, targets: PyTree, experience: Experience, key: Array
) -> tuple[PyTree, PyTree, Metrics]:
    """Several gradient steps on one batch, each on a random subset of whole streams, so that recurrent agents read them in order;
    or of single steps, if the learner shuffles those.

    Returns the trained part of the agent, the optimiser's state, and metrics averaged over the steps.

    Args:
        learner: the rule and how its gradient becomes steps.
        rule_params: the rule's parameters, {} for a hand-designed rule.
        state: the agent before the update.
        targets: the rule's, leaves [T, B, ...].
        experience: what they were made from, [T, B, ...].
        key: randomness of the subsets.
    """
    carried = split(state.params)[1]
    if learner.shuffle == "steps":
        experience, targets = single_steps(experience), jax.tree.map(joined, targets)
    streams = experience.action.shape[1]
    size = streams // learner.minibatches
    # One permutation per epoch, cut into minibatches: every stream is used exactly once per epoch.
    orders = jax.vmap(lambda k: jax.random.permutation(k, streams))(jax.random.split(key, learner.epochs))
    subsets = orders.reshape(learner.epochs * learner.minibatches, size)

    def one_pass(carry: tuple[PyTree, PyTree], subset: Array) -> tuple[tuple[PyTree, PyTree], Metrics]:
        trained, optimiser_state = carry
        part = take_streams(experience, subset)
        part_targets = jax.tree.map(lambda x: jnp.take(x, subset, axis=1), targets)
        grads, metrics = gradient(learner.rule, rule_params, read(join(trained, carried), part), part_targets, part)
        return step(learner, trained, optimiser_state, grads, state.hyperparameters), metrics

    (trained, optimiser_state), metrics = jax.lax.scan(one_pass, (split(state.params)[0], state.optimiser_state), subsets)
    return trained, optimiser_state, jax.tree.map(jnp.mean, metrics)


def single_steps(experience: Experience) -> Experience:
    """The same steps as T B streams of length 1, for agents without memory."""
    observation, first = jax.tree.map(
        lambda x: jnp.concatenate([joined(x[:-1]), joined(x[1:])]), (experience.observation, experience.first)
    )
    steps = experience._replace(observation=now(experience.observation), first=now(experience.first), memory=())
    return jax.tree.map(joined, steps)._replace(observation=observation, first=first)


def joined(x: Array) -> Array:
    """From [T, B, ...] to [1, T B, ...]."""
    return x.reshape(1, -1, *x.shape[2:])


def take_streams(experience: Experience, index: Array) -> Experience:
    """The experience of the streams with these numbers [M], in this order."""
    # Memory has no time axis, so its streams are axis 0.
    parts = jax.tree.map(lambda x: jnp.take(x, index, axis=1), experience._replace(memory=()))
    return parts._replace(memory=jax.tree.map(lambda x: jnp.take(x, index, axis=0), experience.memory))

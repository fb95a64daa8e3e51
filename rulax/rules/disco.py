"""Discovered rules (DiscoRL): a meta-network outputs what the agent should have predicted, and a KL per prediction teaches it.

Oh et al., "Discovering state-of-the-art reinforcement learning algorithms", Nature 648 (2025). `disco` has a fresh, random
meta-network for discovery to start from; `disco103` has the published one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rulax.metanet.estimates import Estimates, Scales, episode_ends, estimate
from rulax.metanet.features import make_signals
from rulax.metanet.lifetime import start_lifetime
from rulax.metanet.network import MetaNetwork
from rulax.metanet.sizes import Constants, Sizes
from rulax.metanet.two_hot import leaning_value_loss
from rulax.rules.base import UpdateRule
from rulax.rules.dimensions import each_dimension
from rulax.settings import Learning, Network
from rulax.types import Array, Batch, Experience, Head, Metrics, Predictions, PyTree, later, now
from rulax.values.normalisation import masked_mean, start_moments
from rulax.values.policies import entropy, kl
from rulax.values.two_hot import Bins

# Disco103 needs 300 to 700 updates before returns rise, whatever the batch size. So batches are a quarter of those with which the
# reference evaluates it on Catch (the preset reference-catch), half of each is fresh, and the network is smaller: a few minutes on
# two cores. The clip follows Adam, never precedes it. With a learning rate of 1e-3 Catch is not learned in 700 updates.
LEARNING = Learning(
    streams=16,
    unroll=16,
    batch=32,
    replay=0.5,
    capacity=1024,
    warmup=64,
    learning_rate=1e-2,
    clip_update=1.0,
    slow_decay=0.9,
)
NETWORK = Network(torso="auto", hidden=(256, 256), activate_last=False, action_model=64, action_hidden=(64,))


LEARNED = ("policy", "state_prediction", "action_prediction")  # whose targets come from the meta-network
SPREAD = ("state_prediction", "action_prediction", "next_policy")  # predictions, as distributions


class DiscoState(NamedTuple):
    """What a discovered rule remembers over one agent's lifetime."""

    lifetime: PyTree  # `LSTMState`, or () without the lifetime LSTM
    scales: PyTree  # `Scales`, or () without the value head


def disco(sizes: Sizes = Sizes(), constants: Constants = Constants()) -> UpdateRule:
    """A rule whose targets come from a meta-network with random weights, drawn by `init`.

    loss = KL(pi' || pi) + KL(y' || y) + KL(z' || z(a)) + KL(p' || p(a)) + value_cost KL(q' || q(a)), up to a constant

    pi', y' and z' come from the meta-network; p' is the policy one step later, if the episode goes on; q' is the two-hot Retrace
    target. An outer gradient passes from one update to the next through y and z only: policies and values are data.

    Args:
        sizes: of the meta-network, and which of its parts exist.
        constants: hand-chosen numbers: discount, trace and the weights of the loss.
    """
    weights = loss_weights(constants)

    def init(key: Array) -> MetaNetwork:
        return MetaNetwork(key, sizes)

    def start(key: Array) -> DiscoState:
        del key
        scales = Scales(start_moments(), start_moments()) if sizes.value else ()
        return DiscoState(start_lifetime(sizes), scales)

    def targets(network: MetaNetwork, state: DiscoState, batch: Batch) -> tuple[PyTree, DiscoState, Metrics]:
        scales, estimates = estimate(state.scales, batch, sizes, constants) if sizes.value else ((), None)
        lifetime, reading = network.read(make_signals(batch, estimates, sizes.bootstrap), state.lifetime)
        targets = dict(reading.targets)
        if estimates is not None:
            targets["value"] = estimates.target
        if sizes.next_policy:
            # Data, like every policy here: an outer gradient must not reach the policy through the target of p.
            targets["next_policy"] = later(jax.lax.stop_gradient(batch.online["policy"]))
        return targets, DiscoState(lifetime, scales), describe(estimates, targets, batch)

    def loss(network: MetaNetwork, taken: Predictions, targets: PyTree, experience: Experience) -> tuple[Array, Metrics]:
        # The same loss for every discovered rule: all that discovery learns is in the targets.
        del network
        terms = losses(taken, targets, experience, sizes)
        total: Any = sum(weights[name] * term for name, term in terms.items())
        metrics = {f"{name}_loss": term for name, term in terms.items()} | {"entropy": entropy(taken["policy"])}
        metrics |= {f"{name}_entropy": entropy(taken[name]) for name in SPREAD if name in taken}
        return total, {name: masked_mean(metric, experience.valid) for name, metric in metrics.items()}

    return each_dimension(UpdateRule(lambda num_actions: heads(num_actions, sizes), init, start, targets, loss))


def heads(num_actions: int, sizes: Sizes) -> dict[str, Head]:
    """What an agent must predict to learn by a discovered rule of these sizes."""
    found = {"policy": Head(num_actions)}
    if sizes.predictions:
        found["state_prediction"] = Head(sizes.prediction_size)
        found["action_prediction"] = Head(sizes.prediction_size, per_action=True)
    if sizes.next_policy:
        found["next_policy"] = Head(num_actions, per_action=True)
    if sizes.value:
        found["value"] = Head(sizes.bins, per_action=True)
    return found


def loss_weights(constants: Constants) -> dict[str, float]:
    """The weight of each prediction's loss."""
    return {
        "policy": constants.policy_cost,
        "state_prediction": constants.state_prediction_cost,
        "action_prediction": constants.action_prediction_cost,
        "next_policy": constants.next_policy_cost,
        "value": constants.value_cost,
    }


def losses(taken: Predictions, targets: PyTree, experience: Experience, sizes: Sizes) -> dict[str, Array]:
    """The loss of each prediction, [T, B], before its weight."""
    # The value is apart, because its target is a number and not logits.
    terms = {name: kl(targets[name], taken[name]) for name in targets if name != "value"}
    if "next_policy" in terms:
        # The state after the end of an episode belongs to the next one, which this action cannot predict.
        terms["next_policy"] = jnp.where(episode_ends(experience), 0, terms["next_policy"])
    if "value" in targets:
        terms["value"] = leaning_value_loss(taken["value"], targets["value"], Bins(sizes.bins, sizes.largest_value))
    return terms


def describe(estimates: Estimates | None, targets: PyTree, batch: Batch) -> Metrics:
    """Metrics: what the agent expects, how decided its targets are, and where logits drift, which a softmax would not show."""
    shown = {"target_entropy": entropy(targets["policy"])}
    if "next_policy" in targets:
        shown["next_policy_target_entropy"] = entropy(targets["next_policy"])
    for name in (name for name in LEARNED if name in targets):
        shown |= {f"{name}_logit": mean_of(now(batch.online[name])), f"{name}_target_logit": mean_of(targets[name])}
    if estimates is not None:
        shown |= {"advantage": estimates.advantage, "return": estimates.target, "value_error": estimates.error}
        shown |= {"value": mean_of(now(estimates.values)), "normalised_value_error": estimates.normalised_error}
    return {name: masked_mean(metric, batch.experience.valid) for name, metric in shown.items()}


def mean_of(values: Array) -> Array:
    """Means [T, B] over all that follows the first two axes."""
    return jnp.mean(values, range(2, values.ndim))

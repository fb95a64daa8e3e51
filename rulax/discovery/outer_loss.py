"""The loss that a rule is judged by: the policy gradient on validation experience, and regularisers that keep discovery stable.

Every term is a named function whose weight is a field of `Discovery`. `penalties` on a rule's targets are computed in every update
(discovery/memory.py), because targets do not outlive it; the loss gets their means over the window.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rulax.agents import Agent
from rulax.discovery.memory import Penalise, Penalties
from rulax.discovery.settings import Discovery
from rulax.rules.base import UpdateRule
from rulax.types import Array, Batch, Experience, Factored, Metrics, Predictions, PyTree, now
from rulax.values.normalisation import masked_mean
from rulax.values.policies import entropy, kl, log_probability

TARGETS = ("policy", "state_prediction", "action_prediction")  # that a meta-network makes

# -- on the agent after the window -------------------------------------------------------------------------------------------


def policy_gradient_loss(taken: Predictions, experience: Experience, advantage: Array) -> Array:
    """-E[advantage log pi(a)] over valid steps, a scalar; advantages [T, B] are data. Its gradient ascends the return."""
    weight = jax.lax.stop_gradient(advantage)
    return -masked_mean(weight * log_probability(taken["policy"], experience.action), experience.valid)


def policy_entropy(taken: Predictions, experience: Experience) -> Array:
    """Mean entropy of the policy over valid steps, a scalar."""
    return masked_mean(entropy(taken["policy"]), experience.valid)


def prediction_entropy(predictions: Predictions, experience: Experience) -> dict[str, Array]:
    """Mean entropy of y at all T + 1 observations and of z at the actions taken, where the agent predicts them."""
    found = {}
    if "state_prediction" in predictions:
        found["state_prediction"] = jnp.mean(entropy(predictions["state_prediction"]))
    if "action_prediction" in predictions:
        spread = entropy(now(predictions["action_prediction"]))  # [T, B], or [T, B, D] where an action has dimensions
        found["action_prediction"] = masked_mean(jnp.mean(spread, range(2, spread.ndim)), experience.valid)
    return found


# -- on the targets of every update --------------------------------------------------------------------------------------------


def target_kl(targets: PyTree, batch: Batch) -> Array:
    """KL(slow policy || policy target): keeps targets near the slow policy, which is data here and so does not move to them."""
    slow = jax.lax.stop_gradient(now(batch.slow["policy"]))
    target = Factored(targets["policy"]) if isinstance(slow, Factored) else targets["policy"]
    return masked_mean(kl(slow, target), batch.experience.valid)


def target_mean(target: Array) -> Array:
    """Squared mean of a target's logits. A softmax ignores their mean, so nothing else keeps it from drifting."""
    return jnp.square(jnp.mean(target))


def target_squares(targets: PyTree, batch: Batch) -> Penalties:
    """Of a learned policy gradient: mean squares of its weights and of y's target distributions (Oh et al. 2020)."""
    peaked = jnp.sum(jnp.square(jax.nn.softmax(targets["state_prediction"])), -1)
    squares = {"policy_weight_square": jnp.square(targets["policy_weight"]), "state_prediction_square": peaked}
    return {name: masked_mean(square, batch.experience.valid) for name, square in squares.items()}


def keep_kl(first: PyTree, targets: PyTree, batch: Batch) -> Array:
    """KL(first target || target) of π, y and z together, where `first` is what the rule of the start says about the same batch."""
    apart = [kl(jax.lax.stop_gradient(first[name]), targets[name]) for name in TARGETS if name in targets]
    # Where an action has dimensions, each has targets of its own, [T, B, D]; each counts the same.
    return sum((masked_mean(jnp.mean(each, range(2, each.ndim)), batch.experience.valid) for each in apart), jnp.zeros(()))


def make_penalise(settings: Discovery, rule: UpdateRule) -> Penalise:
    """The penalties that the settings ask for: with `keep_cost` also the distance from the rule that discovery started from."""
    if not settings.keep_cost:
        return penalties
    start = rule.init(jax.random.key(0))  # the weights of a file, whatever the key

    def penalise(targets: PyTree, batch: Batch, rule_state: PyTree) -> Penalties:
        # From the same memory of the agent's life: what is compared is the next advice, not two lives.
        first, *_ = rule.targets(start, rule_state, batch)
        return penalties(targets, batch, rule_state) | {"keep_kl": keep_kl(first, targets, batch)}

    return penalise


def penalties(targets: PyTree, batch: Batch, rule_state: PyTree = None) -> Penalties:
    """All penalties on the targets of one update, named scalars; a rule without targets for the policy has none."""
    del rule_state
    if isinstance(targets, dict) and "policy_weight" in targets:
        return target_squares(targets, batch)
    if not isinstance(targets, dict) or "policy" not in targets:
        return {}
    found = {f"{name}_mean": target_mean(targets[name]) for name in TARGETS if name in targets}
    return found | {"target_kl": target_kl(targets, batch)}


# -- together ------------------------------------------------------------------------------------------------------------------


def outer_loss(
    settings: Discovery, agent: Agent, experience: Experience, advantage: Array, penalties: Penalties
) -> tuple[Array, Metrics]:
    """The loss of one window, a scalar, and its parts.

    Args:
        settings: the weights.
        agent: after the window's updates.
        experience: what it did next, [T, B, ...].
        advantage: [T, B], normalised.
        penalties: means over the window's updates.
    """
    predictions = predict_along(agent, experience)
    policy_loss = policy_gradient_loss(now_taken(predictions), experience, advantage)
    policy_spread = policy_entropy(now_taken(predictions), experience)
    spreads = prediction_entropy(predictions, experience)
    drifts = [value for name, value in penalties.items() if name not in ("target_kl", "keep_kl")]
    regulariser = (
        -settings.policy_entropy_cost * policy_spread
        - settings.prediction_entropy_cost * sum(spreads.values())
        + settings.target_mean_cost * sum(drifts)
        + settings.target_kl_cost * penalties.get("target_kl", jnp.zeros(()))
        + settings.keep_cost * penalties.get("keep_kl", jnp.zeros(()))
    )
    metrics = {"policy_loss": policy_loss, "regulariser": regulariser, "policy_entropy": policy_spread}
    metrics |= {f"{name}_entropy": value for name, value in spreads.items()} | penalties
    return policy_loss + regulariser, metrics


def predict_along(agent: Agent, experience: Experience) -> Predictions:
    """The agent's predictions at all T + 1 observations; action heads at the action taken, and at action 0 for the last one."""
    # y is wanted at the last observation, too, where no action was taken. Any action will do there: whatever depends on it is
    # dropped by `now`.
    action = jnp.concatenate([experience.action, jnp.zeros_like(experience.action[:1])])
    return agent.predict_taken(agent.embed(experience), action)


def now_taken(predictions: Predictions) -> Predictions:
    """Of predictions at T + 1 observations, the T at which an action was taken."""
    return {name: now(values) for name, values in predictions.items()}

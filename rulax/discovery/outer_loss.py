"""What a rule is judged by: the policy gradient on validation experience, and penalties that keep discovery stable.

Every term is a named function; its weight is a field of `Discovery`. Penalties on a rule's targets are measured where targets
are made: `with_penalties` wraps the rule, and each update then reports them among its metrics.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rulax.discovery.settings import Discovery
from rulax.rules.base import UpdateRule
from rulax.types import Array, Batch, Experience, Metrics, Predictions, PyTree, now
from rulax.values.normalisation import masked_mean
from rulax.values.policies import entropy, kl, log_probability

PENALTY = "penalty/"


# -- on the agent after the window -------------------------------------------------------------------------------------------


def policy_gradient(taken: Predictions, experience: Experience, advantage: Array) -> Array:
    """-E[A log pi(a)]: its gradient is that of the return (advantages are data)."""
    weight = jax.lax.stop_gradient(advantage)
    return -masked_mean(weight * log_probability(taken["policy"], experience.action), experience.valid)


def policy_entropy(taken: Predictions, experience: Experience) -> Array:
    """Mean entropy of the policy."""
    return masked_mean(entropy(taken["policy"]), experience.valid)


def prediction_entropy(predictions: Predictions, experience: Experience) -> dict[str, Array]:
    """Mean entropy of y at all T + 1 observations and of z at the actions taken, where the agent predicts them."""
    found = {}
    if "state_prediction" in predictions:
        found["state_prediction"] = jnp.mean(entropy(predictions["state_prediction"]))
    if "action_prediction" in predictions:
        found["action_prediction"] = masked_mean(entropy(now(predictions["action_prediction"])), experience.valid)
    return found


# -- on the targets of every update --------------------------------------------------------------------------------------------


def target_kl(targets: PyTree, batch: Batch) -> Array:
    """KL(slow policy || policy target): keeps targets near the slow policy, not the slow policy near its targets."""
    slow = jax.lax.stop_gradient(now(batch.slow["policy"]))
    return masked_mean(kl(slow, targets["policy"]), batch.experience.valid)


def target_mean(target: Array) -> Array:
    """Squared mean of a target's logits; the softmax does not see it, so nothing else would hold it."""
    return jnp.square(jnp.mean(target))


def with_penalties(rule: UpdateRule) -> UpdateRule:
    """The same rule, which also reports the penalties on its targets."""

    def targets(rule_params: PyTree, state: PyTree, batch: Batch) -> tuple[PyTree, PyTree, Metrics]:
        made, state, metrics = rule.targets(rule_params, state, batch)
        return made, state, metrics | {PENALTY + name: value for name, value in penalties(made, batch).items()}

    return rule._replace(targets=targets)


def penalties(targets: PyTree, batch: Batch) -> dict[str, Array]:
    """All penalties on what a meta-network made; a rule without policy targets has none."""
    if not isinstance(targets, dict) or "policy" not in targets:
        return {}
    made = ("policy", "state_prediction", "action_prediction")
    found = {f"{name}_mean": target_mean(targets[name]) for name in made if name in targets}
    return found | {"target_kl": target_kl(targets, batch)}


# -- together ------------------------------------------------------------------------------------------------------------------


def outer_loss(
    settings: Discovery, agent: PyTree, experience: Experience, advantage: Array, penalties: dict[str, Array]
) -> tuple[Array, Metrics]:
    """The loss of one window, and its parts. `penalties` are means over the window's updates."""
    predictions = predict_along(agent, experience)
    policy_loss = policy_gradient(now_taken(predictions), experience, advantage)
    policy_spread = policy_entropy(now_taken(predictions), experience)
    spreads = prediction_entropy(predictions, experience)
    means = [value for name, value in penalties.items() if name.endswith("_mean")]
    regulariser = (
        -settings.policy_entropy_cost * policy_spread
        - settings.prediction_entropy_cost * sum(spreads.values())
        + settings.target_mean_cost * sum(means)
        + settings.target_kl_cost * penalties.get("target_kl", jnp.zeros(()))
    )
    metrics = {"policy_loss": policy_loss, "regulariser": regulariser, "policy_entropy": policy_spread}
    metrics |= {f"{name}_entropy": value for name, value in spreads.items()} | penalties
    return policy_loss + regulariser, metrics


def predict_along(agent: PyTree, experience: Experience) -> Predictions:
    """The agent's predictions at all T + 1 observations, those per action at the action taken (the last one's is arbitrary)."""
    action = jnp.concatenate([experience.action, jnp.zeros_like(experience.action[:1])])
    return agent.predict_taken(agent.embed(experience), action)


def now_taken(predictions: Predictions) -> Predictions:
    """The part of a reading at which an action was taken."""
    return {name: now(values) for name, values in predictions.items()}

"""Case 2: value estimation, transforms, two-hot codes and moving averages."""

import jax
import jax.numpy as jnp

from rulax.discovery.critic import judge_by, squared_loss
from rulax.discovery.settings import Discovery
from rulax.metanet.estimates import Scales, estimate
from rulax.metanet.sizes import Constants, Sizes
from rulax.metanet.two_hot import leaning_two_hot, leaning_value_loss
from rulax.types import Array, Batch
from rulax.values.normalisation import normalise, start_moments, update_moments
from rulax.values.policies import at_action, log_probability
from rulax.values.returns import over_streams, retrace, vtrace
from rulax.values.two_hot import Bins, expected_value, mean_of_bins, sign_log, signed_hyperbolic, signed_parabolic
from tests.parity import arrays
from tests.parity.compare import Line, Recorded

CONSTANTS = {"a": (0.997, 0.95), "b": (0.9, 0.8), "c": (0.99, 1.0)}  # discount and trace of each call
LARGEST = 300.0  # value of the outermost bins, squashed
DUMMIES = (
    r"^out/(estimate_values_\w|gvo_v\w+)/(normalized_)?(qv_adv|q_value|target_q_value|q_target|q_td)$|^out/gvo_q/normalized_td$"
)


def value_estimation(data: Recorded, line: Line) -> None:
    """All of case 2."""
    inputs = {name: jnp.asarray(value) for name, value in arrays.under(data, "in/").items()}
    bins = Bins(data["out/two_hot_linear"].shape[-1], LARGEST)
    steps = {
        "reward": inputs["rewards"][1:],
        "alive": inputs["discounts"][1:].astype(inputs["rewards"].dtype),
        "action": inputs["actions"][:-1],
    }
    policy, behaviour = inputs["pi_logits"][:-1], inputs["mu_logits"][:-1]
    ratios = jnp.exp(log_probability(policy, steps["action"]) - log_probability(behaviour, steps["action"]))
    data.compare(line, {"rho": ratios})
    for call, constants in CONSTANTS.items():
        data.compare(line, by_vtrace(inputs, steps, ratios, *constants), f"out/estimate_values_{call}/")
        data.compare(line, by_retrace(inputs, steps, ratios, *constants), f"out/estimate_q_values_{call}/")
    if "q_logits" in inputs:  # wide arrays are left out of cut files; elsewhere their results would be overlooked, which fails
        data.compare(line, by_estimate(inputs, bins), "out/gvo_q/")
    by_critic(data, inputs, bins, line)
    transforms(data, inputs, bins, line)
    value_losses(data, inputs, bins, line)
    averages(data, inputs, line)
    data.ignore(DUMMIES)
    data.overlooked(line)


def by_vtrace(inputs: dict, steps: dict, ratios: Array, discount: float, trace: float) -> dict[str, Array]:
    values, slow = inputs["values"], inputs["target_values"]
    found = over_streams(vtrace, steps["reward"], discount * steps["alive"], slow, ratios, trace=trace)
    results = {"value": values, "target_value": slow, "rho": ratios, "adv": found.advantages, "value_target": found.targets}
    return results | {"td": found.targets - values[:-1]}


def by_retrace(inputs: dict, steps: dict, ratios: Array, discount: float, trace: float) -> dict[str, Array]:
    values, slow = inputs["values"], inputs["target_values"]
    action_values, slow_actions = inputs["q_values"], inputs["target_q_values"]
    taken = at_action(slow_actions[:-1], steps["action"])
    target = over_streams(retrace, steps["reward"], discount * steps["alive"], slow, taken, ratios, trace=trace)
    results = {"value": values, "target_value": slow, "rho": ratios, "q_value": action_values, "target_q_value": slow_actions}
    return results | from_retrace(target, values, slow, action_values, slow_actions, ratios, steps["action"])


def from_retrace(target, values, slow, action_values, slow_actions, ratios, action) -> dict[str, Array]:
    """Fields that follow from the Retrace target."""
    advantage = target - slow[:-1]
    value_target = slow[:-1] + jnp.minimum(1, ratios) * advantage
    return {
        "q_target": target,
        "adv": advantage,
        "value_target": value_target,
        "td": value_target - values[:-1],
        "q_td": target - at_action(action_values[:-1], action),
        "qv_adv": slow_actions - slow[..., None],
    }


def by_estimate(inputs: dict, bins: Bins) -> dict[str, Array]:
    """The rule's own estimates."""
    experience = arrays.experience(
        {f"in/{n}": inputs[n] for n in ("discounts", "rewards", "actions")} | {"in/behaviour_logits": inputs["mu_logits"]}
    )
    online = {"policy": inputs["pi_logits"], "value": inputs["q_logits"]}
    slow = {"value": inputs["target_q_logits"]}
    sizes, fresh = Sizes(bins=bins.number, largest_value=bins.largest), Scales(start_moments(), start_moments())
    scales, found = estimate(fresh, Batch(experience, online, slow), sizes, Constants())
    slow_value = jnp.sum(jax.nn.softmax(online["policy"]) * found.slow_values, -1)
    action = experience.action
    ratios = jnp.exp(log_probability(online["policy"][:-1], action) - log_probability(experience.behaviour, action))
    derived = from_retrace(found.target, found.value, slow_value, found.values, found.slow_values, ratios, action)
    return {
        "value": found.value,
        "target_value": slow_value,
        "rho": ratios,
        "q_value": found.values,
        "target_q_value": found.slow_values,
        "value_target": derived["value_target"],
        "td": derived["td"],
        "q_target": found.target,
        "adv": found.advantage,
        "normalized_adv": found.normalised_advantage,
        "qv_adv": found.action_advantages,
        "normalized_qv_adv": found.normalised_action_advantages,
        "q_td": found.error,
        "normalized_q_td": found.normalised_error,
    } | both_moments(scales)


def both_moments(moments) -> dict[str, Array]:
    return arrays.named_moments("new_adv_ema", moments[0]) | arrays.named_moments("new_td_ema", moments[1])


def by_critic(data: Recorded, inputs: dict, bins: Bins, line: Line) -> None:
    """State values: two-hot without and with slow values, and the notebook's scalar critic, which reads rewards early."""
    recorded = inputs | {"behaviour_logits": inputs["mu_logits"]}
    early = arrays.early_experience(recorded, "")
    aligned = early._replace(reward=inputs["rewards"][1:], discount=inputs["discounts"][1:].astype(early.discount.dtype))
    scalar = signed_parabolic(inputs["v_scalar_net"][..., 0])
    calls = {"gvo_v_scalar_actor": (scalar, scalar, early, 0.99, 0.96)}
    if "v_logits" in inputs:
        online, slow = expected_value(inputs["v_logits"], bins), expected_value(inputs["target_v_logits"], bins)
        calls["gvo_v_cat"] = (online, online, aligned, 0.997, 0.95)
        calls["gvo_v_cat_target"] = (online, slow, aligned, 0.99, 0.9)
    fresh = (start_moments(), start_moments())
    for name, (value, slow_value, steps, discount, trace) in calls.items():
        settings = Discovery(critic_discount=discount, critic_trace=trace)
        found = judge_by(settings, fresh, slow_value, steps, inputs["pi_logits"][:-1])
        error = found.target - value[:-1]
        errors = update_moments(fresh[1], error)
        results = {"value": value, "target_value": slow_value, "rho": found.ratios, "adv": found.advantage, "td": error}
        results |= {"normalized_adv": found.normalised_advantage, "value_target": found.target}
        results["normalized_td"] = normalise(error, errors, subtract_mean=False)
        data.compare(line, results | both_moments((found.moments[0], errors)), f"out/{name}/")


def transforms(data: Recorded, inputs: dict, bins: Bins, line: Line) -> None:
    results = {
        "signed_hyperbolic": signed_hyperbolic(inputs["grid_wide"]),
        "signed_parabolic": signed_parabolic(inputs["grid"]),
        "signed_logp1": sign_log(inputs["grid_wide"]),
        "two_hot_linear": leaning_two_hot(inputs["grid"], bins),
        "two_hot_of_signed_hyperbolic": leaning_two_hot(signed_hyperbolic(inputs["grid_wide"]), bins),
    }
    if "v_logits" in inputs:
        results["value_logits_to_scalar"] = mean_of_bins(inputs["v_logits"], bins)
        results["values_from_net_cat_nl"] = expected_value(inputs["v_logits"], bins)
    data.compare(line, results)


def value_losses(data: Recorded, inputs: dict, bins: Bins, line: Line) -> None:
    output = inputs["v_scalar_net"][:-1]
    calls = {
        "loss_td_scalar": (lambda x: squared_loss(x[..., 0], output[..., 0] + inputs["td"]), output),
        "loss_target_scalar_nl": (lambda x: squared_loss(x[..., 0], signed_hyperbolic(inputs["value_target"])), output),
    }
    if "v_logits" in inputs:
        logits = inputs["v_logits"][:-1]
        own = expected_value(logits, bins)
        calls["loss_td_cat"] = (lambda x: leaning_value_loss(x, own + inputs["td"], bins), logits)
        calls["loss_target_cat"] = (lambda x: leaning_value_loss(x, inputs["value_target"], bins), logits)
    for name, (loss, at) in calls.items():
        slopes = jax.grad(lambda x, loss=loss: jnp.sum(loss(x)))(at)
        data.compare(line, {name: loss(at), f"{name}_grad_of_sum": slopes})


def averages(data: Recorded, inputs: dict, line: Line) -> None:
    moments = start_moments()
    for index, values in enumerate(inputs["ema_values"]):
        moments = update_moments(moments, values)
        both = {"normalize": True, "normalize_nomean": False}
        results = {name: normalise(inputs["ema_probe"], moments, subtract) for name, subtract in both.items()}
        data.compare(line, results | moments._asdict(), f"out/ema_{index}/")

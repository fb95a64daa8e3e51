"""Tunable constants: the same rule bit for bit while they stay, and differentiable in targets and in the loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.rules.actor_critic import actor_critic
from rulax.rules.policy_gradient import policy_gradient
from rulax.rules.ppo import ppo
from rulax.rules.tunable import constants_of, parameters_of, tunable
from tests.rules.data import make_targets, mean_loss, random_batch, taken_predictions

KEY = jax.random.key(0)
CASES = {
    "in the targets": (actor_critic, {"discount": 0.6, "trace": 0.9}),
    "in both": (actor_critic, {"discount": 0.9, "entropy_cost": 0.3, "value_cost": 0.2}),
    "in the loss alone": (policy_gradient, {"baseline_cost": 0.4, "entropy_cost": 0.2}),
    "of ppo": (ppo, {"discount": 0.8, "trace": 0.7, "clip": 0.25}),
}


@pytest.mark.parametrize("case", CASES)
def test_with_its_constants_fixed_it_is_the_plain_rule_bit_for_bit(case):
    make, start = CASES[case]
    tuned = tunable(make, *start, start=start)
    params = tuned.init(KEY)
    plain = make(**{name: float(value) for name, value in constants_of(params).items()})
    batch = random_batch(plain)
    wanted, wanted_state, _ = plain.targets({}, plain.start(KEY), batch)
    made, state, metrics = tuned.targets(params, tuned.start(KEY), batch)
    assert set(wanted) == set(made)
    for name, target in wanted.items():
        np.testing.assert_array_equal(made[name], target)
    jax.tree.map(np.testing.assert_array_equal, state, wanted_state)
    taken = taken_predictions(plain, batch)
    loss, plain_loss = tuned.loss(params, taken, made, batch.experience)[0], plain.loss({}, taken, wanted, batch.experience)[0]
    np.testing.assert_array_equal(loss, plain_loss)
    for name, value in start.items():
        assert float(metrics[name]) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_every_constant_moves_the_loss_as_much_as_the_plain_rule_says(case):
    make, start = CASES[case]
    tuned = tunable(make, *start, start=start)
    batch = random_batch(tuned)
    taken = {name: value + 0.3 for name, value in taken_predictions(tuned, batch).items()}

    def loss(params):
        made, _, _ = tuned.targets(params, tuned.start(KEY), batch)
        return mean_loss(tuned, taken, made, batch.experience, params)

    slopes = jax.jit(jax.grad(loss))(tuned.init(KEY))

    @jax.jit
    def plain_loss(constants):
        rule = make(**constants)
        return mean_loss(rule, taken, make_targets(rule, batch)[0], batch.experience)

    for name, value in start.items():
        step = 2e-3
        ends = [plain_loss(start | {name: value + side * step}) for side in (1, -1)]
        wanted = float(ends[0] - ends[1]) / (2 * step) * value * (1 - value)  # through the sigmoid
        np.testing.assert_allclose(slopes[name], wanted, rtol=2e-2, atol=2e-4, err_msg=name)
    assert all(abs(float(slope)) > 1e-5 for name, slope in slopes.items() if name != "clip")


def test_constants_cannot_leave_their_interval():
    assert float(constants_of(parameters_of({"discount": 0.6}))["discount"]) == pytest.approx(0.6)
    ends = constants_of({"low": jnp.float32(-1e3), "high": jnp.float32(1e3)})
    assert (float(ends["low"]), float(ends["high"])) == (0.0, 1.0)


def test_a_constant_may_have_another_limit_than_1():
    limits = {"clip_ratio": 2.0}
    tuned, plain = tunable(actor_critic, "clip_ratio", limits=limits), actor_critic(clip_ratio=1.0)
    params, batch = tuned.init(KEY), random_batch(plain)
    made, wanted = tuned.targets(params, tuned.start(KEY), batch)[0], plain.targets({}, plain.start(KEY), batch)[0]
    for name, target in wanted.items():
        np.testing.assert_array_equal(made[name], target)
    assert float(constants_of({"clip_ratio": jnp.float32(1e3)}, limits)["clip_ratio"]) == 2
    agents = np.array([0.5, 1.5])
    found = constants_of(parameters_of({"clip_ratio": agents}, limits), limits)["clip_ratio"]
    np.testing.assert_allclose(found, agents, rtol=1e-6)


@pytest.mark.parametrize(
    ("names", "others", "words"),
    [
        (("gamma",), {}, "no constant 'gamma'"),
        (("bins",), {}, "no constant 'bins'"),
        ((), {}, "name the constants"),
        (("discount", "discount"), {}, "each once"),
        (("clip_ratio",), {}, "cannot begin at 1"),
        (("discount",), {"start": {"trace": 0.5}}, "either tuned or fixed"),
        (("discount",), {"discount": 0.5}, "either tuned or fixed"),
        (("clip_ratio",), {"limits": {"clip_ratio": 0.5}}, "between 0 and 0.5, so it cannot begin at 1"),
        (("discount",), {"limits": {"clip_ratio": 2.0}}, "'clip_ratio' has a limit but is not tuned"),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_one_sentence(names, others, words):
    with pytest.raises(ValueError, match=words):
        tunable(actor_critic, *names, **others)

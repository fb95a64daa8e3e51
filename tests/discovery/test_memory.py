"""The meta-gradient: every memory strategy gives the same, and it is the derivative that finite differences measure."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rulax.discovery.memory import STRATEGIES, make_updates, segment_length
from rulax.discovery.outer_loss import outer_loss, penalties
from rulax.discovery.window import mean_penalties, relive
from rulax.learning.update import make_targets
from rulax.rules.disco import disco
from tests.discovery.environments import (
    ACTIONS,
    SETTINGS,
    SIZES,
    STREAMS,
    TIME,
    inner_product,
    jitted_record,
    make_learner,
    random_experience,
    random_like,
    smooth_rule,
)

UPDATES = 2
VALIDATION = 5
# Large costs, so that every term shows; the KL holds its slow policy still, so it is left out where nothing may be still.
COSTS = {"policy_entropy_cost": 0.3, "prediction_entropy_cost": 0.2, "target_mean_cost": 0.4, "target_kl_cost": 0.3}
WEIGHTS = dataclasses.replace(SETTINGS, **COSTS)


def judged(settings, agent, measured):
    advantage = jnp.asarray(np.random.default_rng(1).normal(size=(VALIDATION, 2)))
    return outer_loss(settings, agent, random_experience(5, time=VALIDATION), advantage, measured)[0]


def outcome_of(learner, strategy, record, settings=WEIGHTS):
    """The outcome as a function of the rule's parameters, compiled together with its gradient."""
    updates = make_updates(learner, strategy, penalties)

    def outcome(rule_params):
        state, _, measured = relive(updates, rule_params, record)
        return judged(settings, state.params, mean_penalties(measured))

    return jax.jit(jax.value_and_grad(outcome))


def slopes(function, at, direction, size=1e-5):
    """Central difference of a scalar function along a direction."""
    ends = [function(jax.tree.map(lambda p, d, s=sign: p + s * size * d, at, direction)) for sign in (1, -1)]
    return float(ends[0] - ends[1]) / (2 * size)


def assert_derivative(function, at, grads, tolerance=1e-6):
    for seed in range(4):
        direction = random_like(at, seed)
        np.testing.assert_allclose(inner_product(grads, direction), slopes(function, at, direction), rtol=tolerance, atol=1e-9)


IN_EVERY_RUN = ("segments",)  # which has the most to go wrong; the others are `slow`


@pytest.mark.parametrize("strategy", [s if s in IN_EVERY_RUN else pytest.param(s, marks=pytest.mark.slow) for s in STRATEGIES])
def test_gradient_of_a_smooth_rule_is_that_of_finite_differences(strategy):
    """An Adam and a rule with memory: every path from one update to the next, with nothing stopped anywhere."""
    settings = dataclasses.replace(WEIGHTS, target_kl_cost=0.0)
    with jax.enable_x64(True):
        learner = make_learner(smooth_rule(), optax.adam(0.1, eps=1e-2, eps_root=1e-4))
        compiled = outcome_of(learner, strategy, jitted_record(learner, 4), settings)
        params = jax.jit(learner.rule.init)(jax.random.key(0))
        assert_derivative(lambda p: compiled(p)[0], params, compiled(params)[1])


@functools.cache
def discovered(strategy):
    """A discovered rule's loss and gradient; all in float64."""
    learner = make_learner(disco(SIZES), optax.sgd(3.0))
    return outcome_of(learner, strategy, jitted_record(learner, UPDATES))(disco_params())


@functools.cache
def disco_params():
    return jax.jit(disco(SIZES).init)(jax.random.key(0))


@pytest.mark.slow  # a minute of compiling; the smooth rule above goes through three strategies in every run
def test_a_discovered_rule_gets_the_same_gradient_from_little_memory():
    with jax.enable_x64(True):
        (loss, grads), (plain_loss, plain) = discovered("both"), discovered("plain")
        np.testing.assert_allclose(loss, plain_loss, rtol=1e-12)
        for ours, wanted in zip(jax.tree.leaves(grads), jax.tree.leaves(plain), strict=True):
            np.testing.assert_allclose(ours, wanted, rtol=1e-9, atol=1e-11 * float(optax.global_norm(plain)))


def data_of(batch):
    """What a discovered rule declares data, online and slow: the meta-gradient may not pass through it."""
    return [{name: reading[name] for name in ("policy", "value")} for reading in (batch.online, batch.slow)]


def life_with_data_held_still():
    """`(rule_params, data, hold) -> loss, data`: the same window by another way; `hold` shows the rule the data of another life."""
    rule, learner = disco(SIZES), make_learner(disco(SIZES), optax.sgd(3.0))
    record = jitted_record(learner, UPDATES)

    def one(rule_params, hold, state, inputs):
        experience, key, data = inputs
        seen, shown = [], []

        def targets(rule_params, memory, batch):
            seen.extend(data_of(batch))
            online, slow = jax.tree.map(lambda own, other: jnp.where(hold, other, own), data_of(batch), data)
            shown.append(batch._replace(online=batch.online | online, slow=batch.slow | slow))
            return rule.targets(rule_params, memory, shown[0])

        def penalise(made, batch, memory):
            del batch, memory
            return penalties(made, shown[0])

        holding = make_updates(learner._replace(rule=rule._replace(targets=targets)), "plain", penalise)
        state, _, measured = holding.one(rule_params, state, experience, key)
        return state, (measured, seen)

    def lived(rule_params, data, hold):
        inputs = (record.experience, record.keys, data)
        state, (measured, seen) = jax.lax.scan(functools.partial(one, rule_params, hold), record.learner_state, inputs)
        return judged(WEIGHTS, state.params, mean_penalties(measured)), seen

    shapes = {"policy": (ACTIONS,), "value": (ACTIONS, SIZES.bins)}
    nothing = [{name: jnp.zeros((UPDATES, TIME + 1, STREAMS, *shape)) for name, shape in shapes.items()}] * 2
    return jax.jit(lived), nothing


def test_gradient_of_a_discovered_rule_is_that_of_finite_differences_with_its_data_held_still():
    """Policies and values are data to the meta-gradient. So each perturbed rule is shown those of the unperturbed life."""
    with jax.enable_x64(True):
        (loss, grads), params = discovered("plain"), disco_params()
        lived, nothing = life_with_data_held_still()
        unperturbed, data = lived(params, nothing, False)
        np.testing.assert_allclose(loss, unperturbed, rtol=1e-12)
        assert_derivative(lambda p: lived(p, data, True)[0], params, grads)
        # The data does move with the rule: were it free, the derivative would be another.
        direction = random_like(params, 0)
        free, held = (slopes(lambda p, h=hold: lived(p, data, h)[0], params, direction) for hold in (False, True))
        assert abs(free / held - 1) > 1e-4


def test_penalties_are_an_output_of_their_own_and_carry_a_gradient():
    learner = make_learner(smooth_rule(), optax.sgd(0.1))
    record = jitted_record(learner, 1)
    experience = jax.tree.map(lambda x: x[0], record.experience)
    params = jax.jit(smooth_rule().init)(jax.random.key(0))

    @jax.jit
    def both(params):
        updated = make_updates(learner, "plain", penalties).one(params, record.learner_state, experience, record.keys[0])
        made = make_targets(learner, params, record.learner_state, experience)
        return updated.metrics, updated.penalties, penalties(made.targets, made.batch)

    metrics, found, wanted = both(params)
    assert not set(metrics) & set(found)
    assert found.keys() == {"policy_mean", "state_prediction_mean", "action_prediction_mean", "target_kl"}
    jax.tree.map(lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-6), found, wanted)
    slopes = jax.jit(jax.grad(lambda params: both(params)[1]["state_prediction_mean"]))(params)
    assert abs(float(slopes["gain"][2])) > 1e-6


def test_segments_keep_the_fewest_agents():
    assert [segment_length(times) for times in (1, 4, 10, 20, 7)] == [1, 2, 2, 4, 1]


def test_several_passes_cannot_be_mixed():
    learner = make_learner(smooth_rule(), optax.sgd(0.1))._replace(epochs=2)
    with pytest.raises(ValueError, match="use plain, remat or segments"):
        make_updates(learner, "mixed")

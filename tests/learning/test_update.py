"""The update: no work is done twice (by the compiler's own count), invalid steps teach nothing, targets are constants inside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents import make_agent
from rulax.learning.life import make_learner
from rulax.learning.update import init_learner_state, update
from rulax.rules.base import Recipe, UpdateRule, no_params, no_state
from rulax.settings import Learning, Network
from rulax.types import Experience, Head

TIME, STREAMS, ACTIONS, INPUTS = 7, 16, 6, 64
WIDTH, MODEL, HIDDEN, SIZE = 96, 80, 72, 120
NETWORK = Network(hidden=(WIDTH, WIDTH), action_model=MODEL, action_hidden=(HIDDEN,))


def reading_rule(params=no_params):
    """Targets that read every prediction of every action, online and slow; a loss that touches only what was taken."""

    def heads(num_actions):
        return {"policy": Head(num_actions), "action_prediction": Head(SIZE, per_action=True)}

    def targets(rule_params, rule_state, batch):
        mean = batch.online["action_prediction"].mean(2) + batch.slow["action_prediction"].mean(2)
        scale = rule_params.get("scale", 1.0)
        return {"z": scale * mean[:-1], "policy": batch.slow["policy"][:-1]}, rule_state, {}

    def loss(rule_params, taken, targets, experience):
        z = jnp.sum((taken["action_prediction"] - targets["z"]) ** 2, -1)
        return z + jnp.sum((taken["policy"] - targets["policy"] - experience.reward[..., None]) ** 2, -1), {}

    return UpdateRule(heads, params, no_state, targets, loss)


def make(rule, **learning):
    recipe = Recipe(rule, Learning(**learning), NETWORK)
    learner = make_learner(recipe)
    spec = jax.ShapeDtypeStruct((INPUTS,), jnp.float32)
    agent = make_agent(jax.random.key(0), spec, ACTIONS, rule.heads(ACTIONS), NETWORK)
    return learner, init_learner_state(learner, agent, jax.random.key(1))


def experience(seed=0):
    rng = np.random.default_rng(seed)
    shape = (TIME, STREAMS)
    return Experience(
        observation=jnp.asarray(rng.normal(size=(TIME + 1, STREAMS, INPUTS)), jnp.float32),
        action=jnp.asarray(rng.integers(0, ACTIONS, shape)),
        reward=jnp.asarray(rng.normal(size=shape), jnp.float32),
        discount=jnp.ones(shape),
        first=jnp.zeros((TIME + 1, STREAMS), jnp.int8),
        valid=jnp.asarray(rng.random(shape) < 0.8),
        behaviour=jnp.zeros((*shape, ACTIONS)),
        memory=(),
    )


def test_the_compiler_counts_the_work_that_the_design_asks_for():
    learner, state = make(reading_rule())
    run = jax.jit(lambda state, data: update(learner, {}, state, data, jax.random.key(0)))
    counted = run.lower(state, experience()).compile().cost_analysis()["flops"]
    rows, taken = (TIME + 1) * STREAMS, TIME * STREAMS
    torso = 2 * (INPUTS * WIDTH + WIDTH * WIDTH)
    root = 2 * (WIDTH * MODEL + MODEL * 4 * MODEL)
    heads = 2 * (MODEL * HIDDEN + HIDDEN * SIZE)
    policy = 2 * WIDTH * ACTIONS
    every = rows * (root + ACTIONS * heads)
    forward = 2 * (rows * torso + every) + rows * policy + taken * (root + heads + policy)
    # Backward: two products per forward one, except that nobody needs the gradient of the observation.
    backward = 2 * taken * (root + heads + policy) + rows * (2 * torso - 2 * INPUTS * WIDTH)
    matmuls = forward + backward
    assert 0.98 * matmuls < counted < 1.15 * matmuls, f"compiler {counted:.4g}, by hand {matmuls:.4g}"
    wasteful = matmuls + 2 * taken * (ACTIONS - 1) * heads
    assert counted < 0.9 * wasteful, "the backward pass must run over taken actions only"


def test_invalid_steps_teach_nothing():
    learner, state = make(reading_rule())
    data = experience()
    other = data._replace(reward=jnp.where(data.valid, data.reward, 99.0))
    one, _ = update(learner, {}, state, data, jax.random.key(0))
    two, _ = update(learner, {}, state, other, jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, one.params, two.params)


def test_the_slow_copy_mixes_in_the_parameters_from_before_the_step():
    learner, state = make(reading_rule(), slow_decay=0.75)
    state = state._replace(slow=jax.tree.map(jnp.zeros_like, state.slow))
    after, _ = update(learner, {}, state, experience(), jax.random.key(0))
    jax.tree.map(lambda s, p: np.testing.assert_allclose(s, 0.25 * p, rtol=1e-6), after.slow, state.params)


def test_the_rule_sees_scaled_rewards():
    scaled, state = make(reading_rule(), reward_scale=10.0)
    plain, _ = make(reading_rule())
    data = experience()
    one, _ = update(scaled, {}, state, data, jax.random.key(0))
    two, _ = update(plain, {}, state, data._replace(reward=10 * data.reward), jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, one.params, two.params)
    other, _ = update(plain, {}, state, data, jax.random.key(0))
    assert any(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a != b).any()), one.params, other.params)))


@pytest.mark.parametrize("minibatches", [1, 2])
def test_one_pass_over_everything_is_one_plain_step(minibatches):
    """Minibatches see each stream once per epoch, and one minibatch in one epoch is the plain update."""
    learner, state = make(reading_rule(), epochs=2, minibatches=minibatches)
    plain, _ = make(reading_rule())
    after, metrics = update(learner, {}, state, experience(), jax.random.key(0))
    once, _ = update(plain, {}, state, experience(), jax.random.key(0))
    assert int(after.optimiser_state[0].count) == 2 * minibatches
    assert int(once.optimiser_state[0].count) == 1
    assert np.isfinite(metrics["loss"])


def test_single_steps_are_the_steps_of_the_streams():
    """In one minibatch it makes no difference what was shuffled; each step keeps its observation, action and target."""
    states = []
    for shuffle in ("streams", "steps"):
        learner, state = make(reading_rule(), epochs=2, shuffle=shuffle)
        states.append(update(learner, {}, state, experience(), jax.random.key(0))[0])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), *(state.params for state in states))
    learner, state = make(reading_rule(), epochs=2, minibatches=TIME * STREAMS, shuffle="steps")
    after, metrics = update(learner, {}, state, experience(), jax.random.key(0))
    assert int(after.optimiser_state[0].count) == 2 * TIME * STREAMS
    assert np.isfinite(metrics["loss"])


def test_targets_are_constants_to_the_agent_and_functions_to_the_outer_gradient():
    """The agent's gradient must not pass through its own targets; the outer gradient must, and equals finite differences."""
    jax.config.update("jax_enable_x64", True)
    try:
        rule = reading_rule(lambda key: {"scale": jnp.ones(())})
        learner, state = make(rule, learning_rate=0.05)
        state = jax.tree.map(lambda x: x.astype(jnp.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x, state)
        data = jax.tree.map(lambda x: x.astype(jnp.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x, experience())
        # Plain gradient steps: Adam's denominator is deliberately not differentiated.
        import optax

        learner = learner._replace(optimiser=optax.sgd(0.01))
        state = state._replace(optimiser_state=learner.optimiser.init(state.params))

        @jax.jit
        def outer(scale):
            after, _ = update(learner, {"scale": scale}, state, data, jax.random.key(0))
            after, _ = update(learner, {"scale": scale}, after, data, jax.random.key(0))
            return jnp.sum(after.params.predict(after.params.embed(data))["policy"] ** 2)

        slope = jax.jit(jax.grad(outer))(jnp.float64(1.0))
        step = 1e-5
        difference = (outer(1.0 + step) - outer(1.0 - step)) / (2 * step)
        assert abs(slope) > 1e-8
        np.testing.assert_allclose(slope, difference, rtol=1e-5)
    finally:
        jax.config.update("jax_enable_x64", False)

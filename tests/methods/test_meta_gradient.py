"""Meta-gradients: against finite differences in float64, against brute force, and the order of learning and judging."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rulax.agents import make_agent
from rulax.discovery.estimators import backprop
from rulax.discovery.outer_loss import outer_loss
from rulax.discovery.window import relive
from rulax.envs.choice import DelayedChoice
from rulax.envs.conditioned import Conditioned, ConditionedTask
from rulax.learning.update import Learner, init_learner_state, update
from rulax.methods import meta_gradient, meta_gradient_mrp
from rulax.methods.experiments.meta_gradient import DelayedChoiceRun, DelayedChoiceSetup, report_delayed_choice
from rulax.methods.experiments.meta_gradient_mrp import LOOK_ALIKES, SIGNAL_THEN_NOISE, ProcessRun
from rulax.methods.meta_gradient import Online, online_problem
from rulax.methods.meta_gradient_mrp import validation_loss
from rulax.rules.actor_critic import actor_critic
from rulax.rules.tunable import tunable
from rulax.settings import Learning, Network
from rulax.types import Experience, now
from rulax.values.policies import log_probability
from rulax.values.two_hot import Bins

KEY = jax.random.key(0)
TIME, STREAMS, ACTIONS, INPUTS = 5, 3, 2, 3
NETWORK = Network(torso="mlp", hidden=(6,), activation="tanh")
SMALL = DelayedChoiceSetup(
    DelayedChoice(longest=4),
    updates=2,
    fixed=(0.99,),
    test_episodes=8,
    learning=Learning(streams=3, unroll=4, learning_rate=0.01),
    network=Network(hidden=(6,), activation="tanh"),
)


def experience(seed):
    rng = np.random.default_rng(seed)
    shape = (TIME, STREAMS)
    return Experience(
        observation=jnp.asarray(rng.normal(size=(TIME + 1, STREAMS, INPUTS))),
        action=jnp.asarray(rng.integers(0, ACTIONS, shape)),
        reward=jnp.asarray(rng.normal(size=shape)),
        discount=jnp.asarray((rng.random(shape) > 0.2).astype(float)),
        first=jnp.zeros((TIME + 1, STREAMS), jnp.int8),
        valid=jnp.ones(shape, bool),
        behaviour=jnp.asarray(rng.normal(size=(*shape, ACTIONS))),
        memory=(),
    )


# -- the gradient itself ----------------------------------------------------------------------------------


@pytest.mark.parametrize("updates", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_the_gradient_through_updates_is_that_of_finite_differences(updates):
    """Plain gradient steps: to an outer gradient Adam's denominator is a constant, which no finite difference respects."""
    with jax.enable_x64(True):
        rule = tunable(actor_critic, "discount", "trace", start={"discount": 0.6, "trace": 0.8}, bins=Bins(11, 4.0))
        learner = Learner(rule, optax.sgd(0.5))
        agent = make_agent(KEY, jax.ShapeDtypeStruct((INPUTS,), jnp.float64), ACTIONS, rule.heads(ACTIONS), NETWORK)
        agent = jax.tree.map(lambda x: x.astype(jnp.float64), agent)
        batches, validation = [experience(i) for i in range(updates)], experience(99)
        advantage = jnp.asarray(np.random.default_rng(5).normal(size=(TIME, STREAMS)))

        @jax.jit
        def outcome(numbers):
            state = init_learner_state(learner, agent, KEY)
            params = {"discount": numbers[0], "trace": numbers[1]}
            for batch in batches:
                state, _ = update(learner, params, state, batch, KEY)
            policy = now(state.params.predict(state.params.embed(validation))["policy"])
            return -jnp.mean(advantage * log_probability(policy, validation.action))

        at = jnp.asarray([0.405, 1.386])
        slopes = np.asarray(jax.jit(jax.grad(outcome))(at))
        step = 1e-5
        wanted = [float(outcome(at + step * e) - outcome(at - step * e)) / (2 * step) for e in jnp.eye(2)]
    assert np.all(np.abs(slopes) > 1e-6)
    np.testing.assert_allclose(slopes, wanted, rtol=1e-5)


# -- one life in an environment ----------------------------------------------------------------------------------


@functools.cache
def started():
    """A run, and the state that it starts from."""
    run = DelayedChoiceRun({"quick": SMALL}, "quick", 0)
    return run, run.state


def test_it_learns_from_the_batch_at_hand_and_is_judged_by_the_next():
    family = SMALL.method().family()
    problem, start = online_problem(SMALL.method()), started()[1]

    def watched(updates, rule_params, online, window):
        loss, metrics = problem.judge(updates, rule_params, online, window)
        return loss, metrics | {"window": window}

    run = jax.jit(lambda meta_params, online: backprop(problem._replace(judge=watched), meta_params, online))
    grads, online, metrics = run(start.meta_params, start.online)
    window = metrics["window"]
    learned_from = jax.tree.map(lambda x: x[0], window.record.experience)
    np.testing.assert_array_equal(learned_from.action, start.online.pending.action)
    np.testing.assert_array_equal(online.pending.action, window.validation.action)  # and is learned from next
    np.testing.assert_array_equal(online.pending.observation[0], start.online.member.life.actor.observation)
    assert int(online.member.life.learner_state.updates) == 1
    ended = np.asarray(window.validation.discount == 0)
    assert metrics["episodes"] == ended.sum() > 0, "each episode is counted once"

    def outcome(meta_params):
        learner = relive(problem.updates, meta_params, window.record).state
        return outer_loss(family.settings, learner.params, window.validation, window.advantage, {})[0]

    next_episode = jax.jit(jax.grad(outcome))(start.meta_params)
    assert float(optax.global_norm(grads)) > 1e-8
    for name in grads:
        np.testing.assert_allclose(grads[name], next_episode[name], rtol=1e-3, atol=1e-9)


def test_the_streams_start_with_a_key_of_their_own(monkeypatch):
    seen = []

    def watched(function):
        def call(*arguments):
            seen.append(arguments[-1])
            return function(*arguments)

        return call

    for name in ("init_member", "begin"):
        monkeypatch.setattr(meta_gradient, name, watched(getattr(meta_gradient, name)))
    jax.eval_shape(lambda key: meta_gradient.init_online_state(SMALL.method(), key), KEY)  # traced only, hence by identity
    assert len(seen) == 2
    assert seen[0] is not seen[1]


def test_the_agent_is_told_its_constants_as_they_are_now():
    problem, start = online_problem(SMALL.method()), started()[1]
    moved = jax.tree.map(lambda x: x + 1, start.meta_params)
    _, online = problem.enter(moved, start.online)
    wanted = np.array([moved["discount"], moved["trace"]]) / meta_gradient.CONTEXT_SCALE
    actor = online.member.life.actor
    for context in (actor.task.context, actor.observation[..., -2:], online.pending.observation[..., -2:]):
        np.testing.assert_allclose(context, np.broadcast_to(wanted, context.shape), rtol=1e-6)
    np.testing.assert_array_equal(online.pending.observation[..., :-2], start.online.pending.observation[..., :-2])
    assert isinstance(online, Online)


def test_an_environment_that_tells_is_otherwise_the_same():
    plain = DelayedChoice(longest=3)
    environment, context = Conditioned(plain, 2), jnp.array([0.25, -1.0])
    task, own = ConditionedTask(plain.default_task(), context), plain.default_task()
    for begin, other in ((environment.reset(task, KEY), plain.reset(own, KEY)),):
        np.testing.assert_array_equal(begin[1], jnp.concatenate([other[1], context]))
    state, transition = environment.step(task, environment.reset(task, KEY)[0], jnp.int32(1), KEY)
    wanted_state, wanted = plain.step(own, plain.reset(own, KEY)[0], jnp.int32(1), KEY)
    np.testing.assert_array_equal(transition.observation, jnp.concatenate([wanted.observation, context]))
    assert environment.observation.shape == transition.observation.shape
    jax.tree.map(np.testing.assert_array_equal, state, wanted_state)
    assert float(transition.reward) == float(wanted.reward)


@pytest.mark.slow
def test_a_run_tunes_then_trains_with_fixed_discounts():
    made = started()[0]
    while not made.done():
        progress = made.advance()
    assert progress.fraction == 1.0
    assert progress.meta_updates == SMALL.updates
    assert progress.env_steps == SMALL.updates * 12  # the baselines' own steps do not count
    assert sorted(made.scores) == [0.99]
    tested = made.test()
    assert tested.values.shape == (8,)
    assert 0 < tested.details["final discount"] < 1
    assert tested.details["final discount"] != pytest.approx(0.6, abs=1e-6)


def test_returns_are_held_against_the_usual_discount_and_the_best():
    scores = {0.6: np.full(4, 0.5), 0.99: np.full(4, 0.8), 0.998: np.full(4, 1.0)}
    tested = report_delayed_choice(SMALL, np.full(4, 0.96), scores, {"discount": 0.9})
    np.testing.assert_allclose(tested.values, 1.2)
    assert tested.reference.value == pytest.approx(1.25)
    assert tested.details["of the best fixed discount's return"] == pytest.approx(0.96)
    assert tested.details["over that of the first discount"] == pytest.approx(1.92)
    assert tested.details["best fixed discount"] == 0.998
    alone = report_delayed_choice(SMALL, np.full(4, 0.9), {}, {})  # delays up to four are worth waiting for from 0.881 on
    np.testing.assert_allclose(alone.values, 0.9)
    assert alone.reference.value == pytest.approx(1.0)


# -- the environment ----------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [0, 1])
def test_sooner_is_small_and_later_large_and_both_take_as_long(action):
    environment = DelayedChoice(longest=9, small=0.6)
    task = environment.default_task()
    state, _ = environment.reset(task, jax.random.key(3))
    delay, rewards, over = int(state.left), [], False
    while not over:
        state, transition = environment.step(task, state, jnp.int32(action if not rewards else 1 - action), KEY)
        rewards.append(float(transition.reward))
        over = bool(transition.terminated)
    assert len(rewards) == delay + 1
    np.testing.assert_allclose(rewards, [0.6] + [0.0] * delay if action == 0 else [0.0] * delay + [1.0])


def test_delays_are_squares_of_uniform_numbers():
    environment = DelayedChoice(longest=101)
    delays = np.asarray(
        jax.vmap(lambda key: environment.reset(environment.default_task(), key)[0].left)(jax.random.split(KEY, 20_000))
    )
    assert delays.min() == 1
    assert delays.max() == 101
    assert abs(np.mean(delays <= 26) - 0.5) < 0.02  # 1 + 100 / 4


def test_what_a_discount_waits_for_is_known_exactly():
    environment = DelayedChoice(longest=60, small=0.6)
    task, keys = environment.default_task(), jax.random.split(KEY, 40_000)
    delays = np.asarray(jax.vmap(lambda key: environment.reset(task, key)[0].left)(keys))
    for discount in (0.6, 0.9, 0.99):
        drawn = np.where(discount**delays > 0.6, 1.0, 0.6).mean()
        assert environment.ideal_return(discount) == pytest.approx(drawn, abs=0.005)
    assert environment.ideal_return(0.999) == pytest.approx(1.0)
    assert environment.ideal_return(0.5) == pytest.approx(0.6)


# -- the two processes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("process", [SIGNAL_THEN_NOISE, LOOK_ALIKES], ids=["discounts", "traces"])
def test_targets_of_a_process_are_those_of_the_definition(process):
    rng = np.random.default_rng(0)
    table, rewards, constants = rng.normal(size=max(process.entry) + 1), rng.normal(size=10), rng.random(10)
    made = process.returns(jnp.asarray(table), jnp.asarray(rewards), jnp.asarray(constants))
    following = 0.0
    for s in reversed(range(10)):
        if s == 9:
            following = rewards[s]
        elif process.tuned == "discount":
            following = rewards[s] + constants[s + 1] * following
        else:
            trace = constants[s + 1]
            following = rewards[s] + (1 - trace) * table[process.entry[s + 1]] + trace * following
        np.testing.assert_allclose(made[s], following, rtol=1e-5)


@pytest.mark.parametrize("process", [SIGNAL_THEN_NOISE, LOOK_ALIKES], ids=["discounts", "traces"])
def test_exact_values_and_who_can_be_told_apart(process):
    rewards = jax.vmap(process.rewards)(jax.random.split(KEY, 40_000))
    mean = np.asarray(jax.vmap(process.sums)(rewards)).mean(0)
    np.testing.assert_allclose(mean, process.values, atol=0.12)
    right = np.zeros(max(process.entry) + 1, np.float32)
    right[list(process.entry)] = process.values
    assert float(process.error(jnp.asarray(right))) == pytest.approx(0, abs=1e-9)
    assert process.unique.sum() == (10 if process.tuned == "discount" else 5)


def test_the_gradient_of_online_cross_validation_is_that_of_finite_differences():
    with jax.enable_x64(True):
        rng = np.random.default_rng(1)
        table, before, after = (jnp.asarray(rng.normal(size=n)) for n in (6, 10, 10))
        loss = jax.jit(functools.partial(validation_loss, LOOK_ALIKES, 0.3, table=table, before=before, after=after))
        at = jnp.asarray(rng.normal(size=10))
        slopes = jax.grad(loss)(at)
        step = 1e-6
        wanted = [float(loss(at + step * e) - loss(at - step * e)) / (2 * step) for e in jnp.eye(10)]
    np.testing.assert_allclose(slopes, wanted, rtol=1e-6, atol=1e-9)
    assert abs(float(slopes[0])) == 0  # nobody arrives at the first state
    assert np.all(np.abs(np.asarray(slopes)[1:]) > 1e-6)


def test_learners_are_compared_with_constants_on_the_same_rewards():
    method = meta_gradient_mrp.TabularMetaGradient(SIGNAL_THEN_NOISE, episodes=40, meta_learning_rate=0.0, start=0.0)
    run = ProcessRun({"quick": method}, "quick", 0)
    while not run.done():
        run.advance()
    half = meta_gradient_mrp.GRID.index(0.5)
    np.testing.assert_allclose(run.state.error, run.state.constant_error[:, half], rtol=1e-5)
    np.testing.assert_allclose(run.state.table, run.state.constant[:, half], rtol=1e-4, atol=1e-5)
    tested = run.test()
    assert tested.values.shape == (10,)
    assert tested.details["mean discount where it should be high"] == pytest.approx(0.5)

"""The meta-gradients of MAML against finite differences in float64, what its first-order form leaves out, and Reptile by hand."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from rulax.agents import make_agent
from rulax.agents.gaussian import make_gaussian_agent
from rulax.discovery.estimators import backprop, displacement, first_order
from rulax.discovery.window import Record
from rulax.envs.regression import Sinusoid
from rulax.learning.update import Learner, init_learner_state
from rulax.methods.adaptation import Adaptation, RecordedLife, Tasks, adapt, regression_tasks, squared_error
from rulax.methods.maml import outer_problem
from rulax.methods.reptile import final_agent
from rulax.rules.likelihood_ratio import likelihood_ratio
from rulax.rules.regression import PREDICTION, as_experience, regression
from rulax.settings import Network
from rulax.types import Experience
from rulax.values.real_policies import Gaussian

NETWORK = Network(hidden=(4, 3), activation="tanh", torso="mlp")
UPDATES = 2


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def as_double(tree):
    return jax.tree.map(lambda x: x.astype(jnp.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


def supervised():
    """An agent, its learner and outer rule, and a recorded adaptation to one wave."""
    family, rule = Sinusoid(), regression()
    agent = as_double(make_agent(jax.random.key(0), jax.ShapeDtypeStruct((1,), jnp.float64), 1, rule.heads(1), NETWORK))
    learner = Learner(rule, optax.sgd(0.1))
    adaptation = adapt(regression_tasks(family, 5, 7), learner, agent, jax.random.key(1), UPDATES)
    return agent, learner, rule, adaptation


def reinforced():
    """The same with a Gaussian policy on recorded random experience, some of it invalid, made by a policy slightly off."""
    shape, key = (UPDATES + 1, 6, 5), jax.random.key(2)
    keys = jax.random.split(key, 6)
    agent = as_double(make_gaussian_agent(jax.random.key(0), jax.ShapeDtypeStruct((2,), jnp.float64), 2, NETWORK, 0.7))
    first = jnp.zeros((*shape[:1], 7, 5), bool).at[:, 0].set(True)
    experience = Experience(
        observation=jax.random.normal(keys[0], (shape[0], 7, 5, 2)),
        action=jax.random.normal(keys[1], (*shape, 2)),
        reward=jax.random.normal(keys[2], shape),
        discount=jnp.ones(shape),
        first=first,
        valid=jax.random.bernoulli(keys[3], 0.8, shape),
        behaviour=Gaussian(*jnp.split(0.3 * jax.random.normal(keys[4], (*shape, 4)), 2, -1)),
        memory=(),
    )
    learner = Learner(likelihood_ratio(), optax.sgd(0.3))
    outer = likelihood_ratio(clip=5.0)
    init_agent = init_learner_state(learner, agent, keys[5])
    record = Record(init_agent, jax.tree.map(lambda x: x[:-1], experience), jax.random.split(keys[5], UPDATES))
    adaptation = Adaptation(RecordedLife(init_agent, keys[5]), record, experience, jnp.zeros(UPDATES + 1))
    return agent, learner, outer, adaptation


def loss_after(problem, adaptation, agent):
    _, entered = problem.enter(agent, adaptation)
    after, window, _ = problem.live(problem.updates, {}, entered)
    return problem.judge(problem.updates, {}, after, window)[0]


def differences(function, agent, step=1e-5):
    """Central differences in every parameter."""
    flat, back = ravel_pytree(agent)
    values = jax.jit(jax.vmap(lambda flat: function(back(flat))))
    plus, minus = values(flat + step * jnp.eye(flat.size)), values(flat - step * jnp.eye(flat.size))
    return (plus - minus) / (2 * step)


# Each is what the experiment of its kind uses.
@pytest.mark.parametrize(("setting", "strategy"), [(supervised, "plain"), (reinforced, "mixed")])
def test_maml_is_the_whole_derivative(setting, strategy):
    agent, learner, outer, adaptation = setting()
    problem = outer_problem(learner, outer, strategy)
    grads, _, _ = jax.jit(lambda agent: backprop(problem, agent, adaptation))(agent)
    wanted = differences(lambda agent: loss_after(problem, adaptation, agent), agent)
    np.testing.assert_allclose(ravel_pytree(grads)[0], wanted, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("setting", [pytest.param(supervised, marks=pytest.mark.slow), reinforced])
def test_first_order_maml_is_the_derivative_where_agents_arrive(setting):
    """It ignores how updates depend on their start: the mean over updates of the loss's gradient at the agent after each."""
    agent, learner, outer, adaptation = setting()
    problem = outer_problem(learner, outer)
    grads, _, _ = jax.jit(lambda agent: first_order(problem, agent, adaptation))(agent)
    whole, _, _ = jax.jit(lambda agent: backprop(problem, agent, adaptation))(agent)
    _, entered = problem.enter(agent, adaptation)
    _, window, _ = jax.jit(lambda entered: problem.live(problem.updates, {}, entered))(entered)

    def moved_together(params):
        agents = jax.tree.map(lambda each, old, new: each + new - old, window.agents, agent, params)
        return problem.judge(problem.updates, {}, entered, window._replace(agents=agents))[0]

    flat = ravel_pytree(grads)[0]
    np.testing.assert_allclose(flat, differences(moved_together, agent), rtol=1e-5, atol=1e-8)
    other = ravel_pytree(whole)[0]
    assert float(jnp.linalg.norm(flat - other) / jnp.linalg.norm(other)) > 0.02


def surrogate(rule, numbers, behaviour, action, advantage):
    """The rule's loss of single steps [N]: experience with one step in N streams."""
    experience = Experience(None, action[None], advantage[None], None, None, jnp.ones((1, len(advantage)), bool), behaviour, ())
    taken = {"policy": jax.tree.map(lambda x: jnp.broadcast_to(x, (1, len(advantage), x.size)), numbers)}
    return rule.loss({}, taken, {"advantage": advantage[None]}, experience)[0][0]


def test_the_second_derivative_is_right_for_a_softmax_bandit():
    """Over all actions, weighted by the policy that acted: the Hessian of the expected reward, which log pi does not give."""
    logits, rewards = jnp.array([0.3, -0.5, 1.1]), jnp.array([1.0, 2.0, -0.7])
    actions, likely = jnp.arange(3), jax.nn.softmax(logits)
    behaviour = jnp.broadcast_to(logits, (1, 3, 3))

    def sampled(numbers):
        return jnp.sum(likely * surrogate(likelihood_ratio(), numbers, behaviour, actions, rewards))

    def expected(numbers):
        return -jnp.sum(jax.nn.softmax(numbers) * rewards)

    def by_log(numbers):
        return -jnp.sum(likely * jax.nn.log_softmax(numbers) * rewards)

    for derivative in (jax.grad, jax.hessian):
        found, wanted, other = jax.jit(lambda x, d=derivative: (d(sampled)(x), d(expected)(x), d(by_log)(x)))(logits)
        np.testing.assert_allclose(found, wanted, atol=1e-12)
        assert (np.abs(other - wanted).max() > 0.05) == (derivative is jax.hessian)


def test_the_second_derivative_is_right_for_a_gaussian():
    """Reward -(a - c)²: J(m, s) = -((m - c)² + e^{2 s}). All integrands are polynomials, so the quadrature is exact."""
    numbers, wanted = Gaussian(jnp.array([0.4]), jnp.array([-0.3])), 1.3
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    actions = numbers[0] + jnp.exp(numbers[1]) * jnp.asarray(nodes)
    rewards, likely = -jnp.square(actions - wanted), jnp.asarray(weights / weights.sum())
    behaviour = jax.tree.map(lambda x: jnp.broadcast_to(x, (1, 12, 1)), numbers)

    def sampled(numbers):
        return jnp.sum(likely * surrogate(likelihood_ratio(), numbers, behaviour, actions[:, None], rewards))

    def expected(numbers):
        return jnp.sum((numbers.mean - wanted) ** 2 + jnp.exp(2 * numbers.log_deviation))

    for derivative in (jax.grad, jax.hessian):
        found, wanted_slope = jax.jit(lambda x, d=derivative: (d(sampled)(x), d(expected)(x)))(numbers)
        jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-9), found, wanted_slope)


class Slope(eqx.Module):
    """Predicts w x."""

    weight: jax.Array  # [D]

    def embed(self, experience):
        return experience.observation @ self.weight

    def predict(self, seen):
        return {PREDICTION: seen[..., None]}

    def predict_taken(self, seen, action):
        return self.predict(seen)


def test_reptile_moves_to_where_gradient_descent_on_a_quadratic_ends():
    """w_k = w* + (I - 2 rate X^T X / n)^k (w_0 - w*)."""
    x = np.random.default_rng(0).normal(size=(5, 2))
    best, start, rate, times = np.array([1.0, -2.0]), np.array([0.5, 3.0]), 0.1, 3
    examples = as_experience(jnp.asarray(x), jnp.asarray(x @ best))
    tasks = Tasks(lambda key: (), lambda task, agent, key: (examples, examples), squared_error, fresh=False)
    learner = Learner(regression(), optax.sgd(rate))
    adaptation = adapt(tasks, learner, Slope(jnp.asarray(start)), jax.random.key(0), times)
    grads, after, metrics = displacement(final_agent(learner, regression()), Slope(jnp.asarray(start)), adaptation)
    shrink = np.eye(2) - 2 * rate * x.T @ x / 5
    ends = [best + np.linalg.matrix_power(shrink, k) @ (start - best) for k in range(times + 1)]
    np.testing.assert_allclose(grads.weight, start - ends[-1], rtol=1e-6)
    np.testing.assert_allclose(after.life.learner_state.params.weight, ends[-1], rtol=1e-6)
    np.testing.assert_allclose(adaptation.scores, [np.mean((x @ (w - best)) ** 2) for w in ends], rtol=1e-6)
    np.testing.assert_allclose(metrics["outer_loss"], adaptation.scores[-1], rtol=1e-6)


def test_a_task_may_start_from_meta_parameters_of_its_own_with_step_sizes_that_are_learned():
    """MAESN's structure: a latent per task, and a step size per parameter. Against differences of a NumPy formula of the same."""
    random = np.random.default_rng(1)
    inputs, wanted = random.normal(size=(5, 2)), random.normal(size=(3, 2))
    meta_params = {"latent": random.normal(size=(3, 2)), "step_sizes": random.uniform(0.05, 0.2, 2)}

    def update(grads, state, params=None, *, hyperparameters):
        return jax.tree.map(lambda size, slope: -size * slope, hyperparameters["step_sizes"], grads), state

    def collect(task, agent, key):
        examples = as_experience(jnp.asarray(inputs), jnp.asarray(inputs) @ jnp.asarray(wanted)[task])
        return examples, examples

    def init(learner, meta_params, task, key):
        sizes = {"step_sizes": Slope(meta_params["step_sizes"])}
        return init_learner_state(learner, Slope(meta_params["latent"][task]), key, sizes)

    optimiser = optax.GradientTransformationExtraArgs(lambda params: (), update)
    learner = Learner(regression(), optimiser, own=("step_sizes",))
    tasks = Tasks(lambda key: jax.random.randint(key, (), 0, 3), collect, squared_error, fresh=False, init=init)
    given = jax.tree.map(jnp.asarray, meta_params)
    adaptation = adapt(tasks, learner, given, jax.random.key(0), 1)
    problem = outer_problem(learner, regression(), "mixed", init)
    grads, _, metrics = jax.jit(lambda params: backprop(problem, params, adaptation))(given)

    def loss(flat):
        latent, sizes = flat[:6].reshape(3, 2)[int(adaptation.task)], flat[6:]
        slope = 2 * inputs.T @ inputs @ (latent - wanted[int(adaptation.task)]) / 5
        return np.mean((inputs @ (latent - sizes * slope - wanted[int(adaptation.task)])) ** 2)

    flat = np.concatenate([meta_params["latent"].ravel(), meta_params["step_sizes"]])
    central = [(loss(flat + step) - loss(flat - step)) / 2e-5 for step in 1e-5 * np.eye(8)]
    np.testing.assert_allclose(metrics["outer_loss"], loss(flat), rtol=1e-7)
    np.testing.assert_allclose(np.concatenate([grads["latent"].ravel(), grads["step_sizes"]]), central, rtol=1e-6, atol=1e-8)
    assert np.count_nonzero(np.abs(grads["latent"]).sum(1)) == 1  # other tasks' latents are left alone

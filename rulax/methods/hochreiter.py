"""A recurrent network with frozen weights as a learning algorithm: an LSTM that is told the answer before (Hochreiter et al. 2001).

    h_i = LSTM(h_{i-1}, [x_i, y_{i-1}]),  prediction_i = w h_i + b,  h_0 = 0, y_0 = 0

The mean squared error over a whole sequence, of many functions at once, is differentiated through all of its steps. In a test the
weights stay as they are: what is learned of a new function is in the memory.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rulax.agents.cores import NoCore, RecurrentCore, make_core
from rulax.agents.layers import Linear
from rulax.envs.regression import Quadratic
from rulax.evaluation.references import bayes_linear_filter, quadratic_features
from rulax.learning.optimisers import make_optimiser
from rulax.methods.base import Experiment, Progress, Published, Reference, Study, Suite, Tested
from rulax.methods.loop import Loop
from rulax.settings import Learning
from rulax.types import Array, Metrics, PyTree

TEST_SEED = 2001  # never a seed of training
TEST_AT_ONCE = 1_000
VARIANCE = 98 / 135  # of y: a third of E[x1^4 + x2^4 + x1^2 x2^2 + x1^2 + x2^2 + 1]
SHOWN = (7, 20, 35)  # examples whose errors are reported


class Regressor(eqx.Module):
    """The LSTM and its linear output."""

    core: NoCore | RecurrentCore
    head: Linear

    def __init__(self, key: Array, inputs: int, size: int):
        key_core, key_head = jax.random.split(key)
        self.core, width = make_core(key_core, "lstm", inputs + 1, size)
        self.head = Linear(key_head, width, 1)

    def __call__(self, x: Array, y: Array) -> Array:
        """Predictions [T, B] of y [T, B] from x [T, B, inputs]: each sees the inputs up to its own and the outputs before."""
        before = jnp.concatenate([jnp.zeros_like(y[:1]), y[:-1]])
        told = jnp.concatenate([x, before[..., None]], -1)
        never = jnp.zeros(y.shape, bool)  # one function per sequence: nothing to forget within
        return self.head(self.core.unroll(self.core.initial(y.shape[1:]), told, never))[..., 0]


@dataclasses.dataclass(frozen=True)
class Setting:
    """Sizes."""

    updates: int
    test_functions: int
    functions: int = 64  # per update
    examples: int = 40  # of each
    memory: int = 64
    known: float = 0.05  # a function counts as learned when the error is this part of the variance
    learning_rate: float = 3e-3

    def learning(self) -> Learning:
        """Adam whose step falls to zero."""
        return Learning(learning_rate=self.learning_rate, schedule="cosine", clip_gradient=1.0)


class State(NamedTuple):
    """What training changes."""

    params: PyTree
    optimiser_state: PyTree
    key: Array


def sample(number: int, examples: int, key: Array) -> tuple[Array, Array]:
    """Inputs [T, B, 2] and outputs [T, B] of `number` quadratics."""
    environment = Quadratic()

    def one(key: Array) -> tuple[Array, Array]:
        key_task, key_examples = jax.random.split(key)
        return environment.examples(environment.sample_task(key_task), key_examples, examples)

    return jax.vmap(one, out_axes=1)(jax.random.split(key, number))


def mean_squared_error(params: PyTree, x: Array, y: Array) -> Array:
    """Over all examples of all functions."""
    return jnp.mean(jnp.square(params(x, y) - y))


class Functions(Study):
    """One seed."""

    def __init__(self, settings: dict[Suite, Setting], suite: Suite, seed: int):
        self.setting = settings[suite]
        self.optimiser = make_optimiser(self.setting.learning(), self.setting.updates)
        self.state = self._start(jax.random.key(seed))
        self.loop = Loop(self._update, self.setting.updates)

    def _start(self, key: Array) -> State:
        key_params, key_life = jax.random.split(key)
        params = Regressor(key_params, Quadratic.inputs, self.setting.memory)
        return State(params, self.optimiser.init(params), key_life)

    def _update(self, state: State) -> tuple[State, Metrics]:
        key, key_sample = jax.random.split(state.key)
        x, y = sample(self.setting.functions, self.setting.examples, key_sample)
        loss, grads = jax.value_and_grad(mean_squared_error)(state.params, x, y)
        changes, optimiser_state = self.optimiser.update(grads, state.optimiser_state, state.params)
        return State(optax.apply_updates(state.params, changes), optimiser_state, key), {"loss": loss}

    def advance(self) -> Progress:
        self.state, metrics = self.loop.advance(self.state)
        made, setting = self.loop.made, self.setting
        drawn = made * setting.functions * setting.examples
        return Progress(made / setting.updates, made, drawn, metrics["loss"] / VARIANCE)

    def done(self) -> bool:
        return self.loop.done()

    def test(self) -> Tested:
        each, filtered = errors_of(self.state.params, self.setting.test_functions, self.setting.examples)
        errors = each.mean(0)
        details = {f"error at {i}, of the variance": float(errors[i - 1]) / VARIANCE for i in SHOWN}
        details |= {f"mean squared error at {i}": float(errors[i - 1]) for i in SHOWN}
        details |= {f"linear filter's at {i}": float(filtered[i - 1]) for i in SHOWN}
        reference = Reference(
            "Bayes linear filter on the true features", float(examples_needed(filtered, self.setting.known)), "exact"
        )
        never = float(self.setting.examples + 1)
        value = np.array([examples_needed(errors, self.setting.known)], float)
        low, high = np.quantile(resampled(each, self.setting.known), (0.025, 0.975))
        details |= {"95 % of resampled test sets need from": float(low), "to": float(high)}
        return Tested(value, never, reference, details=details, tasks=len(each))


def resampled(each: np.ndarray, known: float, times: int = 200) -> np.ndarray:
    """The examples needed on test sets of as many functions, drawn from these with replacement."""
    draws = np.random.default_rng(TEST_SEED).multinomial(len(each), np.full(len(each), 1 / len(each)), times)
    return np.array([examples_needed(errors, known) for errors in draws @ each / len(each)])


def examples_needed(errors: np.ndarray, known: float) -> int:
    """The first example, counted from 1, whose mean squared error is at most that part of the variance; one too many if none is."""
    good = np.flatnonzero(errors <= known * VARIANCE)
    return int(good[0]) + 1 if good.size else errors.size + 1


def errors_of(params: PyTree, number: int, examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Squared errors at each example: the network's for each of `number` functions [N, T], the linear filter's on average [T]."""

    @functools.partial(jax.jit, static_argnums=1)
    def look(params: PyTree, size: int, key: Array) -> tuple[Array, Array, Array]:
        x, y = sample(size, examples, key)
        return x, y, params(x, y)

    ours, filters, sizes = [], [], []
    for group in range(-(-number // TEST_AT_ONCE)):
        size = min(TEST_AT_ONCE, number - group * TEST_AT_ONCE)
        x, y, predicted = look(params, size, jax.random.fold_in(jax.random.key(TEST_SEED), group))
        ours.append(np.square(np.asarray(predicted, float) - np.asarray(y, float)).T)
        features = quadratic_features(np.swapaxes(np.asarray(x, float), 0, 1))
        filters.append(bayes_linear_filter(features, np.asarray(y, float).T).expected_error.sum(0))
        sizes.append(size)
    return np.concatenate(ours), sum(filters) / sum(sizes)


SETTINGS: dict[Suite, Setting] = {"quick": Setting(400, 2_000, known=0.6), "full": Setting(10_000, 20_000)}
EXPERIMENTS = (
    Experiment(
        "hochreiter",
        "quadratics",
        "functions of second degree in two inputs, 40 examples each",
        "examples until the error is 5 % of the variance (quick: 60 %)",
        20.0,
        8.0,
        functools.partial(Functions, SETTINGS),
        Published(35.0, "Hochreiter et al. 2001, as told by Weng 2019", "S"),
        higher_is_better=False,
        minutes=4,
    ),
)

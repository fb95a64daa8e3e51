"""Hochreiter's experiment: how many examples of a quadratic function the LSTM needs until it predicts it well."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np

from rulax.evaluation.references import bayes_linear_filter, quadratic_features
from rulax.learning.optimisers import make_optimiser
from rulax.methods.base import Experiment, Progress, Published, Reference, SeedRun, Suite, Tested
from rulax.methods.hochreiter import Regressor, init_regressor_state, meta_update, sample_functions
from rulax.methods.loop import Loop
from rulax.settings import Learning
from rulax.types import Array

TEST_SEED = 2001  # never a seed of training
TEST_AT_ONCE = 1_000
VARIANCE = 98 / 135  # of y: a third of E[x1^4 + x2^4 + x1^2 x2^2 + x1^2 + x2^2 + 1]
REPORTED = (7, 20, 35)  # examples whose errors are reported


@dataclasses.dataclass(frozen=True)
class QuadraticsSizes:
    """Sizes of the experiment."""

    updates: int
    test_functions: int
    functions: int = 64  # per update
    examples: int = 40  # of each
    memory: int = 64
    known: float = 0.05  # a function counts as learned once the error is at most this share of the variance
    learning_rate: float = 3e-3

    def learning(self) -> Learning:
        """Adam whose step size falls to zero."""
        return Learning(learning_rate=self.learning_rate, schedule="cosine", clip_gradient=1.0)


class QuadraticsRun(SeedRun):
    """One seed."""

    kept = ("state", "loop.made")

    def __init__(self, suites: dict[Suite, QuadraticsSizes], suite: Suite, seed: int):
        sizes = self.sizes = suites[suite]
        optimiser = make_optimiser(sizes.learning(), sizes.updates)
        self.state = init_regressor_state(optimiser, sizes.memory, jax.random.key(seed))
        self.loop = Loop(functools.partial(meta_update, optimiser, sizes.functions, sizes.examples), sizes.updates)

    def advance(self) -> Progress:
        self.state, metrics = self.loop.advance(self.state)
        made, sizes = self.loop.made, self.sizes
        return Progress(made / sizes.updates, made, made * sizes.functions * sizes.examples, metrics["loss"] / VARIANCE)

    def done(self) -> bool:
        return self.loop.done()

    def test(self) -> Tested:
        each, filtered = squared_errors(self.state.params, self.sizes.test_functions, self.sizes.examples)
        errors = each.mean(0)
        details = {f"error at {i}, of the variance": float(errors[i - 1]) / VARIANCE for i in REPORTED}
        details |= {f"mean squared error at {i}": float(errors[i - 1]) for i in REPORTED}
        details |= {f"linear filter's at {i}": float(filtered[i - 1]) for i in REPORTED}
        optimum = float(examples_needed(filtered, self.sizes.known))
        reference = Reference("Bayes linear filter on the true features", optimum, "exact")
        never = float(self.sizes.examples + 1)
        value = np.array([examples_needed(errors, self.sizes.known)], float)
        low, high = np.quantile(bootstrap_examples_needed(each, self.sizes.known), (0.025, 0.975))
        details |= {"95 % of resampled test sets need from": float(low), "to": float(high)}
        return Tested(value, never, reference, details=details, tasks=len(each))


def examples_needed(errors: np.ndarray, known: float) -> int:
    """The first example, counted from 1, whose mean squared error [T] is at most `known` times the variance; T + 1 if none is."""
    good = np.flatnonzero(errors <= known * VARIANCE)
    return int(good[0]) + 1 if good.size else errors.size + 1


def bootstrap_examples_needed(each: np.ndarray, known: float, times: int = 200) -> np.ndarray:
    """The examples needed [times] on test sets of as many functions, drawn with replacement from these errors [N, T]."""
    # How often each function is drawn, instead of which: all resamples are one matrix product.
    draws = np.random.default_rng(TEST_SEED).multinomial(len(each), np.full(len(each), 1 / len(each)), times)
    return np.array([examples_needed(errors, known) for errors in draws @ each / len(each)])


def squared_errors(params: Regressor, number: int, examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Squared errors at each example: the network's for each of `number` functions [N, T], the linear filter's on average [T]."""

    @functools.partial(jax.jit, static_argnums=1)
    def predict(params: Regressor, size: int, key: Array) -> tuple[Array, Array, Array]:
        x, y = sample_functions(size, examples, key)
        return x, y, params(x, y)

    ours, filters, sizes = [], [], []
    for group in range(-(-number // TEST_AT_ONCE)):
        size = min(TEST_AT_ONCE, number - group * TEST_AT_ONCE)
        x, y, predicted = predict(params, size, jax.random.fold_in(jax.random.key(TEST_SEED), group))
        ours.append(np.square(np.asarray(predicted, float) - np.asarray(y, float)).T)
        features = quadratic_features(np.swapaxes(np.asarray(x, float), 0, 1))
        # The expected rather than the squared errors, whose mean is the same and has less variance.
        filters.append(bayes_linear_filter(features, np.asarray(y, float).T).expected_error.sum(0))
        sizes.append(size)
    return np.concatenate(ours), sum(filters) / sum(sizes)


SIZES: dict[Suite, QuadraticsSizes] = {
    "quick": QuadraticsSizes(updates=400, test_functions=2_000, known=0.6),
    "full": QuadraticsSizes(updates=10_000, test_functions=20_000),
}
EXPERIMENTS = (
    Experiment(
        method="hochreiter",
        name="quadratics",
        about="functions of second degree in two inputs, 40 examples each",
        metric="examples until the error is 5 % of the variance (quick: 60 %)",
        goal=20.0,
        quick_goal=8.0,
        start=functools.partial(QuadraticsRun, SIZES),
        published=Published(35.0, "Hochreiter et al. 2001, as reported by Weng 2019", "S"),
        higher_is_better=False,
        minutes=4,
    ),
)

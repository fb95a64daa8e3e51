"""Callbacks: functions that see a training run at every logged point, and may stop it. Public as `rulax.callbacks`.

    rulax.train("catch", callback=lambda point: print(point.step, point.metrics["episode_return"]))

A callback is called with a `Point`; returning False, or `point.stop("why")`, ends the run there as its budget would: the folder is
complete and training can go on from it. Those that come with Rulax keep nothing between two points (they read the rows so far), so
a resumed run does exactly what an uninterrupted one would have done.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax

from rulax.commands.train.agent import AgentHandle, Examiner, evaluation_key, make_examiner, ways_of
from rulax.errors import UserError, suggestion
from rulax.evaluation.scores import Evaluation, Score
from rulax.files import jsonable
from rulax.records.rows import Row

TRAINING = "episode_return"  # mean return of training episodes since the point before
GREEDY, SAMPLED = "evaluation_greedy_return", "evaluation_sampled_return"


class Callback(Protocol):
    """Any function of a `Point`. False stops the run; anything else goes on."""

    def __call__(self, point: Point, /) -> bool | None: ...


class Point:
    """Where a run stands at a logged point.

    * `step`: environment steps per seed so far.
    * `metrics`: what was measured since the point before, by name; the row of `metrics.jsonl`.
    * `rows`: those of all points so far, this one included.
    * `agents`, `agent`: copies of the agents as they are now, made when first asked for (all seeds; the first seed).
    * `last`: whether the budget is spent.
    """

    def __init__(
        self, rows: Sequence[Row], agents: Callable[[], list[AgentHandle]], examine: Callable[..., Evaluation], last: bool
    ):
        self.rows, self.metrics, self.step, self.last = rows, rows[-1], int(rows[-1]["step"]), last
        self._agents, self._examine = agents, examine
        self.reason: str | None = None  # why a callback stopped the run; None while none has

    @functools.cached_property
    def agents(self) -> list[AgentHandle]:
        """The agents of all seeds, as they are at this point."""
        return self._agents()

    @property
    def agent(self) -> AgentHandle:
        """That of the first seed."""
        return self.agents[0]

    def evaluate(self, episodes: int = 20, greedy: bool | None = None) -> Evaluation:
        """Separate evaluation episodes of all agents: greedy, as in training, or (`None`) both. Training does not notice."""
        return self._examine(self.agents, self.step, episodes, greedy)

    def log(self, **numbers: float | None) -> None:
        """Add numbers to the metrics of this point: they appear in `metrics.jsonl`, in TensorBoard and on the page."""
        for name, value in numbers.items():
            if name in self.metrics:
                raise ValueError(f"there is a metric '{name}' already")
            self.metrics[name] = jsonable(value)

    def stop(self, reason: str = "") -> None:
        """End the run at this point, when the other callbacks have seen it."""
        self.reason = reason


class Caller:
    """Calls the callbacks of a run, one after the other."""

    def __init__(self, callbacks: Sequence[Callback], seed: int, ranges: dict[str, Any] | None = None):
        """`ranges` are those of evaluations, if they have their own."""
        self.callbacks, self.seed, self.ranges = list(callbacks), seed, ranges
        self.stopped_by = ""  # a callback and its reason
        self._examiners: dict[int, Examiner] = {}  # by the number of episodes

    def __call__(self, rows: Sequence[Row], agents: Callable[[], list[AgentHandle]], last: bool) -> None:
        """Show all callbacks the last row."""
        point = Point(rows, agents, self.examine, last)
        for callback in self.callbacks:
            with naming(callback):
                answer = callback(point)
            # `is`, since a callback that ends with some number, 0 perhaps, did not mean to stop.
            if (answer is False or point.reason is not None) and not self.stopped_by:
                self.stopped_by = f"{name_of(callback)}: {point.reason}" if point.reason else name_of(callback)
        # A state that goes on is consumed, so agents can no longer be made from it.
        point._agents = too_late

    def examine(self, agents: list[AgentHandle], step: int, episodes: int, greedy: bool | None) -> Evaluation:
        """What `Point.evaluate` does. Other episodes at every step, and the same ones when the run is repeated."""
        if episodes not in self._examiners:
            self._examiners[episodes] = make_examiner(agents[0], episodes, self.ranges)
        key = jax.random.fold_in(evaluation_key(self.seed), step)
        return Evaluation("", self._examiners[episodes].scores(agents, key, ways_of(greedy)))


def too_late() -> list[AgentHandle]:
    """In the place of the agents of a point that is over."""
    raise RuntimeError("the agents of a point must be asked for inside of the callback: training has gone on since")


class CallbackFailed(Exception):
    """A callback raised; the cause is what it raised."""


class naming:
    """Around a call: an error that it raises is said to be that callback's."""

    def __init__(self, callback: Callback):
        self.callback = callback

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception):
            said = f"{error}" if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            raise CallbackFailed(f"the callback {name_of(self.callback)} failed ({said})") from error


def name_of(callback: Callback) -> str:
    """What a callback is called in a sentence."""
    return getattr(callback, "__name__", None) or type(callback).__name__


def check_callbacks(callback: Any) -> list[Callback]:
    """One callback or several, as a list; anything that cannot be called is refused."""
    found = [] if callback is None else list(callback) if isinstance(callback, list | tuple) else [callback]
    for each in found:
        if isinstance(each, type) or not callable(each):
            made = f": make one first, {each.__name__}(...)" if isinstance(each, type) else ""
            raise UserError(f"callback must be a function of a point, or a list of such, not {each!r}{made}")
    return found


# -- those that come with Rulax ------------------------------------------------------------------------------------------------


def known(rows: Sequence[Row], metric: str) -> list[tuple[int, float]]:
    """Steps and values of a metric, where it was measured."""
    return [(row["step"], row[metric]) for row in rows if isinstance(row.get(metric), int | float)]


def metric_of(rows: Sequence[Row], metric: str) -> str:
    """The metric to judge by: the one named, else the greedy return in evaluations, else the training return."""
    if not metric:
        return next((name for name in (GREEDY, SAMPLED) if any(name in row for row in rows)), TRAINING)
    names = sorted({name for row in rows for name, value in row.items() if not isinstance(value, list)})
    if metric not in names and not metric.startswith("evaluation_"):  # evaluations may be yet to come
        raise UserError(f"there is no metric '{metric}'{suggestion(metric, names, 'known: ' + ', '.join(names))}")
    return metric


class Evaluate:
    """Separate evaluation episodes during training, like `rulax train --eval-every`.

    Args:
        every: environment steps per seed between evaluations, made at the first logged point from there on; 0 means at every
            logged point. There is always one at the end of the budget.
        episodes: of each agent, and of each kind.
        greedy: True, False (actions drawn as in training), or None for both.
    """

    def __init__(self, every: int = 0, episodes: int = 20, greedy: bool | None = None):
        self.every, self.episodes, self.greedy = every, episodes, greedy

    def __call__(self, point: Point) -> None:
        before = point.rows[-2]["step"] if len(point.rows) > 1 else 0
        if point.last or not self.every or point.step // self.every > before // self.every:
            evaluation = point.evaluate(self.episodes, self.greedy)
            for way in evaluation.ways:
                scores = [score for score in evaluation.scores if score.way == way]
                point.log(**{f"evaluation_{way}_return": evaluation.mean_of(way), f"evaluation_{way}_length": mean_length(scores)})
                point.metrics[f"evaluation_{way}_return_per_seed"] = [score.mean for score in scores]


def mean_length(scores: Sequence[Score]) -> float | None:
    """Over agents, of the episodes that ended."""
    lengths = [score.length for score in scores if score.length is not None]
    return sum(lengths) / len(lengths) if lengths else None


class EarlyStopping:
    """Stops a run that has got where it should, or that gets no further.

    Args:
        patience: stop after so many measurements without a new best; 0 means never.
        threshold: stop as soon as the metric reaches this; None means never.
        metric: a name from `metrics.jsonl`; "" means the greedy return in evaluations where there are some, else the
            return of training episodes.
        least_gain: by how much a new best must exceed the old one.
    """

    def __init__(self, patience: int = 0, threshold: float | None = None, metric: str = "", least_gain: float = 0.0):
        if not patience and threshold is None:
            raise UserError("EarlyStopping needs a patience or a threshold, for example EarlyStopping(patience=10)")
        self.patience, self.threshold, self.metric, self.least_gain = patience, threshold, metric, least_gain

    def __call__(self, point: Point) -> None:
        metric = metric_of(point.rows, self.metric)
        values = known(point.rows, metric)
        # At points without a measurement nothing has changed.
        if not values or values[-1][0] != point.step:
            return
        if self.threshold is not None and values[-1][1] >= self.threshold:
            point.stop(f"{metric} reached {values[-1][1]:.4g}, which is at least {self.threshold:g}")
        best, at = values[0][1], 0
        for index, (_, value) in enumerate(values):
            if value > best + self.least_gain:
                best, at = value, index
        if self.patience and len(values) - 1 - at >= self.patience:
            point.stop(f"{metric} has not exceeded {best:.4g} (at step {values[at][0]:,}) for {len(values) - 1 - at} measurements")


class Best(NamedTuple):
    """The highest value so far."""

    value: float
    step: int
    seed: int


class SaveBest:
    """Saves the best agent so far as one file, whenever there is a better one: the agent of the best seed at the best point.

    Args:
        path: the file, which ends in `.safetensors`.
        metric: as for `EarlyStopping`. Returns are taken seed by seed; other metrics are means over seeds, and the first
            seed's agent is saved.
    """

    def __init__(self, path: str | Path, metric: str = ""):
        self.path, self.metric = Path(path), metric
        if self.path.suffix != ".safetensors":
            raise UserError(f"an agent is saved in a file that ends in .safetensors, not in '{self.path}'")

    def __call__(self, point: Point) -> None:
        best = self.best(point.rows)
        if best is not None and best.step == point.step:
            point.agents[best.seed].save(self.path)

    def best(self, rows: Sequence[Row]) -> Best | None:
        """The best of all rows; the earliest of equals."""
        metric = metric_of(rows, self.metric)
        each = "return_per_seed" if metric == TRAINING else f"{metric}_per_seed"
        found = None
        for row in rows:
            values = row.get(each) or [row.get(metric)]
            for seed, value in enumerate(values):
                if isinstance(value, int | float) and (found is None or value > found.value):
                    found = Best(float(value), row["step"], seed)
        return found

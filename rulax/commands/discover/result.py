"""What Python users hold after `rulax.discover(...)`: where the rule is, what was measured, and its picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rulax.commands.discover.settings import DiscoverConfig
from rulax.commands.discover.setup import PreparedDiscovery
from rulax.discovery.settings import PERTURBING, WHOLE, estimator_words
from rulax.files import write_json
from rulax.learning.life import warm_iterations
from rulax.records import folder as folders
from rulax.records import stages
from rulax.records.rows import Row
from rulax.report import discover_plot
from rulax.report.plot import save_figure


class Spent(NamedTuple):
    """How a rule is being found, and what that has cost so far."""

    estimator: str  # in words
    meta_steps: int
    agent_updates: int
    environment_steps: int
    seconds: float
    cpu_seconds: float
    bad_agents: int

    @classmethod
    def of(cls, prepared: PreparedDiscovery, steps: int, seconds: float, cpu_seconds: float, bad: int) -> Spent:
        """Counted from the settings; evaluations are not counted, except in time.

        What agents live counts, and not what a program saves: in short windows perturbed lives may share their first rollout.
        """
        settings, learning = prepared.discoverer.settings, prepared.recipe.learning
        whole = settings.fitness in WHOLE
        # Of one life in one meta-step; a whole one is as long as lives are on average, and needs no validation.
        updates = average(settings.lifetimes, lambda life: life) if whole else settings.window
        acted = updates * learning.unroll + (0 if whole else settings.validation_unroll)
        # Every antithetic pair lives two more, beside the one that the population itself lives.
        lives = 1 + 2 * settings.pairs if settings.estimator in PERTURBING else 1
        updates, acted = lives * updates, lives * acted
        if settings.objective == "bootstrap" and not whole:
            # Its validation is that of the window.
            updates += settings.bootstrap_updates
            acted += settings.bootstrap_updates * learning.unroll
        # Who is born fills its replay first; perturbed lives begin with what is in it.
        windows = 1 if whole else average(settings.lifetimes, lambda life: -(-life // settings.window))
        filled = -(-steps // windows) * warm_iterations(learning) * learning.unroll
        agents = settings.agents * len(prepared.training)
        lived = round(agents * steps * updates), round(agents * (steps * acted + filled) * learning.streams)
        return cls(estimator_words(vars(settings)), steps, *lived, round(seconds, 1), round(cpu_seconds, 1), bad)


def average(lifetimes: tuple[int, ...], of: Callable[[int], float]) -> float:
    """Of something that depends on the length of a life, which is drawn as `draw_budget` does it."""
    return sum(of(life) / life for life in lifetimes) / sum(1 / life for life in lifetimes)


class DiscoveryRun:
    """A discovery, finished or interrupted."""

    def __init__(self, config: DiscoverConfig, folder: Path, rows: list[Row], finished: bool, spent: Spent):
        self.config, self.folder, self.rows, self.finished, self.spent = config, folder, rows, finished, spent
        self.results: dict[str, Any] = {}  # the first, the best and the last evaluation
        self.baselines: dict[str, dict[str, float]] = {}  # by family

    @property
    def rule_path(self) -> Path:
        """The best rule: `rulax.train("catch", rule=str(run.rule_path))`."""
        return self.folder / folders.RULE

    @property
    def scores(self) -> dict[str, Any]:
        """The best rule's scores: means of both kinds of families, and one per family."""
        best = self.results.get("best") or {}
        return {name: best.get(f"{name}_score") for name in ("training", "validation")} | {"families": best.get("scores", {})}

    def summary(self) -> dict[str, Any]:
        """The result in a few numbers; the content of summary.json."""
        return {"suite": self.config.suite, "finished": self.finished, **self.spent._asdict(), **self.results}

    def plot(self, path: str | Path | None = None) -> Any:
        """Scores and returns as a matplotlib figure; also written to `path`, if there is one."""
        figure = discover_plot.discovery_figure(self.config, self.rows, self.baselines)
        if path is not None:
            save_figure(Path(path), figure)
        return figure

    def write_results(self, record: Callable[[str], None] = lambda stage: None) -> None:
        """Summary, curve and page, into the run folder; `record` is told what is done."""
        from rulax.report.discover import write_discover_page

        write_json(self.folder / folders.SUMMARY, self.summary())
        record(stages.SUMMARY)
        # After the summary and before the page: pictures need matplotlib, and if that fails the numbers are written.
        self.plot(self.folder / folders.CURVE)
        record(stages.CURVE)
        write_discover_page(self.folder)
        record(stages.PAGE)

    def __repr__(self) -> str:
        best = self.results.get("best")
        shown = "not evaluated yet" if best is None else f"best rule at meta-step {best['step']}"
        return f"DiscoveryRun({self.config.suite}, {self.spent.meta_steps:,} meta-steps, {shown})"

"""The discoveries of a study: every point from several seeds, each a run folder of `rulax discover`, judged once more in families
that decide about nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from rulax.commands.discover import run as discover
from rulax.commands.discover.evaluations import Evaluator, Phase, Say
from rulax.commands.discover.settings import DiscoverConfig, build_discover
from rulax.commands.discover.setup import PreparedDiscovery, check_held_out, make_families, prepare_discovery
from rulax.commands.progress import Silent
from rulax.commands.signals import StopRequest
from rulax.commands.study.plan import Plan, Point
from rulax.commands.study.settings import StudyConfig
from rulax.errors import TrainingStopped, UserError
from rulax.files import read_json, write_json
from rulax.records import folder as folders
from rulax.records import stages
from rulax.records.provenance import fingerprint

CELLS, HELD_OUT, FAILED, BASELINES = "discoveries", "held_out.json", "failed.json", "baselines.json"


class StudyCell(NamedTuple):
    """One discovery."""

    point: Point
    seed: int
    config: DiscoverConfig

    @property
    def folder(self) -> Path:
        """Its run folder."""
        return Path(self.config.out)

    @property
    def title(self) -> str:
        """What it is called while it goes on."""
        return f"{self.point.label} · seed {self.seed}"

    @property
    def failure(self) -> str:
        """Why it could not be made to its end, if so."""
        return read_json(self.folder / FAILED, dict[str, str]).get("reason", "")

    @property
    def discovered(self) -> bool:
        """Whether its discovery is at its end."""
        summary = read_json(self.folder / folders.SUMMARY, folders.Summary)
        return bool(summary.get("finished")) and not stages.missing(self.folder, stages.OF_DISCOVERY, summary.get("meta_steps", -1))

    @property
    def held_out(self) -> dict[str, Any]:
        """The scores of its rule in the families that decided about nothing, once they are known."""
        return read_json(self.folder / HELD_OUT, dict[str, dict[str, float | None]])

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return bool(self.failure or (self.discovered and self.held_out))


def make_cells(plan: Plan, config: StudyConfig, folder: Path) -> list[StudyCell]:
    """All discoveries, seed by seed and not point by point, so that a study that is stopped early can be read already."""
    seeds = range(config.seed, config.seed + config.seeds)
    return [make_cell(plan, point, config, seed, folder) for seed in seeds for point in plan.points.values()]


def make_cell(plan: Plan, point: Point, config: StudyConfig, seed: int, folder: Path) -> StudyCell:
    """One discovery, with the configuration that `rulax discover` would have."""
    options = plan.settings.get("rule_options", {}) | point.settings.get("rule_options", {})
    values = plan.settings | point.settings | {"seed": seed, "out": str(folder / CELLS / f"{point.name}-{seed}"), "quiet": True}
    values |= {"rule_options": options} if options else {}
    values |= {"steps": config.steps} if config.steps else {}
    values |= {"platform": config.platform}
    try:
        return StudyCell(point, seed, build_discover(values))
    except UserError as error:
        raise UserError(f"study {plan.name}, point {point.name}: {error}") from error


def check(plan: Plan, cells: list[StudyCell]) -> None:
    """Build one discovery of every point, which finds every mistake; the held-out families must be in none of them."""
    held_out = make_families(plan.held_out)
    for cell in {cell.point.name: cell for cell in cells}.values():
        try:
            prepared = prepare_discovery(cell.config)
            check_held_out(prepared.training | prepared.validation, held_out)
            prepared.discoverer.close()
        except UserError as error:
            raise UserError(f"study {plan.name}, point {cell.point.name}: {error}") from error


def run_cell(plan: Plan, cell: StudyCell, progress: Silent, stop: StopRequest, shared: Path) -> None:
    """Discover a rule, from the checkpoint if there is one, and judge it in the held-out families.

    Args:
        plan: the study.
        cell: the discovery.
        progress: is told how far it has come.
        stop: whether the user asked to stop.
        shared: the folder of the study, where baselines are kept that serve several discoveries.
    """
    (cell.folder / FAILED).unlink(missing_ok=True)
    prepared = prepare_discovery(cell.config)
    known = Baselines(shared, prepared)
    known.lend(cell.folder)
    try:
        if not cell.discovered:
            if (cell.folder / folders.CONFIG).exists():
                discover.resume({"resume": str(cell.folder), "quiet": True}, progress, stop)
            else:
                discover.start(cell.config, progress, stop)
        if not cell.held_out:
            judge(plan, cell, prepared, progress.message, progress.phase, lambda: stop.requested)
    except TrainingStopped as error:
        folders.create(cell.folder)
        write_json(cell.folder / FAILED, {"reason": str(error)})
    finally:
        known.take(cell.folder)
        prepared.discoverer.close()
        jax.clear_caches()  # the next point compiles other programs, and those of many would fill the memory


def judge(plan: Plan, cell: StudyCell, prepared: PreparedDiscovery, say: Say, phase: Phase, stopped: Callable[[], bool]) -> None:
    """The rule that validation chose, on fresh agents in the held-out families; nothing is written if the user asked to stop."""
    from rulax.rules.pretrained import load_rule

    rule = load_rule(cell.folder / folders.RULE)
    evaluator = Evaluator(prepared._replace(training={}, validation=make_families(plan.held_out)), cell.folder)
    try:
        evaluator.measure(say, phase)
        returns = evaluator.returns_of(rule.params, "evaluating the rule in families held out", stopped, phase)
    finally:
        evaluator.close()
    if returns is not None:
        scores = {name: evaluator.baselines[name].score(value) for name, value in returns.items()}
        write_json(cell.folder / HELD_OUT, {"returns": returns, "scores": scores})


class Baselines:
    """Returns of untrained agents and of actor-critic, measured once for all discoveries whose evaluations are the same."""

    def __init__(self, shared: Path, prepared: PreparedDiscovery):
        self.path, config, recipe = shared / BASELINES, prepared.config, prepared.recipe
        # All that an evaluation depends on: how untrained agents act is fixed by their network, the heads of the rule included.
        parts = [vars(recipe.learning), vars(recipe.network), vars(prepared.sizes)]
        parts += [config.evaluation_seeds, config.evaluation_updates]
        self.key = fingerprint([repr(part) for part in parts])

    def lend(self, folder: Path) -> None:
        """Put what is known into the folder of a discovery that has not measured its own."""
        known = read_json(self.path, dict[str, dict[str, Any]]).get(self.key)
        if known and not (folder / folders.BASELINES).exists():
            folders.create(folder)
            write_json(folder / folders.BASELINES, known)

    def take(self, folder: Path) -> None:
        """Keep what a discovery has measured."""
        measured = read_json(folder / folders.BASELINES)
        if measured:
            known = read_json(self.path)
            write_json(self.path, known | {self.key: known.get(self.key, {}) | measured})

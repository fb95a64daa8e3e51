"""The evaluations of a discovery run: two baselines per family, measured once, and the scores of a rule in every family."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rulax.commands.discover.setup import PreparedDiscovery
from rulax.discovery.evaluate import Baselines, FamilyEvaluation, evaluation_steps, measure_baselines
from rulax.discovery.population import listed
from rulax.envs.base import Environment, HostEnvironment
from rulax.errors import TrainingStopped
from rulax.files import jsonable, read_json, write_json
from rulax.parallel.together import together
from rulax.records.folder import BASELINES
from rulax.text import plural

HAND_DESIGNED = "actor_critic"
Say = Callable[[str], None]
Phase = Callable[[str, int, int], None]  # what is being done, how many of its parts are done, of how many


@dataclasses.dataclass
class Scores:
    """The returns of fresh agents with one rule."""

    step: int
    returns: dict[str, float]  # by family
    scores: dict[str, float]
    training_score: float
    validation_score: float | None  # None without validation families
    restarts: int = 0  # of environments on the host

    @property
    def choice(self) -> float:
        """The score that picks the best rule."""
        # Held-out families decide where there are some: a rule that fits only its training families should not win.
        return self.training_score if self.validation_score is None else self.validation_score

    def row(self, seconds: float) -> dict[str, Any]:
        """One line of `metrics.jsonl`."""
        row: dict[str, Any] = {"kind": "evaluation", "step": self.step, "seconds": round(seconds, 3)}
        row |= {"training_score": self.training_score, "validation_score": self.validation_score}
        row |= {"restarts": self.restarts} if self.restarts else {}
        row |= {f"evaluation_return/{name}": jsonable(value) for name, value in self.returns.items()}
        return row | {f"score/{name}": value for name, value in self.scores.items()}


class Evaluator:
    """All evaluations of a run."""

    def __init__(self, prepared: PreparedDiscovery, folder: Path):
        self.prepared, self.folder = prepared, folder
        self.environments = prepared.training | prepared.validation
        self.steps = evaluation_steps(prepared.recipe, prepared.config.evaluation_updates)
        self.evaluations: dict[str, FamilyEvaluation] = {}
        self.baselines: dict[str, Baselines] = {}
        self.seconds: float | None = None  # that the last evaluation took, compiling not counted; None before the first

    def measure(self, say: Say, phase: Phase) -> None:
        """The baselines, once per run; a resumed run reads them from its folder."""
        path = self.folder / BASELINES
        saved = read_json(path, dict[str, Baselines])  # of another form they are measured anew
        missing = [name for name in self.environments if name not in saved]
        if missing:
            text = f"measuring untrained agents and {HAND_DESIGNED} in {listed(missing)}"
            # At once, because most of the time is compilation, which uses one core for each program.
            found = together(lambda name: self.measure_one(name, self.environments[name]), missing, functools.partial(phase, text))
            saved |= {name: baselines._asdict() for name, (baselines, _) in zip(missing, found, strict=True)}
            write_json(path, saved)
            for name, (_, restarts) in zip(missing, found, strict=True):
                if restarts:
                    say(f"warning: while {name} was measured, environments failed: {plural(restarts, 'restart')}")
        self.baselines = {name: Baselines(**saved[name]) for name in self.environments}
        # Only for what was measured now: a resumed run has given its warnings before.
        for name in missing:
            self.warn(name, say)

    def measure_one(self, name: str, environment: Environment | HostEnvironment) -> tuple[Baselines, int]:
        """Both baselines of one family, and how many environments failed."""
        from rulax.rules.registry import make_rule

        recipe, config = self.prepared.recipe, self.prepared.config
        hand_designed = make_rule(HAND_DESIGNED)
        # As many streams as the discovered rule has: episodes get as long a time to end. Its schedule ends with the evaluation, so
        # that it is at its best when it is measured. All else is as recommended.
        learning = dataclasses.replace(hand_designed.learning, streams=recipe.learning.streams, schedule_steps=0)
        hand_designed = hand_designed._replace(learning=learning)
        sizes = config.evaluation_seeds, self.steps
        found, restarts = measure_baselines(name, environment, recipe, hand_designed, *sizes, config.most_restarts)
        # Without a return there is no scale for scores. Stopped now, before hours of meta-steps that could not be judged.
        if not all(math.isfinite(value) for value in found):
            per_stream = self.steps // recipe.learning.streams
            raise TrainingStopped(
                f"no episode of '{name}' ended within an evaluation of {per_stream} steps per stream; raise --evaluation-updates"
            )
        return found, restarts

    def warn(self, name: str, say: Say) -> None:
        """Say where a score has no scale."""
        untrained, hand_designed = self.baselines[name]
        # Where the hand-designed rule gains next to nothing the scale is one unit of return, as a tiny difference would blow up
        # every score.
        if self.baselines[name].scale != hand_designed - untrained:
            say(
                f"warning: {HAND_DESIGNED} gains nothing in {name} within an evaluation ({untrained:.3g} -> {hand_designed:.3g}); "
                "a score of 1 there means one unit of return; a larger --evaluation-updates may help"
            )

    def evaluate(self, rule_params: Any, step: int, stopped: Callable[[], bool], phase: Phase) -> Scores | None:
        """The rule of a meta-step in every family; None if the user asked to stop."""
        failed = sum(each.restarts for each in self.evaluations.values())
        returns = self.returns_of(rule_params, f"evaluating the rule of meta-step {step}", stopped, phase)
        if returns is None:
            return None
        failed = sum(each.restarts for each in self.evaluations.values()) - failed
        return dataclasses.replace(self.judge(step, returns), restarts=failed)

    def returns_of(self, rule_params: Any, text: str, stopped: Callable[[], bool], phase: Phase) -> dict[str, float] | None:
        """The final returns of fresh agents with a rule, by family; None if the user asked to stop."""
        returns = {}
        # Made when first needed and kept: every evaluation of a run uses the same compiled programs.
        if not self.evaluations:
            made = {name: self.make_evaluation(name) for name in self.environments}
            compiling = f"compiling the evaluation in {listed(list(made))}"
            together(lambda evaluation: evaluation.prepare(), made.values(), functools.partial(phase, compiling))
            self.evaluations = made
        began = time.monotonic()
        for done, (name, evaluation) in enumerate(self.evaluations.items()):
            phase(text, done, len(self.evaluations))
            found = evaluation.run(rule_params, stopped)
            # Families that are already done are thrown away too, since a mean over some would be of other families than the rest.
            if found is None:
                return None
            returns[name] = found
        self.seconds = time.monotonic() - began
        return returns

    def make_evaluation(self, name: str) -> FamilyEvaluation:
        """Fresh agents in one family."""
        config = self.prepared.config
        sizes = config.evaluation_seeds, self.steps
        return FamilyEvaluation(name, self.environments[name], self.prepared.recipe, *sizes, most_restarts=config.most_restarts)

    def close(self) -> None:
        """Close host environments."""
        for evaluation in self.evaluations.values():
            evaluation.close()

    def judge(self, step: int, returns: dict[str, float]) -> Scores:
        """Returns as scores, and their means over the two kinds of families."""
        scores = {name: self.baselines[name].score(value) for name, value in returns.items()}
        training = [scores[name] for name in self.prepared.training]
        validation = [scores[name] for name in self.prepared.validation]
        held_out = sum(validation) / len(validation) if validation else None
        return Scores(step, returns, scores, sum(training) / len(training), held_out)

"""The search itself: Optuna's tree-structured Parzen estimator, with a journal in the folder of the sweep.

The journal is text, one JSON object per line. What is tried next depends only on the journal, the seed and the number of the trial,
so a sweep that was interrupted tries what it would have tried.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rulax.commands.search_space import Choices, Dimension, Range
from rulax.errors import UserError
from rulax.files.reading import DAMAGE, read_bytes

JOURNAL = "trials.jsonl"
FEWEST = 4  # finished trials for a statement about what mattered


class Trial(NamedTuple):
    """One try."""

    number: int
    values: dict[str, Any]  # settings by name
    score: float | None = None  # None if it is not finished, or failed
    finished: bool = False
    reason: str = ""  # why it failed
    recommended: bool = False  # whether these are the settings that the rule recommends


def check_installed() -> None:
    """Refuse before anything starts if Optuna is not there."""
    if importlib.util.find_spec("optuna") is None:
        raise UserError("--tune needs Optuna, which is not installed: pip install 'rulax[tune]'")


class Study:
    """All tries of a sweep, in its journal."""

    def __init__(self, folder: Path, space: Mapping[str, Dimension], seed: int):
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)  # our own progress says it
        self.space, self.seed, self.path = dict(space), seed, folder / JOURNAL
        self.distributions = {name: _distribution(dimension) for name, dimension in space.items()}
        # Left by a sweep that was killed as it wrote; Optuna would wait half a minute for it. The folder is ours (`at_work`).
        Path(f"{self.path}.lock").unlink(missing_ok=True)
        if os.path.lexists(self.path):
            read_bytes(self.path)  # Optuna would read a device without end, and wait at a pipe
        try:
            storage = JournalStorage(JournalFileBackend(str(self.path)))
            self.study = optuna.create_study(storage=storage, study_name="sweep", direction="maximize", load_if_exists=True)
            self.check()
        except (RuntimeError, *DAMAGE) as error:  # whatever Optuna raises for lines that are none of its own
            raise UserError(f"{self.path} cannot be read as the journal of a sweep: {error}") from error

    def check(self) -> None:
        """That the journal is of this search."""
        for found in self.study.get_trials(deepcopy=False):
            if found.params and found.distributions != self.distributions:
                raise ValueError("it is of another search")
        self.trials()  # whose values may be anything

    def ask(self, recommended: Mapping[str, Any]) -> Trial:
        """The next settings to try: of a trial that is not finished, or new ones; the very first are `recommended`, if any."""
        from optuna.samplers import TPESampler
        from optuna.trial import TrialState

        for found in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if found.params:
                return self.read(found)
            # It was interrupted between its number and its settings.
            self.fail(found.number, "interrupted before it began")
        number = len(self.study.get_trials(deepcopy=False))
        if number == 0 and recommended:
            self.study.enqueue_trial(self.written(recommended), {"recommended": True})
        # A new one each time: a sampler does not save its random numbers, and a resumed sweep would draw the first ones again.
        self.study.sampler = TPESampler(seed=(self.seed + number) % 2**32)
        asked = self.study.ask(self.distributions)
        return self.trials()[asked.number]

    def tell(self, number: int, score: float) -> None:
        """What a trial came to."""
        self.study.tell(number, score)

    def fail(self, number: int, reason: str) -> None:
        """That a trial came to nothing, and why."""
        from optuna.trial import TrialState

        self.study._storage.set_trial_user_attr(self.study.get_trials(deepcopy=False)[number]._trial_id, "reason", reason)
        self.study.tell(number, state=TrialState.FAIL)

    def trials(self) -> list[Trial]:
        """All that have been begun, by number."""
        return [self.read(found) for found in self.study.get_trials(deepcopy=False)]

    def best(self) -> Trial | None:
        """The one with the highest score, the first of several."""
        scored = [trial for trial in self.trials() if trial.score is not None]
        return max(scored, key=lambda trial: (trial.score, -trial.number), default=None)

    def importances(self) -> dict[str, float] | None:
        """How much each setting has to do with being among the best (PED-ANOVA, Watanabe et al. 2023); all together are 1.

        None where too few trials are finished to tell, or all came to the same.
        """
        import optuna

        scores = [trial.score for trial in self.trials() if trial.score is not None]
        if len(scores) < FEWEST or len(set(scores)) < 2:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the evaluator is experimental
            # The best quarter, not Optuna's tenth: of 20 trials a tenth is two.
            evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=0.25)
            found = optuna.importance.get_param_importances(self.study, evaluator=evaluator)
        return {name: float(found.get(name, 0.0)) for name in self.space}

    def written(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Settings as the journal holds them: of a list, the text of each."""
        return {name: _text(self.space[name], value) for name, value in values.items()}

    def read(self, found: Any) -> Trial:
        """A trial of Optuna's as ours."""
        values = {name: _value(self.space[name], found.params[name]) for name in self.space if name in found.params}
        facts = found.user_attrs
        return Trial(
            found.number, values, found.value, found.state.is_finished(), facts.get("reason", ""), facts.get("recommended", False)
        )


def _distribution(dimension: Dimension) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Choices):
        return CategoricalDistribution(list(dimension.values))
    if dimension.whole:
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def _text(dimension: Dimension, value: Any) -> Any:
    return value if isinstance(dimension, Range) else next(text for text, each in dimension.values.items() if each == value)


def _value(dimension: Dimension, stored: Any) -> Any:
    if isinstance(dimension, Choices):
        return dimension.values[stored]
    return int(stored) if dimension.whole else float(stored)

"""What a user may choose for `rulax tune`. No JAX here: `--help` reads this file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from rulax.commands.fields import flag_name
from rulax.commands.search_space import EXAMPLES, NO_RANGE, Dimension, join_tuning, read_space, seed_of_trials, split_rule
from rulax.commands.settings import check_bounds, recorded
from rulax.commands.train.settings import TUNING, WHAT, TrainConfig, build_train, check_train
from rulax.errors import UserError
from rulax.settings import setting


@dataclasses.dataclass(frozen=True)
class TuneConfig(TrainConfig):
    """Search for settings: many short trainings, then one with the best settings on seeds that it was not chosen by."""

    steps: int = setting(500_000, WHAT, at_least=1)
    """Environment steps per seed of the last training, with the best settings [default: what the rule recommends]."""
    seeds: int = setting(5, WHAT, at_least=1)
    """Agents of the last training; its seeds are others than those of the trials."""
    trials: int = setting(20, "tuning", at_least=1, on_resume=True)
    """Settings to try; the first are those that the rule recommends, if they are among what may be tried."""

    @property
    def space(self) -> dict[str, Dimension]:
        """What may be tried, by name."""
        return read_space(self.tune, TuneConfig, self.overrides, self.rule_options)


def build_tune(values: Mapping[str, Any]) -> TuneConfig:
    """A configuration with everything resolved and checked, so that it can be written down and compared with another."""
    config = build_train(values, TuneConfig)
    config = dataclasses.replace(config, tune=join_tuning(config.tune, NO_RANGE), tune_steps=config.tune_steps or config.steps)
    check_train(dataclasses.replace(config, tune=()))
    check_bounds(config)
    if config.population or config.schedule_file:
        raise UserError("a search for settings trains with fixed ones; a population is rulax train ENV --population K --tune NAME")
    # A trial that may stop early is not comparable with the others, and each would overwrite the best agent of the one before.
    early = [name for name, given in (("stop_at", config.stop_at != math.inf), ("patience", config.patience)) if given]
    early += ["save_best"] if config.save_best else []
    if early:
        raise UserError(f"{flag_name(early[0])} cannot be given in a search for settings, whose trials all have the same budget")
    if not config.space:
        raise UserError(f"which settings? for example: rulax tune catch --tune {EXAMPLES}")
    return config


def settings_of(config: TuneConfig) -> dict[str, Any]:
    """What config.json says: all that fixes the result."""
    return recorded(config) | config.overrides


def training(config: TuneConfig, out: str, values: Mapping[str, Any], trial: bool) -> TrainConfig:
    """One training of a sweep: a trial with its settings, or the last one with the best."""
    overrides, options = split_rule(values)
    kept = {field.name: getattr(config, field.name) for field in dataclasses.fields(TrainConfig) if field.name not in TUNING}
    kept |= {"out": out, "quiet": True, "preset": "", "resume": ""}
    kept |= {"overrides": config.overrides | overrides, "rule_options": config.rule_options | options}
    if trial:
        kept |= {"steps": config.tune_steps, "seeds": config.tune_seeds, "seed": seed_of_trials(config.seed)}
        kept |= {"eval_every": 0, "animation": False}  # only of the result
    return TrainConfig(**kept)

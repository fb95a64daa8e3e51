"""What `rulax train` calls: a single run, which may be a population, or with `--tune` alone a search for settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rulax.commands.fields import flag_name
from rulax.commands.train.settings import TUNING, TrainConfig, build_train
from rulax.errors import UserError
from rulax.records import folder as folders


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    # Here and not in the folder of `train`, which knows nothing of searches.
    if is_sweep(values):
        from rulax.commands.tune.run import command as tune

        return tune(values)
    from rulax.commands.train.run import command as train

    return train(values)


def is_sweep(values: dict[str, Any]) -> bool:
    """Whether these are settings of a search for settings, or the folder of one."""
    if values.get("resume"):
        return folders.read_config(Path(values["resume"]))["kind"] == "tune"
    config = build_train(values, TrainConfig)  # with a preset too
    tuned = config.tune and not config.population  # a population tunes while it trains
    without = [name for name in TUNING if name in values and not (name == "tune" and config.population)]
    if without and not tuned:
        raise UserError(f"{flag_name(without[0])} is for a search for settings: give --tune KEY=LOW:HIGH too, or leave it out")
    return bool(tuned)

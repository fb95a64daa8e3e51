"""What Python users hold after `rulax.train(...)` or `rulax.load(folder)`: a run's curve, its numbers and its agents."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import numpy as np

from rulax.commands.resume import read_record
from rulax.commands.train.agent import AgentHandle
from rulax.commands.train.settings import TrainConfig
from rulax.commands.train.setup import KIND, check_own, prepare, saved_config
from rulax.errors import UserError
from rulax.evaluation.normalised import normalised
from rulax.files import write_json
from rulax.records import folder as folders
from rulax.records.rows import RESTARTS, Row, final_returns, number, read_rows
from rulax.report import plot
from rulax.text import plural, shown_return

HAND_OVER = (
    "; hand a Gymnasium environment over by what makes it: from rulax.envs.adapters.gymnasium import from_gymnasium, then "
    "rulax.train(from_gymnasium(lambda: MyEnv()))"
)


class Run:
    """A run, finished or interrupted: its curve, its numbers, its agents."""

    def __init__(self, config: TrainConfig, folder: Path | None, rows: list[Row], finished: bool, seconds: float):
        self.config, self.folder, self.rows, self.finished, self.seconds = config, folder, rows, finished, seconds
        self.steps_per_second = 0.0  # of all seeds, compiling not counted; 0 if not measured
        self.cpu_seconds: float | None = None  # None if not measured
        self.restarts: int | None = None  # of environments that raised, where rows do not reach the end; None: the rows know
        self.last_failure = ""  # what the last of them said
        self.made: int | None = None  # environment steps per seed, where rows do not reach the end; None: the rows know
        self.source: tuple[Any, Any, Any] | None = None  # environment, trainer, state; None: they are in the folder
        self.own: tuple[Any, Any] = (None, None)  # environment and recipe, where they are not made from their names

    @property
    def steps(self) -> np.ndarray:
        """Environment steps per seed at each point of the curve, [P]."""
        return np.array([row["step"] for row in self.rows], np.int64)

    @property
    def returns(self) -> np.ndarray:
        """Mean return of the episodes that ended in each part of the run, [P, K]; NaN where none ended."""
        # Reshaped, because an empty list of rows has lost its second axis.
        return as_array([row["return_per_seed"] for row in self.rows]).reshape(-1, self.config.seeds)

    @property
    def final_returns(self) -> list[float | None]:
        """Per seed, the mean over the last tenth of the run."""
        return final_returns(self.rows)

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """Everything that was measured, by name, averaged over seeds, [P]."""
        names = [name for name in (self.rows[-1] if self.rows else {}) if not name.endswith("_per_seed")]
        return {name: as_array([row.get(name) for row in self.rows]) for name in names}

    # Cached: handles remember their episode, so asking twice must give the same ones, and restoring builds a trainer.
    @functools.cached_property
    def agents(self) -> list[AgentHandle]:
        """The trained agents, one per seed."""
        environment, trainer, state = self.source or restore(self)
        return [AgentHandle(trainer.agent(state, seed), environment) for seed in range(self.config.seeds)]

    @property
    def agent(self) -> AgentHandle:
        """The first seed's agent: `run.agent.act(observation)`."""
        return self.agents[0]

    @property
    def title(self) -> str:
        """What the run is called in a picture."""
        return f"{self.config.env} · {self.config.rule} · {plural(self.config.seeds, 'seed')}"

    def plot(self, path: str | Path | None = None) -> Any:
        """The learning curve as a matplotlib figure; also written to `path`, if there is one."""
        if path is not None:
            plot.save_curve(Path(path), self.steps, self.returns, self.title)
        return plot.curve_figure(self.steps, self.returns, self.title)

    def summary(self) -> dict[str, Any]:
        """The result in a few numbers; the content of summary.json."""
        final = self.final_returns
        known = [value for value in final if value is not None]
        mean = sum(known) / len(known) if known else None
        restarts = sum(row.get(RESTARTS) or 0 for row in self.rows) if self.restarts is None else self.restarts
        return {
            "env": self.config.env,
            "rule": self.config.rule,
            "seeds": self.config.seeds,
            "steps": self.made if self.made is not None else int(self.steps[-1]) if self.rows else 0,
            "finished": self.finished,
            "seconds": round(self.seconds, 1),
            "cpu_seconds": None if self.cpu_seconds is None else number(round(self.cpu_seconds, 1)),
            "final_return": mean,
            "final_return_per_seed": final,
            "normalised": None if mean is None else normalised(self.config.env, mean, self.config.env_options),
        } | ({RESTARTS: restarts, "last_failure": self.last_failure} if restarts else {})

    def write_results(self) -> None:
        """Curve, summary and page, into the run folder."""
        from rulax.report.train import write_train_page

        assert self.folder is not None
        # Before the page, which reads it.
        write_json(self.folder / folders.SUMMARY, self.summary())
        plot.save_curve(self.folder / folders.CURVE, self.steps, self.returns, self.title)
        write_train_page(self.folder)

    def __repr__(self) -> str:
        final = self.summary()["final_return"]
        shown = "no episode ended" if final is None else f"final return {shown_return(final)}"
        return f"Run({self.title}, {self.summary()['steps']:,} steps, {shown})"


def as_array(values: list[Any]) -> np.ndarray:
    """JSON's null is our NaN."""
    return np.array(values, dtype=object).astype(np.float64)


def load(folder: str | Path, env: Any = None, rule: Any = None) -> Run:
    """A run from its folder; its agents are restored when they are first asked for.

    `env` and `rule` are needed only for the agents of a run that was made with an `Environment` or a `Recipe` of your own.
    """
    folder = Path(folder)
    # A name would be silently ignored, as the folder says already what the run was made with.
    if isinstance(env, str) or isinstance(rule, str):
        raise UserError("load takes an Environment and a Recipe of your own; a run that has names for them needs neither")
    config = saved_config(read_record(folder, KIND), {})
    rows = read_rows(folder)
    # From the rows and not from summary.json, which a killed run does not have and a resumed one has outlived.
    finished = bool(rows) and rows[-1]["step"] >= config.steps
    run = Run(config, folder, rows, finished, rows[-1]["seconds"] if rows else 0.0)
    run.own = own_objects(env, rule)
    return run


def restore(run: Run) -> tuple[Any, Any, Any]:
    """Environment, trainer and state of a run that is only in a folder."""
    from rulax.records import checkpoint

    assert run.folder is not None
    # Only here and not in `load`: curve and numbers of such a run can be read without its objects.
    check_own(folders.read_config(run.folder), str(run.folder), *run.own)
    prepared = prepare(run.config, *run.own)
    path = run.folder / folders.CHECKPOINT
    state = checkpoint.unpack(checkpoint.load(path), prepared.trainer.skeleton(), path)
    # Agents need the parameters and the environment's description, not the streams that a host trainer has opened.
    prepared.trainer.close()
    return prepared.environment, prepared.trainer, state


def own_objects(env: Any, rule: Any) -> tuple[Any, Any]:
    """Environment and recipe, where the user gave objects instead of names; anything else is refused."""
    from rulax.envs.base import Environment, HostEnvironment
    from rulax.rules.base import Recipe

    # None, that nothing was given, stays None as well.
    environment = env if not isinstance(env, str) else None
    if environment is not None and not isinstance(env, Environment | HostEnvironment):
        hint = HAND_OVER if of_gymnasium(env) or callable(env) else ""
        raise UserError(f"env must be a name such as 'catch' or an Environment, not {env!r}{hint}")
    recipe = rule if not isinstance(rule, str) else None
    if recipe is not None and not isinstance(recipe, Recipe):
        raise UserError(f"rule must be a name such as 'ppo' or a Recipe (a rule with its settings), not {type(rule).__name__}")
    return environment, recipe


def of_gymnasium(env: Any) -> bool:
    """Whether it is an environment of Gymnasium, a single copy of which is not enough. Gymnasium itself is not imported."""
    # Whoever holds such an environment has imported the package; for all others it may not even be installed.
    return "gymnasium" in sys.modules and isinstance(env, sys.modules["gymnasium"].Env)

"""What Python users call: `rulax.train(...)`, `rulax.discover(...)`, `rulax.compare(...)`, `rulax.load(folder)`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rulax.commands.compare.settings import CompareConfig
from rulax.commands.discover.settings import DiscoverConfig
from rulax.commands.settings import read_values
from rulax.commands.train.result import Run, load, own_objects
from rulax.commands.train.settings import TrainConfig, build_train

if TYPE_CHECKING:
    from rulax.commands.compare.show import Comparison
    from rulax.commands.discover.result import DiscoveryRun

__all__ = ["Run", "compare", "discover", "load", "train"]


def train(
    env: Any = None,
    rule: Any = None,
    steps: Any = None,
    seeds: int | None = None,
    out: str | Path | None = None,
    **overrides: Any,
) -> Run:
    """Train agents: `rulax.train("catch", rule="ppo", steps=100_000, seeds=3)`.

    `env` and `rule` are names, or an `Environment` and a `Recipe` of your own (`from_gymnasium` of `envs/adapters/gymnasium.py`
    makes the one). Every other setting of `rulax train` is a keyword: `seed`, `quiet`, `preset`, `task`, `env_options`,
    `rule_options`, `learning_rate`, `hidden`, ... Without `out` nothing is written. `rulax.train(resume=folder, steps=...)` goes
    on with an earlier run.
    """
    from rulax.commands.train.run import resume, start

    values: dict[str, Any] = {"env": env, "rule": rule, "steps": steps, "seeds": seeds, "out": out, **overrides}
    # Before names are put in their place; what is neither is refused here, with a hint for Gymnasium's environments.
    environment, recipe = own_objects(env, rule)
    if values.get("resume"):
        # Objects cannot be converted to settings. The folder knows what they were called.
        own = [name for name, given in (("env", environment), ("rule", recipe)) if given is not None]
        given = {name: value for name, value in values.items() if value is not None and name not in own}
        return resume(read_values(TrainConfig, given), environment, recipe)
    if environment is not None:
        name = getattr(env, "name", None)  # an adapter's environment has one
        values["env"] = name if name and isinstance(name, str) else type(env).__name__
    if recipe is not None:
        values["rule"] = "custom"
    # In Python results are held in memory, so a folder is made only for those who name one.
    return start(build_train(values), out is not None, environment, recipe)


def discover(suite: Any = None, steps: Any = None, out: str | Path | None = None, **overrides: Any) -> DiscoveryRun:
    """Discover a rule: `run = rulax.discover("grids", steps=100)`, then `run.rule_path`, `run.scores`, `run.rows`, `run.plot()`.

    `suite` is the name of a suite, or environments: `"catch:rows=5,columns=5"`, or a list of such. Every other setting of
    `rulax discover` is a keyword. Without `out` the run folder is a new one in `runs/`. `rulax.discover(resume=folder)` goes on
    with an earlier run.
    """
    from rulax.commands.discover.run import discover_from

    if isinstance(suite, list | tuple):
        suite = ",".join(map(str, suite))
    values: dict[str, Any] = {"suite": suite, "steps": steps, "out": out, **overrides}
    return discover_from(read_values(DiscoverConfig, {name: value for name, value in values.items() if value is not None}))


def compare(
    envs: Any = None,
    rules: Any = None,
    steps: Any = None,
    seeds: int | None = None,
    out: str | Path | None = None,
    **overrides: Any,
) -> Comparison:
    """Compare rules: `result = rulax.compare(["catch"], rules=["ppo", "actor_critic"], seeds=5)`, then `print(result.table)`.

    Every other setting of `rulax compare` is a keyword; `reference` may be a mapping from environments to returns. Without `out`
    the folder is a new one in `runs/`. `rulax.compare(resume=folder)` goes on with an earlier comparison.
    """
    from rulax.commands.compare.run import compare_from

    if isinstance(overrides.get("reference"), dict):
        # As the command line writes it, so that both pass the same checks.
        overrides["reference"] = [f"{env}={value}" for env, value in overrides["reference"].items()]
    # Quiet unless asked otherwise, and therefore on the left of the user's own keywords.
    values: dict[str, Any] = {"envs": envs, "rules": rules, "steps": steps, "seeds": seeds, "out": out, "quiet": True, **overrides}
    return compare_from(read_values(CompareConfig, {name: value for name, value in values.items() if value is not None}))

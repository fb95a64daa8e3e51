"""What Python users call: `rulax.train(...)`, `rulax.tune(...)`, `rulax.compare(...)`, `rulax.discover(...)` and others.

Wherever a name is expected, an object of the user's own may stand: an environment, a rule, a torso, a core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rulax import own
from rulax.commands.compare.settings import CompareConfig
from rulax.commands.discover.settings import DiscoverConfig
from rulax.commands.evaluate import run as evaluating
from rulax.commands.play import run as playing
from rulax.commands.settings import read_values, settings_keys
from rulax.commands.train import agent as agents
from rulax.commands.train import result as results
from rulax.commands.train.result import Run, own_objects
from rulax.commands.train.settings import TrainConfig, build_train
from rulax.commands.tune.settings import TuneConfig
from rulax.errors import UserError
from rulax.own import consent
from rulax.own.consent import trust
from rulax.text import merge_options

if TYPE_CHECKING:
    from rulax.commands.compare.show import Comparison
    from rulax.commands.discover.result import DiscoveryRun
    from rulax.commands.explain.show import Explanation
    from rulax.commands.method.show import MethodResults
    from rulax.commands.study.show import StudyResults
    from rulax.commands.tune.show import Sweep
    from rulax.commands.watch.run import Watch

__all__ = [
    "Run",
    "compare",
    "discover",
    "evaluate",
    "explain",
    "load",
    "load_agent",
    "merge",
    "method",
    "play",
    "study",
    "train",
    "trust",
    "tune",
    "watch",
]

# What they are given are the user's own words, as on the command line.
evaluate, play = consent.from_python(evaluating.evaluate), consent.from_python(playing.play)
load, load_agent = consent.from_python(results.load), consent.from_python(agents.load_agent)


@consent.from_python
def train(
    env: Any = None,
    rule: Any = None,
    steps: Any = None,
    seeds: int | None = None,
    out: str | Path | None = None,
    callback: Any = None,
    **overrides: Any,
) -> Run:
    """Train agents: `rulax.train("catch", rule="ppo", steps=100_000, seeds=3)`.

    Args:
        env: a name, or an environment of your own: an `Environment`, a `gymnasium.Env`, its class, or a function that makes one;
            with options, `"catch:rows=5"` or `{"name": "catch", "rows": 5}`, as in `compare`.
        rule: a name or a rule file, or a rule of your own: an `UpdateRule`, a `Recipe`, or a function that returns one; with
            options, `"ppo:clip=0.1"` or `{"name": "ppo", "clip": 0.1}`.
        steps: environment steps per seed.
        seeds: agents trained side by side.
        out: the run folder; without it nothing is written.
        callback: a function of a `rulax.callbacks.Point`, or a list of such, called at every logged point.
        overrides: every other setting of `rulax train`: `seed`, `quiet`, `preset`, `task`, `env_options`, `rule_options`,
            `randomise={"force": (5, 15)}`, `learning_rate`, `hidden`, `torso`, `core`, ... (the last two also by an object of your
            own). `resume=folder` goes on with an earlier run. `population=16, tune=["learning_rate", "discount"]` trains a
            population, `tune={"learning_rate": (1e-4, 1e-2, "log")}` with ranges; then `run.best`, `run.schedule` and `run.turns`
            say what it found, and `schedule="runs/.../schedule.json"` follows it.
    """
    from rulax.commands.train.callbacks import check_callbacks
    from rulax.commands.train.run import resume, start

    callbacks = check_callbacks(callback)
    env, overrides = _named("env", env, overrides)
    rule, overrides = _named("rule", rule, overrides)
    if isinstance(overrides.get("tune"), Mapping):
        overrides = overrides | {"tune": [f"{name}={_written(name, tried)}" for name, tried in overrides["tune"].items()]}
    values: dict[str, Any] = {"env": env, "rule": rule, "steps": steps, "seeds": seeds, "out": out, **held_networks(overrides)}
    # Before names are put in their place; what is neither is refused here.
    ranges = {"randomise": overrides["randomise"]} if overrides.get("randomise") else {}
    options = {**(overrides.get("env_options") or {}), **ranges}
    environment, recipe = own_objects(env, rule, options, overrides.get("rule_options"))
    if values.get("resume"):
        # Objects cannot be converted to settings. The folder knows what they were called.
        objects = [name for name, given in (("env", environment), ("rule", recipe)) if given is not None]
        given = {name: value for name, value in values.items() if value is not None and name not in objects}
        return resume(read_values(TrainConfig, given), environment, recipe, callbacks=callbacks)
    if environment is not None:
        from rulax.envs.own import environment_name

        values["env"] = environment_name(env)
    if recipe is not None:
        from rulax.rules.own import rule_name

        values["rule"] = rule_name(rule)
    # In Python results are held in memory, so a folder is made only for those who name one.
    return start(build_train(values), out is not None, environment, recipe, callbacks)


@consent.from_python
@own.holding()
def compare(
    envs: Any = None,
    rules: Any = None,
    steps: Any = None,
    seeds: int | None = None,
    out: str | Path | None = None,
    suite: str | None = None,
    budget: Any = None,
    **overrides: Any,
) -> Comparison:
    """Compare rules: `result = rulax.compare(["catch"], rules=["ppo", my_rule], seeds=5)`, then `print(result.table)`.

    Args:
        envs: environments, by name or your own as in `train`; one with options is `"catch:rows=5"` or a mapping such as
            `{"name": "catch", "rows": 5}`.
        rules: rules, by name or your own as in `train`; one with options is `"ppo:clip=0.1"` or `{"name": "ppo", "clip": 0.1}`,
            where settings such as `learning_rate` may stand as well.
        steps: environment steps of every agent.
        seeds: agents per rule and environment.
        out: the folder; without it a new one in `runs/`.
        suite: a suite with its budget, agents and published scores, such as `"minatar"`; then `envs` may name some of its games.
        budget: what each agent of a suite may spend: `"paper"`, `"mini"`, or a number of steps.
        overrides: every other setting of `rulax compare`; `reference` may be a mapping from environments to returns.
            `resume=folder` goes on with an earlier comparison.
    """
    from rulax.commands.compare.run import compare_from

    if isinstance(overrides.get("reference"), dict):
        # As the command line writes it, so that both pass the same checks.
        overrides["reference"] = [f"{env}={value}" for env, value in overrides["reference"].items()]
    overrides = held_networks(overrides)
    # Quiet unless asked otherwise, and therefore on the left of the user's own keywords.
    values: dict[str, Any] = {"steps": steps, "seeds": seeds, "out": out, "quiet": True, **overrides}
    values |= {"envs": held_environments(envs), "rules": held_rules(rules), "suite": suite, "budget": budget}
    return compare_from(read_values(CompareConfig, {name: value for name, value in values.items() if value is not None}))


@consent.from_python
def merge(folders: Iterable[str | Path], out: str | Path | None = None) -> Comparison:
    """Put comparisons together that were shared out: `rulax.merge(["runs/part-1", "runs/part-2"], out="runs/whole").table`.

    Args:
        folders: of comparisons with the same settings; they may hold other parts, environments or rules.
        out: a new folder; without it a numbered one in `runs/`.
    """
    from rulax.commands.compare.merge import merge_from

    return merge_from({"merge": tuple(map(str, folders)), "quiet": True, **({"out": str(out)} if out else {})})


@consent.from_python
@own.holding()
def tune(
    env: Any = None,
    rule: Any = None,
    space: Mapping[str, Any] | None = None,
    trials: int | None = None,
    steps: Any = None,
    seeds: int | None = None,
    out: str | Path | None = None,
    **overrides: Any,
) -> Sweep:
    """Search for settings: `sweep = rulax.tune("catch", rule="ppo", space={"learning_rate": "1e-4:1e-2:log"}, trials=20)`.

    Then `sweep.best` are the settings that were found, `sweep.run` a run with them on seeds that no trial had, `sweep.trials` and
    `sweep.importances` what was tried and what mattered.

    Args:
        env: a name, or an environment of your own as in `train`.
        rule: a name, a rule file, or a rule of your own as in `train`.
        space: what may be tried, by setting, options of the rule as `"rule.discount"`: a list of values; a range as a tuple,
            `(1e-4, 1e-2)` or `(1e-4, 1e-2, "log")`; or either as the command line writes it.
        trials: how many settings to try.
        steps: environment steps per agent, of the trials too unless `tune_steps` says otherwise.
        seeds: agents trained with the best settings; `tune_seeds` are those of each trial.
        out: the folder; without it a new one in `runs/`.
        overrides: every other setting of `rulax tune`, those of `train` among them. `resume=folder` goes on with an earlier sweep.
    """
    from rulax.commands.tune.run import tune_from

    values: dict[str, Any] = {
        "trials": trials,
        "steps": steps,
        "seeds": seeds,
        "out": out,
        "quiet": True,
        **held_networks(overrides),
    }
    if space is not None:
        values["tune"] = [f"{name}={_written(name, tried)}" for name, tried in space.items()]
    if env is not None:
        values["env"] = (held_environments([env]) or ("",))[0]
    if rule is not None:
        values["rule"] = (held_rules([rule]) or ("",))[0]
    return tune_from(read_values(TuneConfig, {name: value for name, value in values.items() if value is not None}))


def _written(name: str, tried: Any) -> str:
    """What may be tried for one setting, as the command line writes it."""
    if isinstance(tried, str):
        return tried
    if isinstance(tried, tuple):
        return ":".join(map(str, tried))
    if not isinstance(tried, Iterable):
        raise UserError(f"space: {name} must be a list of values or a range such as (1e-4, 1e-2, 'log'), not {tried!r}")
    # The widths of a network are several numbers, and yet one value.
    return ",".join("x".join(map(str, each)) if isinstance(each, list | tuple) else str(each) for each in tried)


@consent.from_python
@own.holding()
def discover(suite: Any = None, steps: Any = None, out: str | Path | None = None, **overrides: Any) -> DiscoveryRun:
    """Discover a rule: `run = rulax.discover("grids", steps=100)`, then `run.rule_path`, `run.scores`, `run.rows`, `run.plot()`.

    Args:
        suite: the name of a suite; or environments, by name, with options, or your own, as in `compare`.
        steps: meta-steps.
        out: the run folder; without it a new one in `runs/`.
        overrides: every other setting of `rulax discover`; `validation` takes environments like `suite`. `resume=folder` goes on
            with an earlier run.
    """
    from rulax.commands.discover.run import discover_from

    overrides = held_networks(overrides)
    if "validation" in overrides:
        overrides["validation"] = held_environments(overrides["validation"])
    if suite is not None and not isinstance(suite, str):
        suite = ",".join(held_environments(suite) or ())
    values: dict[str, Any] = {"suite": suite, "steps": steps, "out": out, **overrides}
    return discover_from(read_values(DiscoverConfig, {name: value for name, value in values.items() if value is not None}))


@consent.from_python
@own.holding()
def explain(rule: Any = None, env: Any = None, steps: Any = None, out: str | Path | None = None, **overrides: Any) -> Explanation:
    """Explain a rule: `rulax.explain("disco103").page` is the page, `.results` its numbers.

    Args:
        rule: a name, a rule file, or a rule of your own as in `train`.
        env: the environment in which an agent is trained for it; it must be compiled.
        steps: environment steps of that agent.
        out: the folder; without it a new one in `runs/`.
        overrides: every other setting of `rulax explain`.
    """
    from rulax.commands.explain.run import explain_from

    values: dict[str, Any] = {"steps": steps, "out": out, "quiet": True, **held_networks(overrides)}
    values |= {name: names[0] for name, names in (("rule", held_rules(rule)), ("env", held_environments(env))) if names}
    return explain_from({name: value for name, value in values.items() if value is not None})


@consent.from_python
@own.holding()
def method(name: Any = None, experiment: str | None = None, out: str | Path | None = None, **overrides: Any) -> MethodResults:
    """Run experiments of the meta-RL family: `rulax.method("rl2", experiment="bandit-10x5", seeds=3).records`.

    Args:
        name: a method, "all", or experiments of your own (`rulax.methods.base.Experiment`, one or a list).
        experiment: one experiment of it; without it all.
        out: the folder; without it a new one in `runs/`.
        overrides: every other setting of `rulax method`: `suite`, `seeds`, `seed`, `budget`; `resume=folder` goes on.
    """
    from rulax.commands.method.run import method_from
    from rulax.commands.method.show import MethodResults

    if name is not None and not isinstance(name, str):
        name = own.hold("method", name, "own")
    values: dict[str, Any] = {"method": name, "experiment": experiment, "out": out, "quiet": True, **overrides}
    return MethodResults(*method_from({name: value for name, value in values.items() if value is not None}))


@consent.from_python
@own.holding()
def study(
    name: Any = None, points: Any = None, seeds: int | None = None, out: str | Path | None = None, **overrides: Any
) -> StudyResults:
    """Run a study: `result = rulax.study("ablations", seeds=1)`, then `result.points["no_yz"]`, `print(result.table)`.

    Args:
        name: a study, a YAML file of your own, or its content as a mapping (`settings`, `held_out`, `points`, `questions`).
        points: only these of its points.
        seeds: discoveries per point.
        out: the folder; without it a new one in `runs/`.
        overrides: every other setting of `rulax study`: `seed`, `steps`; `resume=folder` goes on.
    """
    from rulax.commands.study.run import study_from

    content = dict(name) if isinstance(name, Mapping) else None
    values: dict[str, Any] = {"points": points, "seeds": seeds, "out": out, "quiet": True, **overrides}
    values |= {"study": "own" if content is not None else name}
    return study_from({key: value for key, value in values.items() if value is not None}, content)


def watch(run: str | Path | Run | DiscoveryRun | Comparison = "", port: int = 0) -> Watch:
    """Serve the page of a run while it goes on: `page = rulax.watch("runs/catch-ppo-001")`, then `page.url` and `page.close()`.

    Args:
        run: its folder, or what `train`, `discover` or `compare` returned; without it, the run in `runs/` that was written to last.
        port: of 127.0.0.1; 0 takes the first free one from 8300 on.

    Returns at once; the page is served from a thread until it is closed or Python ends.
    """
    from rulax.commands.watch.run import Watch
    from rulax.commands.watch.setup import find_run

    folder = run if isinstance(run, str | Path) else run.folder
    if folder is None:
        raise UserError("this run was held in memory only, so there is nothing to watch; train with out='FOLDER'")
    return Watch(find_run(folder), port)


# -- objects in the place of names ---------------------------------------------------------------------------------------------


def held_environments(envs: Any) -> tuple[str, ...] | None:
    """Environments as the command line writes them; objects under names of their own."""
    from rulax.envs.own import environment_name, is_environment
    from rulax.envs.registry import list_environments

    taken = tuple(entry.name for entry in list_environments())
    return _held("env", envs, is_environment, environment_name, taken)


def held_rules(rules: Any) -> tuple[str, ...] | None:
    """Rules as the command line writes them; objects under names of their own."""
    from rulax.rules.own import is_rule, rule_name
    from rulax.rules.registry import RULES

    return _held("rule", rules, is_rule, rule_name, tuple(RULES))


def _named(kind: str, thing: Any, overrides: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What a mapping such as `{"name": "ppo", "clip": 0.1}` names, and keywords with its other entries; anything else as it is."""
    if not isinstance(thing, dict):
        return thing, overrides
    options, where = _without_name(kind, thing), f"{kind}_options"
    settings = {name: options.pop(name) for name in list(options) if kind == "rule" and name in settings_keys(TrainConfig)}
    beside = {name: overrides[name] for name in settings if overrides.get(name) is not None}
    merged = merge_options(kind, options, overrides.get(where) or {}, where)
    return thing["name"], overrides | merge_options(kind, settings, beside, "a keyword of its own") | {where: merged}


def _without_name(kind: str, thing: dict[str, Any]) -> dict[str, Any]:
    """The options in a mapping."""
    if "name" not in thing:
        raise UserError(f"{kind}: {thing!r} has no 'name' (a name or an object); its other entries are options")
    return {name: value for name, value in thing.items() if name != "name"}


def _held(
    kind: own.Kind, things: Any, fits: Callable[[Any], bool], name_of: Callable[[Any], str], taken: tuple[str, ...]
) -> tuple[str, ...] | None:
    if things is None:
        return None
    # A rule and a recipe are tuples, and yet one thing.
    several = things if isinstance(things, Iterable) and not isinstance(things, str | dict) and not fits(things) else [things]
    names: list[str] = []
    objects: dict[str, Any] = {}
    for thing in several:
        options: dict[str, Any] = {}
        if isinstance(thing, dict):
            options, thing = _without_name(kind, thing), thing["name"]
        if not isinstance(thing, str):
            if not fits(thing):
                raise UserError(f"{kind} must be a name or an object of your own, not {thing!r}")
            # Two objects that call themselves the same are still two; one that is given twice, with other options, is one.
            known = [name for name, other in objects.items() if other is thing]
            name = known[0] if known else own.hold(kind, thing, name_of(thing), (*taken, *objects))
            objects[name] = thing
            thing = name
        written = ",".join(f"{key}={list(value) if isinstance(value, tuple) else value}" for key, value in options.items())
        names.append(f"{thing}:{written.replace(' ', '')}" if written else thing)
    return tuple(names)


def held_networks(overrides: dict[str, Any]) -> dict[str, Any]:
    """Keywords in which a torso or core of the user's own has become a name."""
    found: dict[str, Any] = {}
    for name in ("torso", "core"):
        given = overrides.get(name)
        if given is not None and not isinstance(given, str):
            if not callable(given):
                raise UserError(f"{name} must be a name or a function that makes one, not {given!r}")
            found[name] = own.hold(name, given, taken=("auto", "mlp", "none"))  # type: ignore[arg-type]
    return overrides | found

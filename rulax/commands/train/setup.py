"""Builds everything that a run needs from a configuration, before anything is written: every mistake is found here.

The only file in which names become environments and rules.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from rulax.commands.bounds import check_settings, check_train, override
from rulax.commands.config import TrainConfig, build
from rulax.commands.fields import to_bytes
from rulax.errors import UserError
from rulax.records import folder as folders
from rulax.records.wandb_writer import check_wandb
from rulax.settings import Learning, Network

FIXES_THE_RESULT = ("env", "env_options", "rule", "rule_options", "seeds", "seed", "task", "precision")
COMPARISON = "compare"  # what config.json says of a comparison
MOST_UPDATES = 2**31 - 1  # counted in 32 bits on the device
NOT_RECORDED = ("out", "resume", "preset", "quiet", "overrides")  # where a run goes, not what it is; overrides are resolved


class Prepared(NamedTuple):
    """A run that could start now."""

    config: TrainConfig
    environment: Any
    recipe: Any
    trainer: Any
    record: dict[str, Any]  # the content of config.json


@contextmanager
def user_errors() -> Iterator[None]:
    """While things are built from what the user said, a ValueError is about what they said."""
    try:
        yield
    except UserError:
        raise
    except (ValueError, ImportError) as error:
        raise UserError(str(error)) from error


def make_environment(name: str, options: dict[str, Any]) -> Any:
    """An environment by name."""
    from rulax.envs.registry import make

    with user_errors():
        try:
            return make(name, **options)
        except TypeError as error:
            raise UserError(f"environment '{name}' cannot be made with these options: {error}") from error


def registered_recipe(name: str, options: dict[str, Any]) -> Any:
    """A rule by name, with its recommended settings."""
    from rulax.rules.registry import make_rule

    with user_errors():
        try:
            return make_rule(name, **options)
        except TypeError as error:
            raise UserError(f"rule '{name}' cannot be made with these options: {error}") from error


def make_recipe(name: str, options: dict[str, Any], overrides: dict[str, Any], recipe: Any = None) -> Any:
    """A rule by name, or a ready-made one, with its settings overridden and checked."""
    recipe = recipe or registered_recipe(name, options)
    recipe = recipe._replace(learning=override(recipe.learning, overrides), network=override(recipe.network, overrides))
    if not recipe.learning.replay and recipe.learning.warmup:
        if overrides.get("warmup"):
            raise UserError(f"warmup ({recipe.learning.warmup}) fills the replay buffer, but replay is 0; give --replay too")
        recipe = recipe._replace(learning=dataclasses.replace(recipe.learning, warmup=0))
    check_settings(recipe.learning, recipe.network)
    return recipe


def make_trainer(environment: Any, recipe: Any, config: TrainConfig) -> Any:
    """The trainer; tests put a small one in its place."""
    from rulax.learning import train

    with user_errors():
        settings = train.TrainerConfig(
            seeds=config.seeds,
            total_steps=config.steps,
            task=config.task,
            overlap=config.overlap,
            replay_limit=to_bytes("replay_limit", config.replay_limit) if config.replay_limit else 0,
            most_restarts=config.most_restarts,
        )
        return train.make_trainer(environment, recipe, settings)


def prepare(config: TrainConfig, environment: Any = None, recipe: Any = None) -> Prepared:
    """Check and build. Environment and recipe may be handed over ready-made, from Python."""
    check_train(config)
    check_wandb(config.wandb)
    custom = [name for name, given in (("env", environment), ("rule", recipe)) if given is not None]
    recipe = make_recipe(config.rule, config.rule_options, config.overrides, recipe)
    start_jax(config.platform, config.precision)
    if environment is None:
        environment = make_environment(config.env, config.env_options)
    check_task(config, environment)
    check_host(config, environment)
    least = recipe.learning.streams * recipe.learning.unroll
    if config.steps < least:
        raise UserError(
            f"steps ({config.steps}) is less than one iteration: {recipe.learning.streams} streams x "
            f"{recipe.learning.unroll} steps = {least}"
        )
    updates = config.steps // least * recipe.learning.epochs * recipe.learning.minibatches
    if updates >= MOST_UPDATES:
        raise UserError(f"steps ({config.steps}) means {updates} gradient steps, more than can be counted ({MOST_UPDATES})")
    trainer = make_trainer(environment, recipe, config)
    try:
        check_trainer(trainer, environment, config)
    except BaseException:
        trainer.close()
        raise
    return Prepared(config, environment, recipe, trainer, make_record(config, recipe, custom))


def check_task(config: TrainConfig, environment: Any) -> None:
    """Only environments with a distribution of tasks can draw one."""
    if config.task != "random":
        return
    if environment.one_task:
        raise UserError(
            f"task random is not possible in '{config.env}': its library has no distribution of tasks; "
            "the environments of rulax have one, `rulax envs` lists them"
        )


def check_host(config: TrainConfig, environment: Any) -> None:
    """What is only for environments that step on the CPU must not seem to do something elsewhere."""
    from rulax.envs.base import HostEnvironment

    given = config.host_only()
    if given and not isinstance(environment, HostEnvironment):
        raise UserError(f"{given[0]} is for environments that step on the CPU, and '{config.env}' runs on the device; leave it out")


def check_one_choice(name: str, environment: Any, what: str) -> None:
    """For what knows only actions that are one choice among a few."""
    if environment.action_dimensions:
        raise UserError(
            f"in '{name}' an action is {environment.action_dimensions} choices at once, which {what} does not support; train and "
            "compare do, and `rulax envs` lists environments with one choice"
        )


def check_trainer(trainer: Any, environment: Any, config: TrainConfig) -> None:
    """That there is time to learn, and that one iteration can be traced: what does not fit together fails here."""
    import jax

    from rulax.envs.base import HostEnvironment

    warm = getattr(trainer, "warm_iterations", 0)
    if warm >= trainer.total_iterations:
        raise UserError(
            f"nothing would be learned: the warm-up takes {warm * trainer.steps_per_iteration} steps, the whole run has "
            f"{config.steps}; lower --warmup or raise --steps"
        )
    with user_errors():
        if isinstance(environment, HostEnvironment) or not hasattr(trainer, "_iteration"):
            trainer.skeleton()  # an agent can be made; the rest happens outside of JAX, and nothing can be traced
            return
        jax.eval_shape(trainer._iteration, trainer.rule_params, trainer.skeleton())


def reserve(prepared: Prepared, seeds: int = 0) -> str:
    """What the run will take of the host's memory, in a sentence; refused if that is too much. `seeds`: if not its own number."""
    try:
        with user_errors():
            return prepared.trainer.reserve(seeds)
    except UserError:
        prepared.trainer.close()
        raise


def warm_up_note(prepared: Prepared) -> str:
    """A warning where the step size rises for longer than there are updates, as in a preset of a paper with fewer steps."""
    learning, trainer = prepared.recipe.learning, prepared.trainer
    iterations = trainer.total_iterations - getattr(trainer, "warm_iterations", 0)
    updates = iterations * learning.epochs * learning.minibatches
    if not 0 < updates <= learning.warmup_updates:
        return ""
    return (
        f"warning: the learning rate never reaches {learning.learning_rate:g}: it rises over {learning.warmup_updates:,} updates, "
        f"and the whole run has {updates:,}; give --warmup-updates N with fewer, or more --steps"
    )


def check_own(record: dict[str, Any], source: str, environment: Any, recipe: Any) -> None:
    """A run that was made with objects of the user's own needs them again: a folder cannot hold them."""
    missing = [
        name for name, given in (("env", environment), ("rule", recipe)) if given is None and name in record.get("custom", ())
    ]
    if missing:
        what = {"env": f"an environment ({record['settings']['env']})", "rule": "a rule"}
        raise UserError(
            f"{source} was made in Python with {' and '.join(what[name] for name in missing)} that has no name: give the same "
            f"object again, as in rulax.load(folder, {', '.join(f'{name}=...' for name in missing)}), or in rulax.train(..., "
            "resume=folder)"
        )


def start_jax(platform: str, precision: str = "default", cache: bool = True) -> None:
    """Set JAX up; imported here so that mistakes in names are reported without waiting for it."""
    from rulax.parallel.setup import set_up

    set_up(platform, precision, cache)


def make_record(config: TrainConfig, recipe: Any, custom: list[str]) -> dict[str, Any]:
    """What config.json says: enough to repeat the run exactly, and to tell its checkpoints from others."""
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in NOT_RECORDED}
    record: dict[str, Any] = {
        "settings": settings,
        "learning": dataclasses.asdict(recipe.learning),
        "network": dataclasses.asdict(recipe.network),
        "custom": custom,  # what was an object of the user's own and has no name that would make it again
    }
    fixed = {name: settings[name] for name in FIXES_THE_RESULT}
    if config.overlap != "auto":  # at its default it is left out, so that folders from before it existed can go on
        fixed["overlap"] = config.overlap
    return record | {
        "fingerprint": folders.fingerprint([fixed, *(folders.without_new(record[part]) for part in ("learning", "network"))]),
        "command": " ".join(["rulax", *sys.argv[1:]]) if sys.argv[0].endswith(("rulax", "__main__.py")) else None,
        "versions": folders.versions(),
        "commit": folders.git_commit(),
    }


def saved_config(record: dict[str, Any], changes: dict[str, Any]) -> TrainConfig:
    """The configuration of an earlier run, with the changes that a resumed run may make."""
    if record.get("kind") == COMPARISON:
        raise UserError("this folder holds a comparison, not a run of train; go on with it by: rulax compare --resume DIR")
    known = {field.name for part in (Learning, Network) for field in dataclasses.fields(part)}
    resolved = {name: value for part in ("learning", "network") for name, value in record[part].items() if name in known}
    return build(TrainConfig, {**record["settings"], **resolved, **changes})

"""Builds everything that a training run needs, before anything is written: every mistake is found here."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from rulax import own
from rulax.commands import build
from rulax.commands.settings import recorded
from rulax.commands.train.settings import TUNING, TrainConfig, build_train, check_train
from rulax.errors import UserError
from rulax.parallel import processes
from rulax.records import earlier
from rulax.records.provenance import fingerprint, how_made
from rulax.records.wandb_writer import check_wandb
from rulax.rules.registry import is_own
from rulax.settings import Learning, Network

if TYPE_CHECKING:
    from rulax.envs.base import Environment, HostEnvironment
    from rulax.learning.train import Trainer
    from rulax.rules.base import Recipe

KIND = "train"
FIXES_THE_RESULT = ("env", "env_options", "rule", "rule_options", "seeds", "seed", "task", "precision")
MOST_UPDATES = 2**31 - 1  # counted in 32 bits on the device


class Prepared(NamedTuple):
    """A run that could start now."""

    config: TrainConfig
    environment: Environment | HostEnvironment
    recipe: Recipe
    trainer: Trainer
    record: dict[str, Any]  # the content of config.json


def prepare(
    config: TrainConfig, environment: Environment | HostEnvironment | None = None, recipe: Recipe | None = None
) -> Prepared:
    """Check and build. Environment and recipe may be handed over ready-made, from Python."""
    # From cheap to expensive: settings, then the rule, then JAX and the environment, then the trainer. A typing error is reported
    # at once.
    check_train(config)
    check_wandb(config.wandb)
    # Noted before both variables are filled in from names.
    custom = [name for name, given in (("env", environment), ("rule", recipe)) if given is not None]
    recipe = build.make_recipe(config.rule, config.rule_options, config.overrides, recipe)
    build.start_jax(config.platform, config.precision)
    build.allow(config.step_limit)
    if environment is None:
        # Recorded like options that the user gave, so that whoever makes the environment again makes this one.
        config = dataclasses.replace(config, env_options=build.needed_options(config.env_options, recipe.env_options, config.rule))
        environment = build.make_environment(config.env, config.env_options)
    else:
        environment = build.surrounded(environment, recipe.env_options, config.env)
    if config.eval_randomise:
        # For its errors only: evaluations come long after the run has begun.
        build.with_other_ranges(config.env, config.env_options, config.eval_randomise, environment if "env" in custom else None)
    check_task(config, environment)
    check_host(config, environment)
    # Rounding up to whole iterations is harmless, but a budget below a single one might be exceeded many times over.
    least = recipe.learning.streams * recipe.learning.unroll
    if config.steps < least:
        raise UserError(
            f"steps ({config.steps}) is less than one iteration: {recipe.learning.streams} streams x "
            f"{recipe.learning.unroll} steps = {least}"
        )
    changes = None
    if config.population or config.schedule_file:
        if processes.number() > 1:
            raise UserError("a population, or a schedule from a file, is for one process: leave --hosts and --coordinator out")
        from rulax.commands.train.population import changing

        with build.user_errors():
            changes = changing(config, recipe, "rule" in custom)
        config, recipe = changes.config, changes.recipe
    updates = config.steps // least * recipe.learning.epochs * recipe.learning.minibatches
    if updates >= MOST_UPDATES:
        raise UserError(f"steps ({config.steps}) means {updates} gradient steps, more than can be counted ({MOST_UPDATES})")
    trainer = build.make_trainer(environment, recipe, config, *([changes.hyperparameters] if changes else []))
    try:
        if changes:
            trainer = changes.around(trainer)
        check_trainer(trainer, config)
    # Also Ctrl-C: a trainer of host environments holds its streams open, and nobody else could close them.
    except BaseException:
        trainer.close()
        raise
    return Prepared(config, environment, recipe, trainer, make_record(config, recipe, custom, changes.facts if changes else {}))


# -- checks --------------------------------------------------------------------------------------------------------------------


def check_task(config: TrainConfig, environment: Environment | HostEnvironment) -> None:
    """Only environments with a distribution of tasks can draw one, and not those that draw theirs inside."""
    from rulax.envs.tasks import draws_tasks

    if config.task == "random" and draws_tasks(environment):
        raise UserError(f"task random is not possible in '{config.env}': it draws its tasks itself, again and again; leave it out")
    if config.task == "random" and environment.one_task:
        raise UserError(
            f"task random is not possible in '{config.env}': its library has no distribution of tasks; "
            "the environments of rulax have one, `rulax envs` lists them"
        )


def check_host(config: TrainConfig, environment: Environment | HostEnvironment) -> None:
    """Refuse settings that would silently do nothing: some are only for environments that step on the CPU."""
    from rulax.envs.base import HostEnvironment

    # An explicit setting without effect is a misunderstanding; a default one is not, so only what was given counts.
    given = config.host_only()
    if given and not isinstance(environment, HostEnvironment):
        raise UserError(f"{given[0]} is for environments that step on the CPU, and '{config.env}' runs on the device; leave it out")


def check_trainer(trainer: Trainer, config: TrainConfig) -> None:
    """That there is time to learn, and that one iteration can be traced: parts that do not fit together fail here."""
    # Such a run would end normally with an untrained agent, which looks like a rule that does not work.
    warm = trainer.warm_iterations
    if warm >= trainer.total_iterations:
        raise UserError(
            f"nothing would be learned: the warm-up takes {warm * trainer.steps_per_iteration} steps, the whole run has "
            f"{config.steps}; lower --warmup or raise --steps"
        )
    with build.user_errors():
        trainer.check()


def check_own(record: dict[str, Any], source: str, environment: Any, recipe: Any) -> None:
    """Refuse a run that was made with the user's own objects, which a folder cannot hold, unless they are given again."""
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


def reserve(prepared: Prepared, seeds: int = 0) -> str:
    """A sentence about the host memory that the run will take; refused if that is too much. `seeds`: if not its own number."""
    try:
        with build.user_errors():
            return prepared.trainer.reserve(seeds)
    except UserError:
        prepared.trainer.close()
        raise


def warm_up_note(prepared: Prepared) -> str:
    """A warning if the learning rate still rises when the run ends, as with a preset of a paper and fewer steps."""
    learning, trainer = prepared.recipe.learning, prepared.trainer
    iterations = trainer.total_iterations - trainer.warm_iterations
    updates = iterations * learning.epochs * learning.minibatches
    if not 0 < updates <= learning.warmup_updates:
        return ""
    return (
        f"warning: the learning rate never reaches {learning.learning_rate:g}: it rises over {learning.warmup_updates:,} updates, "
        f"and the whole run has {updates:,}; give --warmup-updates N with fewer, or more --steps"
    )


def action_note(prepared: Prepared) -> str:
    """How a rule of the user's own chooses real numbers, where nobody said it: by bins, unlike the hand-designed ones of Rulax."""
    config, environment = prepared.config, prepared.environment
    own_rule = "rule" in prepared.record["custom"] or is_own(config.rule)
    if not own_rule or "action_distribution" in config.overrides or prepared.recipe.network.action_distribution != "bins":
        return ""
    if not environment.real_dimensions:
        return ""
    return f"actions: {environment.num_actions} bins; --action-distribution gaussian, or the rule's NETWORK, changes that"


# -- the record ----------------------------------------------------------------------------------------------------------------


def make_record(config: TrainConfig, recipe: Recipe, custom: list[str], more: dict[str, Any]) -> dict[str, Any]:
    """What config.json says: enough to repeat the run exactly, and to tell its checkpoints from others.

    `custom` names what was an object of the user's own, which has no name that would make it again; `more` is what a population or
    a schedule adds to that which fixes the result.
    """
    # Agents' settings are recorded resolved and not as overrides: a rule may recommend something else in a later version.
    settings = recorded(config, *(name for name in TUNING if not (name == "tune" and config.population)))
    learning, network = dataclasses.asdict(recipe.learning), dataclasses.asdict(recipe.network)
    # The budget is not part of it, nor is where and how often something is written: a resumed run may change those.
    fixed = {name: settings[name] for name in FIXES_THE_RESULT}
    if config.overlap != "auto":  # at its default it is left out, so that folders from before it existed can go on
        fixed["overlap"] = config.overlap
    fixed |= more
    parts = [fixed, earlier.original(learning, Learning), earlier.original(network, Network)]
    files = own.hashes(config.env, config.rule, recipe.network.torso, recipe.network.core)
    facts = {"custom": custom, "own_files": files, "fingerprint": fingerprint(parts)}
    return how_made(KIND, settings, learning=learning, network=network, **facts)


def changed_files(record: dict[str, Any]) -> str:
    """A warning if a Python file of the user's own has changed since the run was begun; nothing stops them, if they know."""
    saved = record.get("own_files", {})
    changed = [reference.partition(":")[0] for reference, content in own.hashes(*saved).items() if saved[reference] != content]
    return f"warning: {changed[0]} has changed since this run was begun; it goes on with the new version" if changed else ""


def saved_settings(record: dict[str, Any]) -> dict[str, Any]:
    """Every setting of an earlier run by name, those of its agents included."""
    # Settings that no longer exist are dropped: the curve of such a run can still be read, while its checkpoint has another
    # fingerprint and is refused.
    known = {field.name for part in (Learning, Network) for field in dataclasses.fields(part)}
    agents = {name: value for part in ("learning", "network") for name, value in record[part].items() if name in known}
    return record["settings"] | agents


def saved_config(record: dict[str, Any], changes: dict[str, Any]) -> TrainConfig:
    """The configuration of an earlier run, with the changes that a resumed run may make."""
    # Through the same function as a new run, so that values read from JSON are converted and checked like a user's.
    return build_train(saved_settings(record) | changes)

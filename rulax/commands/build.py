"""From names to objects: environments, recipes, trainers. Every mistake of a user that shows there becomes a `UserError`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rulax.commands.settings import Spread, check_settings, override
from rulax.errors import UserError
from rulax.text import to_bytes, to_options

if TYPE_CHECKING:
    from rulax.commands.train.settings import TrainConfig
    from rulax.envs.base import Environment, HostEnvironment
    from rulax.learning.train import Trainer
    from rulax.parallel.mesh import Layout
    from rulax.rules.base import Recipe


@contextmanager
def user_errors() -> Iterator[None]:
    """Around code that builds something from a user's settings: a ValueError there is about those settings."""
    try:
        yield
    # It is a ValueError too, but already has its sentence; wrapping it again would only lengthen the chain of causes.
    except UserError:
        raise
    # ImportError: an environment of an extra that is not installed is the user's to fix. Any other exception may be a bug, and
    # keeps its traceback.
    except (ValueError, ImportError) as error:
        raise UserError(str(error)) from error


def start_jax(platform: str, precision: str = "default", cache: bool = True) -> None:
    """Set JAX up; imported here so that mistakes in names are reported without waiting for it."""
    from rulax.parallel.setup import set_up

    set_up(platform, precision, cache)


def allow(step_limit: float) -> None:
    """Set how long a call of a host environment may take, in this process from now on."""
    from rulax.envs.adapters import limit

    limit.allow(step_limit)


def make_layout(config: Spread, sizes: Mapping[str, int], on_host: bool = False) -> Layout:
    """The devices that a command computes on, once JAX has started; `sizes` are its axes, `on_host` whether members act there."""
    from rulax.parallel.mesh import make_layout
    from rulax.parallel.processes import asked
    from rulax.records.sharded import check_installed

    if not asked() and (config.hosts != "none" or config.coordinator):
        raise UserError(
            "several processes are for rulax train and rulax discover on the command line; leave hosts and coordinator out"
        )
    check_installed()
    return make_layout(to_options("mesh", config.mesh), sizes, on_host)


# -- environments --------------------------------------------------------------------------------------------------------------


def make_environment(name: str, options: Mapping[str, Any]) -> Environment | HostEnvironment:
    """An environment by name."""
    from rulax.envs.registry import make

    with user_errors():
        try:
            return make(name, **options)
        except TypeError as error:
            raise UserError(f"environment '{name}' cannot be made with these options: {error}") from error


def needed_options(given: Mapping[str, Any], needed: Mapping[str, Any], rule: str) -> dict[str, Any]:
    """Options of an environment, with those that a rule needs; a user's own that says otherwise is refused."""
    for name, value in needed.items():
        if str(given.get(name, value)) != str(value):
            raise UserError(
                f"rule '{rule}' needs {name}={value} of the environment, not {name}={given[name]}: leave it out, and give the "
                "rule's own option instead (--rule-options)"
            )
    return {**given, **needed}


def surrounded(environment: Any, needed: Mapping[str, Any], name: str) -> Environment | HostEnvironment:
    """An environment that was handed over ready-made, with what a rule needs around it."""
    from rulax.envs.registry import with_lasting

    with user_errors():
        return with_lasting(name, environment, needed)


def with_other_ranges(name: str, options: Mapping[str, Any], ranges: Any, own: Any = None) -> Environment | HostEnvironment:
    """The environment with other ranges of its constants; `own` is the user's own object, if it is one."""
    if own is None:
        return make_environment(name, {**options, "randomise": ranges})
    from rulax.envs.randomised import randomise

    with user_errors():
        return randomise(own, name, ranges)


def check_one_choice(name: str, environment: Environment | HostEnvironment, command: str) -> None:
    """Refuse actions of several dimensions for a command that supports only one choice per step."""
    if environment.action_dimensions:
        raise UserError(
            f"in '{name}' an action is {environment.action_dimensions} choices at once, which {command} does not support; train "
            "and compare do, and `rulax envs` lists environments with one choice"
        )


# -- rules and trainers ----------------------------------------------------------------------------------------------------------


def registered_recipe(name: str, options: Mapping[str, Any]) -> Recipe:
    """A rule by name, with its recommended settings."""
    from rulax.rules.registry import make_rule

    with user_errors():
        try:
            return make_rule(name, **options)
        except TypeError as error:
            raise UserError(f"rule '{name}' cannot be made with these options: {error}") from error


def make_recipe(name: str, options: Mapping[str, Any], overrides: Mapping[str, Any], recipe: Recipe | None = None) -> Recipe:
    """A rule by name, or a ready-made one, with its settings overridden and checked."""
    # A recipe of the user's own has no name to make it from, but its numbers are overridden and checked like any other's.
    recipe = recipe or registered_recipe(name, options)
    recipe = recipe._replace(learning=override(recipe.learning, overrides), network=override(recipe.network, overrides))
    if not recipe.learning.replay and recipe.learning.warmup:
        # Asked for explicitly it is a contradiction; recommended by the rule it just has no object any more once replay is switched
        # off.
        if overrides.get("warmup"):
            raise UserError(f"warmup ({recipe.learning.warmup}) fills the replay buffer, but replay is 0; give --replay too")
        recipe = recipe._replace(learning=dataclasses.replace(recipe.learning, warmup=0))
    if not recipe.learning.replay and recipe.learning.replay_priority:
        if overrides.get("replay_priority"):
            if recipe.rule.priority is None:
                from rulax.learning.life import NO_PRIORITY

                raise UserError(NO_PRIORITY)
            raise UserError(
                f"replay_priority ({recipe.learning.replay_priority:g}) orders what is replayed, but replay is 0; give --replay too"
            )
        recipe = recipe._replace(learning=dataclasses.replace(recipe.learning, replay_priority=0.0))
    # After overriding, because only now are the numbers those that have to fit together.
    check_settings(recipe.learning, recipe.network)
    return recipe


def make_trainer(
    environment: Environment | HostEnvironment,
    recipe: Recipe,
    config: TrainConfig,
    hyperparameters: Mapping[str, Any] | None = None,
) -> Trainer:
    """What trains the agents of a configuration; `hyperparameters` are those that each agent has of its own, [K] each."""
    from rulax.envs.base import EnvironmentFailed
    from rulax.learning import train

    layout = layout_of_training(environment, recipe, config)
    with user_errors():
        settings = train.TrainerConfig(
            seeds=config.seeds,
            total_steps=config.steps,
            task=config.task,
            overlap=config.overlap,
            replay_limit=to_bytes("replay_limit", config.replay_limit) if config.replay_limit else 0,
            most_restarts=config.most_restarts,
            layout=layout,
        )
        try:
            return train.make_trainer(environment, recipe, settings, hyperparameters or {})
        except EnvironmentFailed as error:  # its streams cannot be opened
            raise UserError(str(error)) from error


def layout_of_training(environment: Environment | HostEnvironment, recipe: Recipe, config: TrainConfig) -> Layout:
    """On which devices agents are trained: those that act on the host have one."""
    from rulax.envs.base import HostEnvironment
    from rulax.parallel.mesh import ONE_DEVICE
    from rulax.parallel.processes import number

    if not isinstance(environment, HostEnvironment):
        return make_layout(config, {"seeds": config.seeds, "streams": recipe.learning.streams})
    if config.mesh or number() > 1:
        what = "mesh" if config.mesh else "training by several processes"
        raise UserError(f"{what} is for environments that run on the device, and '{config.env}' steps on the CPU; leave it out")
    return ONE_DEVICE


def with_options(settings: Any, options: Mapping[str, Any]) -> Any:
    """A copy of Sizes or Constants with those options of a rule that belong to it."""
    from rulax.text import convert_like

    known = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    own = {name: convert_like(name, known[name], value) for name, value in options.items() if name in known}
    return dataclasses.replace(settings, **own)

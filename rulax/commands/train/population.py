"""From `--population`, `--tune` and `--schedule FILE` to a trainer whose hyper-parameters change while it trains."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rulax.commands.search_space import OF_RULE, read_range
from rulax.commands.train.settings import TrainConfig
from rulax.errors import SYNONYMS, UserError, suggestion
from rulax.learning.members import FRACTIONS, HYPERPARAMETERS
from rulax.learning.optimisers import HORIZON
from rulax.methods.pbt import Pbt, Space
from rulax.methods.population import PopulationTrainer
from rulax.methods.scheduled import ScheduledTrainer
from rulax.records.population import read_schedule
from rulax.rules.adjustable import adjustable
from rulax.rules.registry import constants_of_rule, make_rule
from rulax.settings import Learning, check_value

if TYPE_CHECKING:
    from rulax.learning.train import Trainer
    from rulax.rules.base import Recipe, UpdateRule

TURNS = 25  # of a run, unless exploit_every says otherwise
WIDTH = 10  # a range reaches from a tenth of what is recommended to ten times of it, unless one is given


class Adjustable(NamedTuple):
    """A hyper-parameter that may change during a run."""

    value: float  # what is recommended, or was set
    bounds: Mapping[str, float]
    of_rule: bool  # or of learning

    def is_fraction(self, name: str) -> bool:
        """Whether it lies between 0 and 1, so that its odds are what is multiplied."""
        return name in FRACTIONS or (self.bounds.get("at_least") == 0 and self.bounds.get("at_most") == 1)


class Changing(NamedTuple):
    """A run whose hyper-parameters change: what it is made of, and how its trainer is made from that of any other run."""

    config: TrainConfig
    recipe: Recipe
    hyperparameters: dict[str, list[float]]  # those of learning, [K] each
    around: Callable[[Trainer], Any]  # a trainer, too; its state may be another
    facts: dict[str, Any]  # what else fixes the result


def changing(config: TrainConfig, recipe: Recipe, own_object: bool) -> Changing:
    """The population, or the schedule, that a configuration asks for; `own_object` if the rule has no name to make it by."""
    known = adjustables(config, recipe, own_object)
    if config.population:
        spaces = read_spaces(config.tune, known, config.rule)
        names = tuple(spaces)
        first = {name: known[name].value for name in spaces}
        inside = all(spaces[name].low <= value <= spaces[name].high for name, value in first.items())
        size = recipe.learning.streams * recipe.learning.unroll
        every = max(1, round(config.exploit_every / size) if config.exploit_every else -(-config.steps // size) // TURNS)
        if every * size >= config.steps:
            raise UserError(
                f"a population would take its first turn after {every * size} steps, and the whole run has {config.steps}: lower "
                "--exploit-every or raise --steps"
            )
        pbt = Pbt(spaces, config.exploit)
        # Resolved, so that a run that goes on with more steps takes its turns where it would have taken them.
        config = dataclasses.replace(config, exploit_every=every * size, tune=tuple(map(written, names, spaces.values())))
        facts: dict[str, Any] = {"tune": config.tune, "exploit": config.exploit, "exploit_every": config.exploit_every}

        def around(trainer: Trainer) -> Any:
            return PopulationTrainer(trainer, pbt, every, first if inside else None)

    else:
        points = read_schedule(config.schedule_file)
        names = tuple(name for name in points[0] if name != "step")
        check_schedule(config, names, points, known)
        facts = {"schedule": points}

        def around(trainer: Trainer) -> Any:
            return ScheduledTrainer(trainer, points)

    recipe = with_constants(recipe, config, {name: known[name].value for name in names if known[name].of_rule})
    if "learning_rate" in names and "schedule" not in config.overrides:
        # What changes it is the population; a schedule below that would shrink all that it can find.
        recipe = recipe._replace(learning=dataclasses.replace(recipe.learning, schedule="constant"))
    own = {name: [known[name].value] * config.seeds for name in names if not known[name].of_rule}
    return Changing(config, recipe, own, around, facts)


def with_constants(recipe: Recipe, config: TrainConfig, constants: dict[str, float]) -> Recipe:
    """The recipe with some constants of its rule in the rule's parameters."""
    if not constants:
        return recipe

    def make(values: Mapping[str, Any]) -> UpdateRule:
        return make_rule(config.rule, **{**config.rule_options, **values}).rule

    return recipe._replace(rule=adjustable(make, constants))


# -- what may change -----------------------------------------------------------------------------------------------------------


def adjustables(config: TrainConfig, recipe: Recipe, own_object: bool) -> dict[str, Adjustable]:
    """Everything that may differ between agents and change during a run, by name."""
    fields = {field.name: field.metadata.get("bounds", {}) for field in dataclasses.fields(Learning)}
    # All of them are about gradient steps.
    names = [name for name in HYPERPARAMETERS if name != HORIZON and recipe.rule.by_gradient]
    found = {name: Adjustable(float(getattr(recipe.learning, name)), fields[name], False) for name in names}
    constants = {} if own_object else constants_of_rule(config.rule, config.rule_options)
    known = {name: Adjustable(value, bounds, True) for name, (value, bounds) in constants.items()} | found
    if not known:
        raise UserError(
            f"rule '{config.rule}' has no hyper-parameter that could change during a run: its agents take no gradient steps, and "
            "what its options say is fixed once they are made"
        )
    return known


def find(key: str, known: Mapping[str, Adjustable], rule: str) -> str:
    """The hyper-parameter that a user means by `key`."""
    name = SYNONYMS.get(key, key)
    if name.startswith(OF_RULE) and known.get(name.removeprefix(OF_RULE), Adjustable(0, {}, False)).of_rule:
        name = name.removeprefix(OF_RULE)
    if name not in known:
        raise UserError(
            f"rule '{rule}' has no hyper-parameter '{key}' that could change during a run"
            f"{suggestion(key, known, 'it has ' + ', '.join(known))}"
        )
    return name


def read_spaces(texts: Iterable[str], known: Mapping[str, Adjustable], rule: str) -> dict[str, Space]:
    """Where each hyper-parameter of `--tune` may lie: `learning_rate`, `entropy_cost=1e-3:1e-1:log`, `discount=0.9:0.999`."""
    spaces: dict[str, Space] = {}
    for text in texts:
        key, equals, between = text.partition("=")
        name = find(key, known, rule)
        if name in spaces:
            raise UserError(f"--tune: {name} is given twice")
        if equals and ":" not in between:
            raise UserError(f"--tune: in a population {name} has a range, {name}=LOW:HIGH, and not a list of values")
        spaces[name] = read_space(name, between, known[name]) if equals else default_space(name, known[name])
    if not spaces:
        raise UserError("which hyper-parameters does the population tune? for example: --tune learning_rate entropy_cost discount")
    return spaces


def read_space(name: str, between: str, about: Adjustable) -> Space:
    """A range as a user wrote it. Fractions are drawn by their odds, unless a scale is written or an end has none."""
    ends, odds = between.removesuffix(":odds"), between.endswith(":odds")
    found = read_range(name, float, ends, about.bounds)
    inside = found.low > 0 and found.high < 1
    if odds and not inside:
        raise UserError(f"--tune: odds are of numbers between 0 and 1, and {name}={between} is not")
    if odds or (inside and about.is_fraction(name) and between.count(":") == 1):
        return Space(found.low, found.high, "odds")
    return Space(found.low, found.high, "log" if found.log else "lin")


def default_space(name: str, about: Adjustable) -> Space:
    """From a tenth of what is recommended to ten times of it; of a fraction, of its odds."""
    value, fraction = about.value, about.is_fraction(name)
    if value <= 0 or (fraction and value >= 1):
        raise UserError(f"--tune: {name} is {value:g}, around which there is no range; write one: {name}=LOW:HIGH")
    if fraction:
        odds = value / (1 - value)
        low, high = (each / (1 + each) for each in (odds / WIDTH, odds * WIDTH))
        return Space(low, high, "odds")
    return Space(value / WIDTH, min(value * WIDTH, about.bounds.get("at_most", value * WIDTH)), "log")


def written(name: str, space: Space) -> str:
    """As a user would write it."""
    return f"{name}={space.low!r}:{space.high!r}:{space.scale}"


def check_schedule(config: TrainConfig, names: Iterable[str], points: Iterable[Mapping[str, float]], known: Any) -> None:
    """Refuse a schedule of hyper-parameters that this rule does not have, or of values that they cannot have."""
    for name in names:
        if name not in known:
            raise UserError(
                f"{config.schedule_file} is a schedule of {', '.join(names)}, and rule '{config.rule}' has no hyper-parameter "
                f"'{name}' that could change during a run"
            )
        for point in points:
            check_value(f"{config.schedule_file}: {name}", point[name], known[name].bounds)

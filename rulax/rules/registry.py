"""The rules by name, in one table, and how a name becomes a rule with its recommended settings.

Nothing here imports JAX before a rule is made, so that the command line lists rules at once.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import os
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rulax import own
from rulax.errors import suggestion
from rulax.files import cache_folder
from rulax.metanet.sizes import ABLATIONS
from rulax.rules.kinds import KINDS
from rulax.settings import Bounds, check_value
from rulax.text import convert_like, merge_options, split_options

if TYPE_CHECKING:
    from rulax.agents.base import AgentMaker
    from rulax.rules.base import Recipe


class RuleEntry(NamedTuple):
    """The function that makes a rule, as `module:function`, and a summary.

    The module also holds `LEARNING` and `NETWORK`, unless the function returns a `Recipe` that has these already.
    """

    where: str
    summary: str
    steps: int = 500_000  # recommended environment steps: enough to learn Catch
    # Makes the agents that learn by it (`AgentMaker`), as `module:function`; its keyword-only arguments, each with a default, are
    # options of the rule as well. "" means the ordinary agents.
    agent: str = ""


IN_A_FILE = ""  # instead of a function; rules/pretrained.py knows the file
DISCOVERED = 250_000  # fewer steps, because an update by a meta-network costs as much as hundreds by a hand-designed rule
RULES = {
    "policy_gradient": RuleEntry(
        "rulax.rules.policy_gradient:policy_gradient", "REINFORCE with a learned baseline (Williams 1992)"
    ),
    "actor_critic": RuleEntry("rulax.rules.actor_critic:actor_critic", "Actor-critic with V-trace (Espeholt et al. 2018)"),
    "ppo": RuleEntry("rulax.rules.ppo:ppo", "Proximal policy optimisation, clipped surrogate (Schulman et al. 2017)"),
    "dpo": RuleEntry("rulax.rules.dpo:dpo", "PPO with the drift that evolution found, in closed form (Lu et al. 2022)"),
    "lpo": RuleEntry("rulax.rules.lpo:lpo", "PPO with a drift to be discovered, which starts as PPO's own (Lu et al. 2022)"),
    "epg": RuleEntry("rulax.rules.epg:epg", "Evolved policy gradient: a loss network, to be discovered (Houthooft et al. 2018)"),
    "lpg": RuleEntry(
        "rulax.rules.lpg:lpg", "Learned policy gradient, to be discovered: no value, a prediction of its own (Oh et al. 2020)"
    ),
    "ppo_targets": RuleEntry(
        "rulax.rules.ppo_targets:ppo_targets", "PPO in the form of targets, as a discovered rule would say it"
    ),
    "q_learning": RuleEntry("rulax.rules.q_learning:q_learning", "Q(lambda) from replay with double targets (Watkins 1989)"),
    "dqn": RuleEntry(
        "rulax.rules.dqn:dqn",
        "DQN: double, n-step, dueling and prioritised on request (Mnih et al. 2015)",
        agent="rulax.agents.value_agent:make_value_agent",
    ),
    "mfec": RuleEntry(
        "rulax.rules.mfec:mfec",
        "Model-free episodic control: a table of the best returns (Blundell et al. 2016)",
        100_000,
        "rulax.agents.mfec:make_mfec_agent",
    ),
    "nec": RuleEntry(
        "rulax.rules.nec:nec",
        "Neural episodic control: tables of values with learned keys (Pritzel et al. 2017)",
        100_000,
        "rulax.agents.nec:make_nec_agent",
    ),
    "diayn": RuleEntry("rulax.rules.diayn:diayn", "Skills without a reward: paid for being recognisable (Eysenbach et al. 2018)"),
    "disco": RuleEntry(
        "rulax.rules.disco:disco", "A rule to be discovered: a meta-network with random weights (Oh et al. 2025)", DISCOVERED
    ),
    "rulax5": RuleEntry(
        IN_A_FILE, "Our own discovered rule, found in five families of small environments; it is in the package", DISCOVERED
    ),
    "disco103": RuleEntry(IN_A_FILE, "The discovered rule of Nature 648, with its published weights", DISCOVERED),
}
FILE_ENDINGS = (".safetensors", ".npz")
DISCO103_FILE = "disco_103.npz"
EMBEDDED = {"rulax5": Path(__file__).parent / "embedded" / "rulax5.safetensors"}  # rules of our own
STORED = tuple(name for name, entry in RULES.items() if entry.where == IN_A_FILE)


class UnknownRule(ValueError):
    """There is no rule with the given name."""

    def __init__(self, name: str):
        ending = Path(name).suffix
        if ending == ".py":
            super().__init__(own.without_name(name))
        elif ending:
            super().__init__(f"'{name}' is not a rule file: those end in {' or '.join(FILE_ENDINGS)} (others are never opened)")
        else:
            super().__init__(f"unknown rule '{name}'{_hint(name, sorted(RULES))}; one of your own is written file.py:name")


def list_rules() -> dict[str, str]:
    """Every rule's name and one line about it."""
    return {name: entry.summary for name, entry in RULES.items()}


def recommended_steps(name: str) -> int:
    """How many environment steps to train with a rule, or with the rule in a file, by default."""
    name, _ = split_ablations(name)
    return DISCOVERED if name.endswith(FILE_ENDINGS) else RULES.get(name, RuleEntry("", "")).steps


def split_ablations(name: str) -> tuple[str, tuple[str, ...]]:
    """Split `disco103:no_yz` into `disco103` and ("no_yz",). The ablations are not checked here."""
    # A file's path may itself contain a colon, so ablations are split off from the right.
    if name in RULES or name.endswith(FILE_ENDINGS) or ":" not in name or is_own(name):
        return name, ()
    rest, _, last = name.rpartition(":")
    base, ablations = split_ablations(rest)
    return base, (*ablations, last)


def is_own(name: str) -> bool:
    """Whether a name stands for a user's own rule: an object that was handed over, `module:name` or `file.py:name`."""
    if own.held("rule", name) is not None:
        return True
    # `disco103:no_yz` looks like a reference too.
    return own.is_reference(name) and name.partition(":")[0] not in RULES


def is_installed(name: str) -> bool:
    """Whether a rule can be used right away: only Disco103 has weights that do not come with the package."""
    if name != "disco103":
        return name in RULES
    return find_disco103() is not None


def find_disco103() -> Path | None:
    """The file of the published weights, in the folder that `RULAX_RULES` names or in the cache; None if there is none."""
    named = os.environ.get("RULAX_RULES")
    folders = [*([Path(named)] if named else []), cache_folder() / "rules"]
    return next((folder / DISCO103_FILE for folder in folders if (folder / DISCO103_FILE).is_file()), None)


def make_rule(name: str, **options: Any) -> Recipe:
    """A rule by name, or from a file, with its recommended settings.

    `make_rule("ppo", clip=0.1)` is `ppo(clip=0.1)` from `rulax.rules.ppo`, with the `LEARNING` and `NETWORK` of that file. Where an
    argument defaults to a dataclass, its fields are options as well: `make_rule("disco", prediction_size=64)`. A discovered rule
    is also available without some of its parts: `make_rule("disco103:no_yz")`.

    Args:
        name: a key of `RULES` or the path of a rule file, followed by any ablations; or a user's own rule, as `module:name` or
            `file.py:name` (`rules/own.py` says what that may be). Options may follow, as in `ppo:clip=0.1`.
        options: arguments of the function that makes the rule, and of the one that makes its agents if the rule has its own; what
            both name reaches both.
    """
    name, inside = split_options(name)
    options = merge_options(name, inside, options, "the keywords")
    name, ablations = split_ablations(name)
    if name not in RULES and is_own(name):
        if ablations:
            raise ValueError(f"'{name}:{ablations[0]}': only discovered rules have ablations, and {own.shown(name)} is your own")
        return _referred_recipe(name, options)
    stored = name in STORED or name.endswith(FILE_ENDINGS)
    if name not in RULES and not stored:
        raise UnknownRule(name)
    _check_ablations(name, stored, ablations)
    if stored:
        return _stored_recipe(name, ablations, options)
    from rulax.rules.base import Recipe  # with JAX, hence not at the top

    entry = RULES[name]
    module, make = _find(entry.where)
    if ablations:
        options |= {ABLATIONS[each]: False for each in ablations}  # it has no weights yet that would have to change
    make_agent, of_agent = agent_maker(name, options)
    made = make(**_arguments(name, make, options, of_agent))
    # A rule around another has its settings from the one inside, so its function returns the whole recipe.
    return made if isinstance(made, Recipe) else Recipe(made, module.LEARNING, module.NETWORK, make_agent)


def agent_maker(name: str, options: Mapping[str, Any]) -> tuple[AgentMaker | None, list[str]]:
    """What makes the own agents of a rule of the table, with those options that it takes; and the names of all that it takes."""
    if not RULES[name].agent:
        return None, []
    make = _find(RULES[name].agent)[1]
    # The other arguments are those of every `AgentMaker`: the learner gives them.
    known = [each.name for each in inspect.signature(make).parameters.values() if each.kind is inspect.Parameter.KEYWORD_ONLY]
    given = {option: value for option, value in options.items() if option in known}
    return functools.partial(make, **_arguments(name, make, given)) if given else make, known


def maker_of(name: str) -> tuple[Any, Any]:
    """The module of a rule of the table, which has its recommended settings, and the function that makes it."""
    return _find(RULES[name].where)


def constants_of_rule(name: str, options: Mapping[str, Any]) -> dict[str, tuple[float, Mapping[str, float]]]:
    """The real-valued options of a rule, which may be arrays and change during a life: each with its value and its bounds.

    Options that reach the rule's own agents are left out: they are fixed once an agent is made. So is everything of a rule that is
    an object and not a function that makes one.
    """
    name, inside = split_options(name)
    options, (name, _) = {**inside, **options}, split_ablations(name)
    make, elsewhere = _maker(name, options)
    parameters = _parameters(make) if make else {}
    found: dict[str, tuple[float, Mapping[str, float]]] = {}
    for each, parameter in parameters.items():
        if dataclasses.is_dataclass(parameter.default):
            for field in dataclasses.fields(parameter.default):
                found[field.name] = getattr(parameter.default, field.name), field.metadata.get("bounds", {})
        else:
            found[each] = parameter.default, _bounds_of(parameter.annotation)
    return {
        each: (_read(name, each, default, options.get(each, default), bounds), bounds)
        for each, (default, bounds) in found.items()
        if isinstance(default, float) and each not in elsewhere
    }


def _maker(name: str, options: Mapping[str, Any]) -> tuple[Callable | None, list[str]]:
    """The function that makes a rule, None if it is an object; and the options that its agents take."""
    if name in STORED or name.endswith(FILE_ENDINGS):
        from rulax.rules.pretrained import load_rule, path_of, rule_of

        loaded = load_rule(path_of(name))
        return functools.partial(rule_of, loaded, constants=loaded.rule_settings.constants), []
    if name in RULES:
        return _find(RULES[name].where)[1], agent_maker(name, options)[1]
    thing = own.held("rule", name) or own.find("rule", name)
    # An object is a tuple of functions, and yet no function.
    return (None if isinstance(thing, tuple) or not callable(thing) else thing), []


def _find(where: str) -> tuple[Any, Any]:
    """The module and the function of `module:function`."""
    module_name, function_name = where.split(":")
    module = importlib.import_module(module_name)
    return module, getattr(module, function_name)


def own_recipe(thing: Any, name: str, options: dict[str, Any]) -> Recipe:
    """A user's own object as a rule with its settings; `name` is what error messages call it."""
    from rulax.rules.own import recipe_of

    return recipe_of(thing, name, functools.partial(_arguments, name), options)


def _referred_recipe(name: str, options: dict[str, Any]) -> Recipe:
    """A user's own rule by name: one that was handed over, `module:name` or `file.py:name`."""
    thing = own.held("rule", name)
    if thing is None:
        try:
            thing = own.find("rule", name)
        except own.NoSuchModule as error:
            # More likely a misspelt `disco103:no_yz` than a module.
            near = suggestion(name.partition(":")[0], RULES)
            raise UnknownRule(name.partition(":")[0]) if near else error from error
    return own_recipe(thing, own.shown(name), options)


def _stored_recipe(name: str, ablations: tuple[str, ...], options: dict[str, Any]) -> Recipe:
    """The rule in a file, with the settings that it was discovered with."""
    from rulax.rules.base import Recipe
    from rulax.rules.pretrained import load_rule, path_of, rule_of, without

    loaded = without(load_rule(path_of(name)), ablations)
    # Bound by keyword, so that the signature shows the file's constants as defaults that `_arguments` can override.
    make = functools.partial(rule_of, loaded, constants=loaded.rule_settings.constants)
    return Recipe(make(**_arguments(name, make, options)), loaded.rule_settings.learning, loaded.rule_settings.network)


def _check_ablations(name: str, stored: bool, ablations: tuple[str, ...]) -> None:
    for each in ablations:
        if not stored and name != "disco":
            why = "has no meta-network" if name in KINDS else "is hand-designed"
            raise ValueError(f"'{name}:{each}': only discovered rules have ablations, and {name} {why}")
        if each not in ABLATIONS:
            raise ValueError(f"'{name}' has no ablation '{each}'{_hint(each, ABLATIONS)}")
    if len(set(ablations)) < len(ablations):
        raise ValueError(f"'{name}:{':'.join(ablations)}' names an ablation twice")


def _arguments(name: str, make: Callable, options: dict[str, Any], elsewhere: Collection[str] = ()) -> dict[str, Any]:
    """Options as arguments of `make`: by name, or gathered in the dataclass argument that has a field of that name.

    An option that neither `make` nor anything `elsewhere` takes is refused.
    """
    parameters = _parameters(make)
    defaults = {each: parameter.default for each, parameter in parameters.items()}
    grouped = {each: default for each, default in defaults.items() if dataclasses.is_dataclass(default)}
    owners = {field.name: each for each, default in grouped.items() for field in dataclasses.fields(default)}
    known = dict.fromkeys([*(each for each in defaults if each not in grouped), *owners, *elsewhere])  # each once
    arguments: dict[str, Any] = {}
    for option, value in options.items():
        if option in owners:
            group = owners[option]
            (bounds,) = (field.metadata.get("bounds", {}) for field in dataclasses.fields(grouped[group]) if field.name == option)
            read = _read(name, option, getattr(grouped[group], option), value, bounds)
            # On top of what earlier options have made of the same dataclass.
            arguments[group] = dataclasses.replace(arguments.get(group, grouped[group]), **{option: read})
        elif option in defaults:
            arguments[option] = _read(name, option, defaults[option], value, _bounds_of(parameters[option].annotation))
        elif option not in elsewhere:
            raise ValueError(f"rule '{name}' has no option '{option}'{_hint(option, known)}")
    return arguments


def _parameters(make: Callable) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(make, eval_str=True).parameters
    except NameError:  # annotations of a user's own function that only a type checker can read
        return inspect.signature(make).parameters


def _read(name: str, option: str, default: Any, value: Any, bounds: Mapping[str, float]) -> Any:
    """One option, converted to the type of its default and checked against its bounds."""
    if default is inspect.Parameter.empty:
        return value
    label = f"rule '{name}': {option}"
    read = convert_like(label, default, value)
    # Numbers only: an array may be traced, and then has no number yet that could be compared.
    if isinstance(read, int | float):
        check_value(label, read, bounds)
    # A named tuple such as the bins of a value has bounds of its own, for each of its fields.
    for part, hint in typing.get_type_hints(type(read), include_extras=True).items() if isinstance(read, tuple) else ():
        check_value(f"{label} ({part})", getattr(read, part), _bounds_of(hint))
    return read


def _bounds_of(annotation: Any) -> Mapping[str, float]:
    """The bounds in the annotation of an argument or a field; none for most."""
    found = typing.get_args(annotation) if typing.get_origin(annotation) is typing.Annotated else ()
    return next((each for each in found if isinstance(each, Bounds)), Bounds())


def _hint(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: near matches, and all known names."""
    near = suggestion(word, known, most=3)
    return f"{near or ';'} known: {', '.join(known)}"

"""From a name to an environment, of our own or of another library. Imports JAX only when an environment is made."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rulax import own
from rulax.envs.catalogue import AdapterFamily, adapter_families
from rulax.errors import UserError, did_you_mean, matches, suggestion
from rulax.settings import check_value
from rulax.text import convert_like, merge_options, split_options

if TYPE_CHECKING:
    from rulax.envs.base import Environment, HostEnvironment


class UnknownEnvironment(ValueError):
    """No environment has this name."""


class MissingExtra(ValueError):
    """The environment exists, but the package that holds it is not installed."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One name that `make` knows."""

    name: str
    factory: str  # "module:function", below rulax.envs; called without arguments, gives a frozen dataclass
    summary: str
    limit: int = 0  # steps after which an episode is truncated; 0 means never

    @property
    def family(self) -> str:
        """The part of the name before the slash: environments of one family share their code."""
        return self.name.split("/")[0]


# Factories are named, not imported, so that listing environments imports neither JAX nor their modules.
_ENTRIES = (
    Entry("catch", "catch:Catch", "catch a falling ball with a paddle; +1 or -1 at the end"),
    Entry("catch/several", "catch:SeveralCatch", "two games of catch at once, a choice for each paddle in every step"),
    Entry("key_door", "key_door:KeyDoor", "fetch a key, pass a locked door, reach the goal; +1 there and nothing before", 100),
    Entry("cartpole", "classic.cartpole:CartPole", "balance a pole on a cart, as CartPole-v1", 500),
    Entry("mountain_car", "classic.mountain_car:MountainCar", "swing up a hill with a weak engine, as MountainCar-v0", 200),
    Entry("acrobot", "classic.acrobot:Acrobot", "swing up a two-link arm, as Acrobot-v1", 500),
    Entry("pendulum", "classic.pendulum:Pendulum", "swing up and hold, as Pendulum-v1 with five torques", 200),
    Entry("pendulum/continuous", "classic.pendulum:continuous_pendulum", "the same with any torque", 200),
    Entry("bandit/bernoulli", "bandit:BernoulliBandit", "arms that pay 1 with their own probability; one pull"),
    Entry("bandit/gaussian", "bandit:GaussianBandit", "arms that pay a normal number; one pull"),
    Entry("bandit/dependent", "bandit:DependentArms", "two arms that pay with p and 1 - p; one pull"),
    Entry("bandit/informative", "bandit:InformativeArm", "one arm of ten pays 5, the eleventh tells which; one pull"),
    Entry("bandit/one-good", "bandit:OneGoodArm", "one arm pays with probability 0.9, the others with 0.1; one pull"),
    Entry("bandit/barcode", "barcode:barcode_bandit", "ten of these that come back in random order, each under a barcode"),
    Entry("bandit/factored", "bandit:FactoredBandit", "several levers set at once, each of which pays its part; one pull"),
    Entry("point", "point:binned_point", "walk to a goal in the plane by a stride along each of two axes", 100),
    Entry("point/directed", "point:directed", "walk in a direction that is not shown, by any stride; every step ahead is paid", 20),
    Entry("point/box", "point:box", "the same in a box with walls, by any stride; nothing but time ends an episode", 50),
    Entry(
        "point/half_circle", "point:half_circle", "walk to a goal on a half circle by any stride; only steps near it are paid", 20
    ),
    Entry("hurdles", "hurdles:hurdles", "run and jump over stumps, gaps and stairs; the terrain is the task, and can mutate", 200),
    Entry("two_step", "two_step:TwoStep", "a choice that mostly leads where it aims, then a reward or none"),
    Entry("mdp/random", "mdp:RandomMDP", "a random tabular MDP that ends with probability 0.1 per step"),
    Entry("mdp/ten-steps", "mdp:ten_steps", "a random tabular MDP of ten noisy steps, as in RL²"),
    Entry("grid/tabular-dense", "grid_variants:tabular_dense", "LPG: 11 x 11, objects come back, fixed places", 500),
    Entry("grid/tabular-sparse", "grid_variants:tabular_sparse", "LPG: 13 x 13, one goal and one trap", 50),
    Entry("grid/tabular-long-horizon", "grid_variants:tabular_long_horizon", "LPG: 11 x 11, the good is rare", 1000),
    Entry("grid/tabular-longer-horizon", "grid_variants:tabular_longer_horizon", "LPG: 7 x 9, mostly danger", 2000),
    Entry("grid/tabular-long-dense", "grid_variants:tabular_long_dense", "LPG: 11 x 11, four good objects, rarer still", 2000),
    Entry("grid/tiny-sparse", "grid_variants:tiny_sparse", "5 x 5, one goal and one trap, fixed places", 50),
    Entry("grid/tiny-dense", "grid_variants:tiny_dense", "5 x 5, a good and a bad object that come back, fixed places", 50),
    Entry("grid/random-dense", "grid_variants:random_dense", "LPG: 11 x 11, new places in every episode", 500),
    Entry("grid/random-long-horizon", "grid_variants:random_long_horizon", "LPG: 11 x 11, new places, the good is rare", 1000),
    Entry("grid/random-small", "grid_variants:random_small", "LPG: 5 x 7, two good and two bad objects", 500),
    Entry("grid/random-small-sparse", "grid_variants:random_small_sparse", "LPG: 5 x 7, every object is the last", 50),
    Entry("grid/random-very-dense", "grid_variants:random_very_dense", "LPG: 11 x 11, run after one good object", 2000),
    Entry("grid/delayed", "grid_variants:delayed", "5 x 7, what was collected is paid at every tenth step", 100),
    Entry("grid/step-cost", "grid_variants:step_cost", "7 x 7, every step costs: the goal is worth it, the exit is near", 50),
    Entry("chain/short", "grid_variants:chain_short", "LPG: the first action decides the reward 30 steps later"),
    Entry("chain/short-noisy", "grid_variants:chain_short_noisy", "chain/short with random rewards on the way"),
    Entry("chain/long", "grid_variants:chain_long", "LPG: the first action decides the reward 50 steps later"),
    Entry("chain/long-noisy", "grid_variants:chain_long_noisy", "chain/long with random rewards on the way"),
    Entry("chain/distractor", "grid_variants:chain_distractor", "chain/short with 20 random bits in every observation"),
    Entry("chain/choice", "choice:DelayedChoice", "a small reward now, or a larger one after a delay that is shown"),
    Entry("probe/value", "probes:ValueProbe", "is a constant reward learned?"),
    Entry("probe/observation", "probes:ObservationProbe", "does the value depend on the observation?"),
    Entry("probe/discount", "probes:DiscountProbe", "is a later reward discounted?"),
    Entry("probe/policy", "probes:PolicyProbe", "is the better action preferred?"),
    Entry("probe/context", "probes:ContextProbe", "does the better action depend on the observation?"),
)
_BY_NAME = {entry.name: entry for entry in _ENTRIES}
_FAMILIES = adapter_families()
# An Atari game, as Gymnasium's users know it: ALE/Pong-v5, PongNoFrameskip-v4.
GAME = re.compile(r"(ALE/|(?=\w+NoFrameskip))(?P<game>[A-Za-z]+?)(NoFrameskip|Deterministic)?(-ram)?(-v\d)?")
VERSIONED = re.compile(r"[A-Z][\w/-]*-v\d+")  # as Gymnasium writes ids

# Options that wrap an environment, with the functions of `tasks.py` that the first ones stand for, in the order of wrapping.
COMBINATORS = {"tasks": "finite_set", "contexts": "recurring", "trial": "trial"}
LASTING = {"with_noise": "noise_level", "with_skill": "skill_level"}  # functions of `lasting.py`, and the options of their level
AROUND = ("randomise", "with_distractors", *COMBINATORS, "processes", *LASTING, *LASTING.values(), "stack")

OTHERWISE = "`rulax envs` lists all; one of your own is written file.py:Name, module:Name or module:ID"


def list_environments() -> list[Entry]:
    """Our own environments, each with a one-line summary, in the order of the documentation."""
    return list(_ENTRIES)


def families() -> dict[str, list[Entry]]:
    """The same, grouped by the part of the name before the slash."""
    grouped: dict[str, list[Entry]] = {}
    for entry in _ENTRIES:
        grouped.setdefault(entry.family, []).append(entry)
    return grouped


def make(name: str, **options: Any) -> Environment | HostEnvironment:
    """The environment of that name: one of ours, `prefix/ID` of another library, any Gymnasium id, or a user's own part.

    The last is written `module:name` or `file.py:name` (`envs/own.py` says what that may be). Options may stand in the name as
    well: `catch:rows=5` is `make("catch", rows=5)`.

    `options` override fields of our environments (and `limit`, where the name has a time limit); for others they go to the adapter.
    Some options are for any environment:

    * compiled ones: `tasks=16` restricts its tasks to 16, `contexts=10` shows that many in turn, `trial=4` makes trials of four
      episodes (`tasks.py`); `with_distractors=0.3` shows random pixels beside the observation (`distracted.py`);
    * host ones: `processes=2` shares out the streams of one that is made of copies, `stack=4` shows the last four images;
    * both, where there are constants to draw: `randomise="force=5:15"` (`randomised.py`), for every episode, or with the options
      above for every task;
    * all: `with_noise=4` and `with_skill=8` show noise or a skill that lasts for an episode, or longer with `noise_level=trial` or
      `skill_level=life` (`lasting.py`).
    """
    name, inside = split_options(name)
    options = merge_options(name, inside, options, "the keywords")
    # Taken out first: what is left in `options` belongs to the environment or its adapter.
    around = {option: options.pop(option) for option in AROUND if option in options}
    environment: Any = _make_registered(_BY_NAME[name], options) if name in _BY_NAME else _looked_at(name, options)
    if "randomise" in around:
        from rulax.envs.adapters.limit import set_up
        from rulax.envs.randomised import randomise

        # The combinators below draw tasks themselves, and keep one for longer than an episode.
        per_task = any(option in around for option in COMBINATORS)
        environment = set_up(own.shown(name), randomise, environment, own.shown(name), around["randomise"], per_task)
    if "with_distractors" in around:
        environment = _distracted(name, environment, around["with_distractors"])
    for option in COMBINATORS:
        if option in around:
            environment = _combine(name, environment, option, around[option])
    # Inside of lasting draws, whose generators then do not depend on how streams are shared out.
    if "processes" in around:
        from rulax.envs.adapters.workers import share

        # The name and the options are what travels: every process makes the environment itself.
        made_with = options | {option: around[option] for option in ("randomise",) if option in around}
        environment = share(name, made_with, environment, around["processes"])
    environment = with_lasting(name, environment, around)
    if "stack" in around:  # around the processes, so that single frames travel
        from rulax.envs.adapters.stacking import stack

        environment = stack(name, environment, around["stack"])
    return environment


def with_lasting(name: str, environment: Any, options: Mapping[str, Any]) -> Environment | HostEnvironment:
    """An environment with those of the options `with_noise`, `with_skill` and of their levels that are given; see `make`."""
    for option, level in LASTING.items():
        if option in options:
            environment = _with_draw(name, environment, option, options[option], options.get(level, "episode"))
        elif level in options:
            raise ValueError(f"'{name}': {level} says how long something lasts that is not there; give {option} too")
    return environment


def lasting_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those options that show something to the agent, which it needs in any other environment as well."""
    return {name: value for name, value in options.items() if name in LASTING or name in LASTING.values()}


def _combine(name: str, environment: Any, option: str, number: Any) -> Environment:
    """One of the combinators of tasks around an environment."""
    from rulax.envs import tasks
    from rulax.envs.base import HostEnvironment

    if isinstance(environment, HostEnvironment):
        raise ValueError(
            f"'{name}' runs on the host and has one task; the option {option} is for environments that run inside of JAX"
        )
    combine = getattr(tasks, COMBINATORS[option])
    return combine(environment, _whole(name, option, number))


def _distracted(name: str, environment: Any, share: Any) -> Environment:
    """Random pixels beside what an environment shows."""
    from rulax.envs.distracted import with_distractors

    read = convert_like(f"'{name}': with_distractors", 0.5, share)
    try:
        return with_distractors(environment, read)
    except ValueError as error:
        raise ValueError(f"'{name}': {error}") from error


def _with_draw(name: str, environment: Any, option: str, size: Any, level: Any) -> Environment | HostEnvironment:
    """Lasting noise or a lasting skill around any environment."""
    from rulax.envs import lasting
    from rulax.types import Level

    known = [each.name.lower() for each in Level if each]
    if level not in known:
        raise ValueError(f"'{name}': {LASTING[option]} must be one of {', '.join(known)}, not {level!r}")
    return getattr(lasting, option)(environment, _whole(name, option, size), Level[level.upper()])


def _whole(name: str, option: str, number: Any) -> int:
    label = f"'{name}': {option}"
    read = convert_like(label, 1, number)
    check_value(label, read, {"at_least": 1})
    return read


def _looked_at(name: str, options: dict[str, Any]) -> Environment | HostEnvironment:
    from rulax.envs.adapters.limit import set_up

    return set_up(own.shown(name), _make_other, name, options)


def _make_other(name: str, options: dict[str, Any]) -> Environment | HostEnvironment:
    """An environment that is not in the table: a user's own, or another library's."""
    thing = _own_part(name)
    if thing is None and name.endswith(".py"):
        raise UserError(own.without_name(name))
    if thing is None:
        return _make_adapted(name, options)
    from rulax.envs.own import environment_of

    return environment_of(thing, own.shown(name), options)


def _own_part(name: str) -> Any:
    """The object that a user handed over under this name, or that it points to as `module:name` or `file.py:name`; else None."""
    thing = own.held("env", name)
    if thing is not None or not own.is_reference(name):
        return thing
    try:
        return own.find("env", name)
    except UserError:
        # `package:ID` is how Gymnasium writes an id that importing the package registers, perhaps without a version.
        if not name.partition(":")[0].endswith(".py") and _FAMILIES["gymnasium"].installed and _registered(name.partition(":")[2]):
            return None
        raise


def _registered(environment_id: str) -> bool:
    """Whether an import has registered this id with Gymnasium, with or without a version."""
    import gymnasium

    return environment_id in gymnasium.registry or any(each.rpartition("-v")[0] == environment_id for each in gymnasium.registry)


def _make_adapted(name: str, options: dict[str, Any]) -> Environment | HostEnvironment:
    family, environment_id = _split(name)
    if not family.installed:
        # Without a prefix it is more likely a misspelt name of ours than an id of a library that is missing.
        if name != environment_id:
            raise MissingExtra(f"'{name}' needs {family.package}, which is not installed: {family.install}")
        raise _unknown(name)
    if ":" in environment_id:
        own.consent.check(environment_id.rpartition(":")[0])  # which the adapter imports
    if re.match(r".+\.py:", environment_id):  # importing the file registers the id
        file, _, environment_id = environment_id.rpartition(":")
        own.import_file(Path(file))
    module = importlib.import_module(f"rulax.envs.adapters.{family.prefix}")
    # Refused here rather than by the adapter, because here the names of all families are known for a suggestion.
    if family.prefix == "gymnax" and environment_id not in _ids("gymnax"):
        raise _unknown(name)
    if family.prefix == "gymnasium" and not _gymnasium_knows(environment_id):
        raise _unknown(name)
    return module.make(environment_id, **options)


def steps_on_host(name: str, options: dict[str, Any] | None = None) -> bool:
    """Whether the environment of that name is a `HostEnvironment`, without making it unless it is a user's own."""
    if name in _BY_NAME:
        return False
    if own.held("env", name) is not None or own.is_reference(name):
        from rulax.envs.base import HostEnvironment

        return isinstance(make(name, **(options or {})), HostEnvironment)
    return not _split(name)[0].in_jax


def _split(name: str) -> tuple[AdapterFamily, str]:
    """The family of a name that is not ours, and the id of the environment there; without a prefix it is Gymnasium's."""
    prefix, _, rest = name.partition("/")
    return (_FAMILIES[prefix], rest) if prefix in _FAMILIES else (_FAMILIES["gymnasium"], name)


def _make_registered(entry: Entry, options: dict[str, Any]) -> Environment:
    module, function = entry.factory.split(":")
    factory = getattr(importlib.import_module(f"rulax.envs.{module}"), function)
    # A function with arguments puts several parts together: these are options as well as the fields of the outermost part.
    arguments = inspect.signature(factory).parameters if inspect.isfunction(factory) else {}
    defaults = {name: each.default for name, each in arguments.items()} | _fields(factory())
    defaults |= {"limit": entry.limit} if entry.limit else {}
    known = list(defaults)
    for option in options:
        if option not in known:
            otherwise = f"it has {', '.join(known)}" if known else "it has none"
            raise ValueError(f"'{entry.name}' has no option '{option}'{suggestion(option, known, otherwise, most=3)}")
    # The command line and YAML give text or bare numbers; the default says which type is meant.
    options = {key: convert_like(f"'{entry.name}': {key}", defaults[key], value) for key, value in options.items()}
    limit = options.pop("limit", entry.limit)
    if limit < 0:
        raise ValueError(f"'{entry.name}': limit must not be negative, not {limit} (0 means none)")
    environment = factory(**{name: value for name, value in options.items() if name in arguments})
    environment = dataclasses.replace(environment, **{name: value for name, value in options.items() if name not in arguments})
    if not limit:
        return environment
    from rulax.envs.wrappers import TimeLimit

    return TimeLimit(environment, limit)


def _fields(environment: Any) -> dict[str, Any]:
    """The fields of a dataclass that can be options, with their values: neither a part inside, nor what `make` takes itself."""
    values = {field.name: getattr(environment, field.name) for field in dataclasses.fields(environment)}
    return {name: value for name, value in values.items() if name not in AROUND and not hasattr(value, "num_actions")}


def _gymnasium_knows(environment_id: str) -> bool:
    """Whether Gymnasium has this id. Only the adapter can tell for `package:ID`, because importing the package registers it."""
    import gymnasium

    if ":" in environment_id:
        return True
    if environment_id in _ids_of_ale():
        return False
    try:
        gymnasium.spec(environment_id)
    except gymnasium.error.UnregisteredEnv:
        return environment_id in _ids("gymnasium")
    except gymnasium.error.Error as error:
        # For anything but an ill-formed name (a retired version, say) the adapter has the better error.
        return "malformed" not in str(error).lower()
    return True


def _ids_of_ale() -> set[str]:
    """The ids that ale-py has registered with Gymnasium, with and without version, if it has been imported.

    That must not decide what `Pong` means: Atari games are those of the family `atari`, with the papers' preprocessing, or
    `ale_py:ALE/Pong-v5` without.
    """
    import gymnasium

    ids = [id for id, spec in gymnasium.registry.items() if str(spec.entry_point).startswith("ale_py")]
    # Gymnasium resolves ids without a version as well.
    return {*ids, *(id.rpartition("-v")[0] for id in ids)}


def _ids(adapter: str) -> list[str]:
    """The ids that an adapter offers, without prefix; none if its package is missing."""
    if not _FAMILIES[adapter].installed:
        return []
    module = importlib.import_module(f"rulax.envs.adapters.{adapter}")
    passed_over = _ids_of_ale() if adapter == "gymnasium" else ()
    return [each.removeprefix(f"{adapter}/") for each in module.ids() if each not in passed_over]


def _unknown(name: str) -> UnknownEnvironment:
    listed = ("gymnax", "gymnasium")  # by all of their ids, and only where they are installed
    examples = [
        f"{family.prefix}/{each}" for family in _FAMILIES.values() if family.prefix not in listed for each in family.examples
    ]
    full = [f"{family}/{each}" for family in ("gymnax", "atari") for each in _ids(family)]
    known = [*_BY_NAME, *full, *_ids("gymnasium"), *examples]
    bare = name.removeprefix("gymnasium/")
    game = GAME.fullmatch(bare)
    if game:
        how = "" if _FAMILIES["atari"].installed else f" ({_FAMILIES['atari'].install})"
        raw = f"; ale_py:{bare} is the game without the papers' preprocessing" if bare.startswith("ALE/") else ""
        return UnknownEnvironment(f"unknown environment '{name}'{did_you_mean(repr('atari/' + game['game']))}{how}{raw}")
    # Nothing of ours has a version: `CartPole-v1` after a bare install is what the first line of a tutorial says.
    if VERSIONED.fullmatch(bare) and not _FAMILIES["gymnasium"].installed:
        ours = did_you_mean(*map(repr, matches(bare.rpartition("-v")[0], _BY_NAME, 1)))
        return UnknownEnvironment(f"'{name}' needs gymnasium, which is not installed: {_FAMILIES['gymnasium'].install}{ours}")
    missing = [name for name in listed if not _FAMILIES[name].installed]
    extras = f"; more with pip install 'rulax[{','.join(missing)}]'" if missing else ""
    return UnknownEnvironment(f"unknown environment '{name}'{suggestion(bare, known, OTHERWISE, most=3)}{extras}")

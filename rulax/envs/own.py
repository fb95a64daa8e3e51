"""From a user's own object to an environment: one of ours, one of Gymnasium's, its class, or a function that makes it."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rulax.envs.base import Environment, HostEnvironment
from rulax.errors import UserError, suggestion
from rulax.own import is_nameless, name_of
from rulax.text import convert_like

ACCEPTED = "an Environment, a gymnasium.Env, its class, or a function that makes one"
OURS = (Environment, HostEnvironment)
ADAPTER = ("bins", "flatten", "max_episode_steps")  # options of `from_gymnasium`; all others go to the user's class or function


def is_environment(thing: Any) -> bool:
    """Whether an object could be an environment; a function is believed until it has been called."""
    return isinstance(thing, OURS) or of_gymnasium(thing) or callable(thing)


def environment_name(thing: Any) -> str:
    """What tables call an object: an id of Gymnasium's, its own `name`, or its class or function."""
    if of_gymnasium(thing):
        return thing.spec.id if thing.spec is not None else type(thing.unwrapped).__name__
    if is_nameless(thing):  # called after what it makes; a mistake in it is reported where it is used
        with suppress(Exception):
            made = thing()
            if of_gymnasium(made):
                made.close()
            return environment_name(made)
    return name_of(thing)


def environment_of(thing: Any, name: str, options: dict[str, Any]) -> Environment | HostEnvironment:
    """The environment that a user's own object stands for.

    Args:
        thing: the object.
        name: what error messages and records call it.
        options: fields of an environment of ours, or arguments of a class or function; `bins`, `flatten` and `max_episode_steps`
            are those of `from_gymnasium`, and `randomise` has ranges of its constants or attributes (`randomised.py`).
    """
    if "randomise" in options:
        from rulax.envs.randomised import randomise  # not above, for it imports the adapters

        rest = {option: value for option, value in options.items() if option != "randomise"}
        return randomise(environment_of(thing, name, rest), name, options["randomise"])
    if isinstance(thing, OURS):
        return _with_fields(thing, name, options)
    if of_gymnasium(thing):
        return _adapted(_copies_of(thing, name), name, options)
    if not callable(thing):
        raise UserError(f"env '{name}' must be {ACCEPTED}, not {thing!r}")
    make, adapter = _maker(thing, name, options)
    made = make()
    if isinstance(made, OURS):
        if adapter:
            raise UserError(f"'{name}' has no option '{next(iter(adapter))}'")
        return made
    if of_gymnasium(made):
        made.close()
        return _adapted(make, name, adapter)
    raise UserError(f"env '{name}' must be {ACCEPTED}; it returned {made!r}")


def of_gymnasium(thing: Any) -> bool:
    """Whether it is an environment of Gymnasium. Gymnasium itself is not imported."""
    # Whoever holds such an environment has imported the package; for all others it may not even be installed.
    return "gymnasium" in sys.modules and isinstance(thing, sys.modules["gymnasium"].Env)


def _maker(thing: Callable, name: str, options: dict[str, Any]) -> tuple[Callable[[], Any], dict[str, Any]]:
    """What makes one environment with the options that its class or function takes, and the options left for the adapter."""
    parameters = inspect.signature(thing).parameters
    anything = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    adapter = {option: value for option, value in options.items() if option in ADAPTER and option not in parameters}
    own = {option: value for option, value in options.items() if option not in adapter}
    for option in own:
        if option not in parameters and not anything:
            raise UserError(f"'{name}' has no option '{option}'{suggestion(option, [*parameters, *ADAPTER])}")
        default = parameters[option].default if option in parameters else inspect.Parameter.empty
        # The command line gives text or bare numbers; a default says which type is meant.
        if isinstance(default, bool | int | float | str | tuple):
            own[option] = convert_like(f"'{name}': {option}", default, own[option])
    missing = [each.name for each in parameters.values() if each.default is each.empty and each.name not in own and _named(each)]
    if missing:
        raise UserError(f"'{name}' needs the option '{missing[0]}', as in {missing[0]}=VALUE")
    return functools.partial(thing, **own), adapter


def _named(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def _with_fields(environment: Any, name: str, options: dict[str, Any]) -> Any:
    """A copy with other options, where it is a dataclass, as ours are."""
    if not options:
        return environment
    known = [field.name for field in dataclasses.fields(environment) if field.init] if dataclasses.is_dataclass(environment) else []
    for option in options:
        if option not in known:
            listed = f"it has {', '.join(known)}" if known else "it has none"
            raise UserError(f"'{name}' has no option '{option}'{suggestion(option, known, listed)}")
    return dataclasses.replace(
        environment, **{key: convert_like(f"'{name}': {key}", getattr(environment, key), value) for key, value in options.items()}
    )


def _adapted(make: Callable[[], Any], name: str, options: dict[str, Any]) -> HostEnvironment:
    from rulax.envs.adapters.gymnasium import from_gymnasium

    for option in options:
        if option not in ADAPTER:
            listed = f"it is ready-made, so there are only {', '.join(ADAPTER)}"
            raise UserError(f"'{name}' has no option '{option}'{suggestion(option, ADAPTER, listed)}")
    return from_gymnasium(make, name=name, **options)


def _copies_of(env: Any, name: str) -> Callable[[], Any]:
    """What makes further environments like a given one: by its id and arguments, or by copying it as a whole."""
    gymnasium, spec = sys.modules["gymnasium"], env.spec
    try:
        if spec is not None:
            gymnasium.make(spec).close()
            return lambda: gymnasium.make(spec)
    # A wrapper of the user's own that does not keep its arguments cannot be made again from them.
    except (gymnasium.error.Error, ValueError, TypeError):
        pass
    try:
        copy.deepcopy(env)
    # Whatever an environment holds (a window, a socket) may refuse in its own way.
    except Exception as error:
        raise UserError(
            f"env '{name}' cannot be copied ({error}), and every stream needs one of its own: give its class, or a function that "
            "makes it"
        ) from error
    return lambda: copy.deepcopy(env)

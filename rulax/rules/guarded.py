"""A user's own rule, guarded: a mistake in one of its functions is told in one sentence, with the line that it was made in.

A rule's functions are called only while JAX traces a program: once before anything is written (`Trainer.check`), and again when it
is compiled. So whatever is looked at here costs nothing while agents learn.
"""

from __future__ import annotations

import functools
import inspect
import os
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rulax.errors import UserError, did_you_mean, matches, suggestion
from rulax.rules.base import UpdateRule
from rulax.types import Array, Batch, Experience, Head, Metrics, Predictions, PyTree

PACKAGE = str(Path(__file__).resolve().parents[1]) + os.sep
INSTALLED = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")})
MOST_LETTERS = 300  # of an error's own text: JAX explains at length


def guarded(rule: UpdateRule, name: str, needs_policy: bool = True) -> UpdateRule:
    """The same rule, whose mistakes are `UserError`s.

    Errors that are raised inside of rulax without passing through the user's own code stay as they are.

    Args:
        rule: the user's.
        name: what the sentences call it.
        needs_policy: whether its agents act by a head called "policy"; those of a user's own maker may not.
    """

    def heads(num_actions: int) -> dict[str, Head]:
        with telling(name, "heads", rule.heads, "heads(num_actions)"):
            found = rule.heads(num_actions)
        if not isinstance(found, dict) or not all(isinstance(each, Head) for each in found.values()):
            raise wrong(name, rule.heads, 'heads must return a Head by name, as in {"policy": Head(num_actions)}')
        if needs_policy and "policy" not in found:
            raise wrong(name, rule.heads, f"heads must hold 'policy', which agents act by; they hold {listed(found)}")
        return found

    def init(key: Array) -> PyTree:
        with telling(name, "init", rule.init, "init(key)"):
            return rule.init(key)

    def start(key: Array) -> PyTree:
        with telling(name, "start", rule.start, "start(key)"):
            return rule.start(key)

    def targets(rule_params: PyTree, rule_state: PyTree, batch: Batch) -> tuple[PyTree, PyTree, Metrics]:
        with telling(name, "targets", rule.targets, "targets(rule_params, rule_state, batch)", heads=batch.online):
            made = rule.targets(rule_params, rule_state, batch)
        if not isinstance(made, tuple) or len(made) != 3:
            raise wrong(name, rule.targets, f"targets must return (targets, rule_state, metrics), not {described(made)}")
        then, now = (jax.tree.map(lambda x: (jnp.shape(x), jnp.result_type(x)), state) for state in (rule_state, made[1]))
        if then != now:
            raise wrong(name, rule.targets, f"targets must return a rule_state like the one it got: {then} became {now}")
        check_metrics(name, "targets", rule.targets, made[2])
        return made

    def loss(rule_params: PyTree, taken: Predictions, targets: PyTree, experience: Experience) -> tuple[Array, Metrics]:
        known = {"heads": taken, "targets": targets} if isinstance(targets, Mapping) else {"heads": taken}
        with telling(name, "loss", rule.loss, "loss(rule_params, taken, targets, experience)", **known):
            made = rule.loss(rule_params, taken, targets, experience)
        if not isinstance(made, tuple) or len(made) != 2:
            raise wrong(name, rule.loss, f"loss must return (loss [T, B], metrics), not {described(made)}")
        check_per_step(name, "the loss", rule.loss, made[0], experience)
        check_metrics(name, "loss", rule.loss, made[1])
        return made

    def priority(targets: PyTree, batch: Batch) -> Array:
        assert rule.priority is not None
        known = {"heads": batch.online, "targets": targets} if isinstance(targets, Mapping) else {"heads": batch.online}
        with telling(name, "priority", rule.priority, "priority(targets, batch)", **known):
            errors = rule.priority(targets, batch)
        check_per_step(name, "the priority", rule.priority, errors, batch.experience)
        return errors

    # Under the name of the user's function, which a rule without a name is called after (`rules/own.py`).
    functools.update_wrapper(loss, rule.loss)
    return UpdateRule(heads, init, start, targets, loss, priority if rule.priority else None)


# -- what is raised --------------------------------------------------------------------------------------------------------------


@contextmanager
def telling(name: str, part: str, function: Callable, called: str, **known: Mapping[str, Any]) -> Iterator[None]:
    """Around a call of a user's function: what goes wrong in their code becomes one sentence.

    Args:
        name: the rule's.
        part: which of its functions is called.
        function: that function.
        called: how it is called, for one that takes other arguments.
        known: what may be asked for by name inside of it, such as the heads.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        file, line = place_of(function)
        # This function, and the one with the call in it: nothing of the user's has begun yet.
        if isinstance(error, TypeError) and len(traceback.extract_tb(error.__traceback__)) == 2:
            raise UserError(f"rule '{name}' is called as {called}: {said(error)}{where(file, line)}") from error
        place = innermost(error, file)
        if place is None:
            raise
        raise UserError(f"rule '{name}', {part}: {said(error)}{where(*place)}{hint(error, known)}") from error


def wrong(name: str, function: Callable, sentence: str) -> UserError:
    """What a user's function returned is not what a rule's should."""
    return UserError(f"rule '{name}': {sentence}{where(*place_of(function))}")


def place_of(function: Callable) -> tuple[str, int]:
    """The file and line where a function is defined; "" for what is none, such as a partial application."""
    function = inspect.unwrap(function)
    return (function.__code__.co_filename, function.__code__.co_firstlineno) if inspect.isfunction(function) else ("", 0)


def innermost(error: Exception, own: str) -> tuple[str, int] | None:
    """The last place in the user's code that an error passed: in the file `own`, or in any that is neither ours nor installed."""
    frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    # Without a file are functions that Python itself made, such as those of a NamedTuple.
    passed = [place for place in frames if place[0] == own or not place[0].startswith((*INSTALLED, "<"))]
    passed = [place for place in passed if not place[0].startswith(PACKAGE)]
    return passed[-1] if passed else None


def said(error: Exception) -> str:
    """An error's kind and the first line of its text."""
    text = (str(error).strip().splitlines() or [""])[0]
    text = text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…"
    return f"{type(error).__name__}: {text}".rstrip(": .")


def where(file: str, line: int) -> str:
    """The place as it stands behind a sentence."""
    return f" ({os.path.basename(file)}, line {line})" if file and not file.startswith(PACKAGE) else ""


def hint(error: Exception, known: Mapping[str, Mapping[str, Any]]) -> str:
    """What may have been meant: names that there are, where one was asked for that is not there."""
    if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
        near = [each for names in known.values() for each in matches(error.args[0], names, 1)]
        there = ", ".join(f"the {kind} are {listed(names)}" for kind, names in known.items())
        return (did_you_mean(*map(repr, near[:1])) or ";") + f" {there}" if there else ""
    if isinstance(error, AttributeError) and error.name:
        return suggestion(error.name, [each for each in dir(error.obj) if not each.startswith("_")])
    return ""


# -- what is returned ------------------------------------------------------------------------------------------------------------


def check_per_step(name: str, what: str, function: Callable, values: Any, experience: Experience) -> None:
    """Refuse what is not one real number for each step."""
    wanted = experience.reward.shape
    if not is_array(values) or jnp.shape(values) != wanted:
        raise wrong(name, function, f"{what} must be one number for each step, [T, B] = {list(wanted)}, not {described(values)}")
    if not jnp.issubdtype(jnp.result_type(values), jnp.floating):
        raise wrong(name, function, f"{what} must be made of real numbers, not {jnp.result_type(values)}")


def check_metrics(name: str, part: str, function: Callable, metrics: Any) -> None:
    """Refuse what cannot be written down as one number by name."""
    if not isinstance(metrics, dict):
        raise wrong(name, function, f"the metrics of {part} must be a dict of numbers by name, not {described(metrics)}")
    for each, value in metrics.items():
        if not is_array(value) or jnp.shape(value):
            raise wrong(name, function, f"the metric '{each}' of {part} must be one number, not {described(value)}; its mean is")


def is_array(value: Any) -> bool:
    """Whether it is a number or an array of numbers."""
    return isinstance(value, int | float | jax.Array | np.ndarray | np.generic)


def described(value: Any) -> str:
    """A value as an error names it."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"an array of shape {list(jnp.shape(value))}" if is_array(value) else f"a {type(value).__name__}"


def listed(names: Mapping[str, Any]) -> str:
    """Names with commas between them."""
    return ", ".join(names) or "nothing"

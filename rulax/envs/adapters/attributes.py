"""Attributes of a Gymnasium environment that may be drawn anew for every episode, and what follows from them.

An environment may compute one attribute from others when it is made: Gymnasium's CartPole has `total_mass`, the sum of `masspole`
and `masscart`. Setting `masspole` alone would leave it as it was, and the dynamics would be nobody's. So the lines of `__init__`
that read an attribute are looked up in the source, and computed again after it was drawn. Where that is impossible (a line needs an
argument of `__init__`, or makes a space, which agents have read already) the attribute is refused, unless `reset` assigns the same
anew: LunarLander's makes another Box2D world each time. What other methods have stored is not found, nor anything where there is no
source.

A property with a setter is an attribute like any other: so a subclass gives a name to a number that lies deeper, as MuJoCo's do.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from rulax.envs.ranges import Ranges, at, write_union
from rulax.errors import UserError, suggestion

SPACES = ("action_space", "observation_space")
# Of an attribute's name, a part or the beginning of one: nothing moves sensibly with such a number at 0 or below.
POSITIVE, BEGINNINGS = {"tau", "dt", "m", "l"}, ("mass", "length")


class Line(NamedTuple):
    """An assignment in `__init__`."""

    target: str  # the attribute, or a variable
    attribute: bool  # which of the two
    reads: frozenset[str]  # attributes that its value reads
    variables: frozenset[str]  # arguments and variables that it reads
    code: Any  # the value, compiled
    names: dict[str, Any]  # the module that the code stands in


class Follow(NamedTuple):
    """What has to be computed again after some attributes were set, in this order."""

    lines: tuple[Line, ...]

    def apply(self, env: Any) -> None:
        """Compute it."""
        for line in self.lines:
            setattr(env, line.target, eval(line.code, line.names, {"self": env}))


class Drawn:
    """Draws the attributes of one environment before every reset."""

    def __init__(self, name: str, env: Any, ranges: Ranges):
        self.env, self.ranges, self.follow = env, ranges, check_attributes(name, env, ranges)
        self.generator = np.random.default_rng()

    def seed(self, seed: int) -> None:
        """Start the sequence of draws again."""
        # Not the environment's own generator: what it draws itself is then the same as without randomisation.
        self.generator = np.random.default_rng([seed, *b"randomise"])

    def draw(self) -> None:
        """Set all of them, and what follows."""
        for name, union in self.ranges.items():
            setattr(self.env, name, float(at(union, self.generator.random(), np)))
        self.follow.apply(self.env)


def check_attributes(name: str, env: Any, ranges: Ranges) -> Follow:
    """What follows from these attributes of an environment (without its wrappers); one that cannot be drawn is refused."""
    lines = [line for cls in reversed(type(env).__mro__) for line in lines_of(cls)]
    anew = made_by_reset(type(env))
    known = sorted(each for each in real_attributes(env) if not refusal(following({each}, lines, anew)))
    if not known:
        raise UserError(f"'{name}' has nothing to randomise: it has no real-valued attributes that can be set between episodes")
    for each in ranges:
        if each not in real_attributes(env):
            raise UserError(f"'{name}' has no real-valued attribute '{each}'{suggestion(each, known)} (it has {', '.join(known)})")
    for each, union in ranges.items():
        if union[0][0] <= 0 < getattr(env, each) and is_positive(each):
            raise UserError(f"randomise: {each} of '{name}' must be above 0, not {write_union(union)}")
    after = following(set(ranges), lines, anew)
    for each in ranges:
        if why := refusal(following({each}, lines, anew)):
            raise UserError(f"'{name}': {each} cannot be randomised, because {why}; others can: {', '.join(known)}")
    derived = {line.target for line in after if line.attribute}
    both = [each for each in ranges if each in derived]
    if both:
        raise UserError(f"'{name}': {both[0]} is computed from other attributes that are randomised as well; leave it out")
    return Follow(tuple(line for line in after if line.attribute))


def is_positive(attribute: str) -> bool:
    """Whether a name is that of a mass, a length or a step of time: `masspole`, `LINK_LENGTH_1`, `tau`."""
    parts = attribute.lower().split("_")
    return any(part in POSITIVE or part.startswith(BEGINNINGS) for part in parts)


def real_attributes(env: Any) -> list[str]:
    """Public attributes that hold a real number: the environment's own and those of its classes, without Gymnasium's."""
    found = dict(vars(env))
    for cls in type(env).__mro__:
        if cls.__module__.partition(".")[0] != "gymnasium" or ".envs." in cls.__module__:
            settable = {
                each: getattr(env, each, None) for each, made in vars(cls).items() if isinstance(made, property) and made.fset
            }
            found = {**vars(cls), **settable, **found}
    # Whole numbers are sizes and counts more often than not, and an environment may index with them.
    return [each for each, value in found.items() if not each.startswith("_") and isinstance(value, float | np.floating)]


def refusal(after: list[Line]) -> str:
    """Why an attribute cannot be drawn, given what follows from it; empty if it can."""
    for line in after:
        if line.attribute and line.target in SPACES:
            return f"its {line.target} is made from it"
        if line.attribute and line.variables:
            return f"{line.target} is computed from it and from variables that are gone once it is made"
    return ""


def following(attributes: set[str], lines: list[Line], anew: frozenset[str] = frozenset()) -> list[Line]:
    """The lines whose value depends on one of these attributes, in order; through variables too.

    Left out are those that cannot be computed again and need not be, because `reset` makes their targets `anew`.
    """
    depends, found = set(attributes), []
    variables: set[str] = set()
    later: set[str] = set()  # what the next reset makes, too late for a line that reads it
    for line in lines:
        # `self.gravity = gravity`: whatever else is made from the argument belongs to the attribute as well.
        if line.attribute and line.target in attributes and not line.reads and len(line.variables) == 1:
            variables |= line.variables
        elif line.reads & depends or line.variables & variables:
            (depends if line.attribute else variables).add(line.target)
            if line.attribute and line.variables and line.target in anew:
                later.add(line.target)
            else:
                found.append(line._replace(variables=line.variables | (line.reads & later)))
    return found


def made_by_reset(cls: type) -> frozenset[str]:
    """The attributes that every call of a class's `reset` assigns, from something else than what they were."""
    body = _body_of(getattr(cls, "reset", None))
    found: set[str] = set()
    for node in body.body if body else ():
        if any(isinstance(each, ast.Return) for each in ast.walk(node)):
            break  # what stands after it may never be reached
        if isinstance(node, ast.Assign):
            targets = {each.attr for each in node.targets if _is_own(each)}
            found |= targets - _read_by(node.value, {})[0]
    return frozenset(found)


def lines_of(cls: type) -> list[Line]:
    """The assignments in the `__init__` that a class itself defines; none if its source cannot be read."""
    made = None if cls is object else vars(cls).get("__init__")
    tree = _body_of(made)
    if made is None or tree is None:
        return []
    names = made.__globals__
    assignments = [node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value]
    found = []
    for node in sorted(assignments, key=lambda each: each.lineno):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        value: Any = node.value
        if isinstance(node, ast.AugAssign):  # `x += y` reads x too
            value = ast.BinOp(ast.parse(ast.unparse(node.target), mode="eval").body, node.op, node.value)
        reads, variables = _read_by(value, names)
        code = compile(ast.fix_missing_locations(ast.Expression(value)), "<__init__>", "eval")
        for target in targets:
            if isinstance(target, ast.Name):
                found.append(Line(target.id, False, reads, variables, code, names))
            elif _is_own(target):
                found.append(Line(target.attr, True, reads, variables, code, names))
    return found


def _read_by(value: ast.AST, names: dict[str, Any]) -> tuple[frozenset[str], frozenset[str]]:
    """The attributes of `self` that a value reads, and the variables that are neither `self` nor of its module."""
    nodes = list(ast.walk(value))
    reads = {node.attr for node in nodes if _is_own(node)}
    words = {node.id for node in nodes if isinstance(node, ast.Name)} - {"self"}
    return frozenset(reads), frozenset(word for word in words if word not in names and word not in vars(builtins))


def _is_own(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Whether it is `self.something`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _body_of(function: Any) -> ast.FunctionDef | None:
    """The source of a function; None if it cannot be read."""
    if not inspect.isfunction(function):
        return None
    try:
        (found,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, SyntaxError, ValueError):
        return None
    return found if isinstance(found, ast.FunctionDef) else None

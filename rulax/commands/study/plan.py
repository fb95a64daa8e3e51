"""What a study consists of, read from its file: points, which are discoveries that differ in one thing, and questions about them.

settings: {suite: grids, steps: 160}              # of every discovery, as `rulax discover` takes them
held_out: [catch]                                 # families that decide about nothing
points:
  whole: {}
  no_yz: {label: without y and z, settings: {rule_options: {predictions: false}}}
questions:
  - {title: What is a part worth?, points: [whole, no_yz], paper: ...}      # compared with the first
  - {title: ..., axis: families, points: [...]}                             # points along an axis, each with an `x`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rulax.commands.names import split_specs
from rulax.commands.preset_files import STUDIES, load_preset, names_in
from rulax.errors import UserError, suggestion
from rulax.text import convert

ENDINGS = (".yaml", ".yml", ".json")


class Point(NamedTuple):
    """One kind of discovery."""

    name: str
    label: str
    settings: dict[str, Any]  # beside those of the study
    x: float | None  # where it stands on the axis of its question
    paper: str  # what the paper found of it, in a word or two


class Question(NamedTuple):
    """Points that are shown together; each is compared with the first."""

    title: str
    points: tuple[str, ...]
    axis: str  # what `x` of its points counts; empty if they stand on none
    paper: str  # what the paper found, in a sentence


class Plan(NamedTuple):
    """A whole study."""

    name: str
    settings: dict[str, Any]
    held_out: tuple[str, ...]
    points: dict[str, Point]
    questions: tuple[Question, ...]

    def only(self, wanted: tuple[str, ...]) -> Plan:
        """The study with these points alone, and those that they are compared with."""
        unknown = [name for name in wanted if name not in self.points]
        if unknown:
            hint = suggestion(unknown[0], self.points, f"it has {', '.join(self.points)}")
            raise UserError(f"study {self.name} has no point '{unknown[0]}'{hint}")
        if not wanted:
            return self
        asked = [question for question in self.questions if set(wanted) & set(question.points)]
        kept = set(wanted) | {question.points[0] for question in asked}
        questions = tuple(each._replace(points=tuple(name for name in each.points if name in kept)) for each in asked)
        return self._replace(points={name: point for name, point in self.points.items() if name in kept}, questions=questions)


def study_names() -> dict[str, str]:
    """The studies that come with the package, each with the first line of its file."""
    return names_in(STUDIES)


def read_plan(name: str) -> Plan:
    """A study of the package, or of the user's own by its file."""
    known = study_names()
    if name.endswith(ENDINGS):
        return make_plan(name, load_preset(name, "study"))
    if name not in known:
        hint = suggestion(name, [*known, "list"], f"there are {', '.join(known)}; your own is a file such as mine.yaml")
        raise UserError(f"unknown study '{name}'{hint}")
    return make_plan(name, load_preset(f"{STUDIES}/{name}"))


def make_plan(name: str, content: Mapping[str, Any]) -> Plan:
    """A study from the content of its file; whatever it does not know is refused."""
    where = f"study {name}"
    parts = _read(where, content, settings=dict[str, Any], held_out=tuple[str, ...], points=dict[str, Any], questions=list[Any])
    points = {str(each): _point(where, str(each), given or {}) for each, given in parts.get("points", {}).items()}
    if not points:
        raise UserError(f"{where} names no points: discoveries that differ in one thing")
    questions = tuple(_question(where, each, points) for each in parts.get("questions", ()))
    left_out = [each for each in points if not any(each in question.points for question in questions)]
    if left_out:
        raise UserError(f"{where}: no question is about the point '{left_out[0]}'")
    return Plan(name, parts.get("settings", {}), split_specs(parts.get("held_out", ())), points, questions)


def _point(where: str, name: str, given: Any) -> Point:
    read = _read(f"{where}, point {name}", given, label=str, settings=dict[str, Any], x=float, paper=str)
    return Point(name, read.get("label", name.replace("_", " ")), read.get("settings", {}), read.get("x"), read.get("paper", ""))


def _question(where: str, given: Any, points: Mapping[str, Point]) -> Question:
    read = _read(f"{where}, questions", given, title=str, points=tuple[str, ...], axis=str, paper=str)
    names, axis = read.get("points", ()), read.get("axis", "")
    unknown = [name for name in names if name not in points]
    if unknown or not names:
        missing = f"there is no point '{unknown[0]}'{suggestion(unknown[0], points)}" if unknown else "it names no points"
        raise UserError(f"{where}, question '{read.get('title', '')}': {missing}")
    if axis and any(points[name].x is None for name in names):
        raise UserError(f"{where}, question '{read.get('title', '')}': every point on the axis {axis} needs an x")
    return Question(read.get("title", ""), names, axis, read.get("paper", ""))


def _read(where: str, given: Any, **known: Any) -> dict[str, Any]:
    """The values of a mapping, converted."""
    if not isinstance(given, Mapping):
        raise UserError(f"{where}: expected names with values ({', '.join(known)}), not {given!r}")
    for name in given:
        if name not in known:
            raise UserError(f"{where}: unknown name '{name}'{suggestion(str(name), known, 'known are ' + ', '.join(known))}")
    found = {}
    for name, value in given.items():
        kind = getattr(known[name], "__origin__", None)
        if kind not in (dict, list):
            found[name] = convert(f"{where}: {name}", known[name], value)
        elif isinstance(value, kind):  # whose content is read by others
            found[name] = value
        else:
            raise UserError(f"{where}: {name} must be {'names with values' if kind is dict else 'a list'}, not {value!r}")
    return found

"""Turns the fields of a configuration into command-line flags, and a command line into the values that were given.

argparse parses and formats; every error leaves as one sentence (`UserError`), which argparse's own would not.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import sys
import typing
from typing import Any, NoReturn

from rulax.commands.fields import field_docs, field_types, flag_name, in_order
from rulax.commands.settings import Computing, known_keys, parts_of
from rulax.errors import UserError, suggestion
from rulax.own import consent
from rulax.settings import earlier_names
from rulax.text import choices_of, convert

TRUST = "Import the code that a preset, a run folder or an agent file names; otherwise only what this line names is imported."
METAVARS = {int: "N", float: "X", str: "TEXT"}


class Parser(argparse.ArgumentParser):
    """An argument parser that raises instead of printing its usage and leaving."""

    def error(self, message: str) -> NoReturn:
        # argparse says `argument -x/--long: expected ...`; of several spellings the last is the long one.
        flag, colon, rest = message.removeprefix("argument ").partition(": ")
        raise UserError(f"{flag.split('/')[-1]} {rest}" if colon else message)


class Layout(argparse.HelpFormatter):
    """Help in two columns, with headings in bold where the terminal can show it."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=30, width=min(shutil.get_terminal_size().columns - 2, 118))

    def start_section(self, heading: str | None) -> None:
        bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        super().start_section(f"\033[1m{heading}\033[0m" if bold else heading)


def make_parser(prog: str, cls: type, summary: str) -> Parser:
    """A parser for one command. Nothing has a default in it: what was not given must stay distinguishable."""
    parser = Parser(
        prog=prog,
        description=summary,
        # An abbreviation that works today would become ambiguous, or mean something else, when a flag is added.
        allow_abbrev=False,
        # Added below instead, to stand in a group of its own after all settings.
        add_help=False,
        formatter_class=lambda prog: Layout(prog),  # type: ignore[arg-type]
    )
    names = [f"[{field.metadata['metavar']}]" for field in positionals(cls)]
    parser.usage = " ".join([prog, *names, "[options]"])
    groups: dict[str, Any] = {}
    for field in in_order(cls):
        if field.metadata.get("settings"):
            source = field.metadata.get("source", "the rule recommends")
            for part in field.metadata["settings"]:
                heading = f"{part.__name__.lower()} (default: what {source})"
                for inner in dataclasses.fields(part):
                    add_flag(group(parser, groups, heading), inner, part, show_default=False)
        elif not field.metadata.get("hidden"):
            add_flag(group(parser, groups, field.metadata["group"]), field, cls, show_default=True)
    if issubclass(cls, Computing):
        # Not a setting: a preset could give one, and whom to trust is nothing that a file may say.
        group(parser, groups, "run").add_argument(consent.FLAG, action="store_true", default=argparse.SUPPRESS, help=TRUST)
    group(parser, groups, "help").add_argument("-h", "--help", action="help", help="Show this and leave.")
    return parser


def group(parser: Parser, groups: dict[str, Any], heading: str) -> Any:
    """The argument group under a heading, made when it is first asked for."""
    if heading not in groups:
        groups[heading] = parser.add_argument_group(heading)
    return groups[heading]


def positionals(cls: type) -> list[dataclasses.Field]:
    """The fields that are given by position."""
    return [field for field in dataclasses.fields(cls) if field.metadata.get("positional")]


def add_flag(target: Any, field: dataclasses.Field, cls: type, show_default: bool) -> None:
    """One field as one flag."""
    hint, text = field_types(cls)[field.name], field_docs(cls)[field.name].replace("%", "%%")
    # A field whose default is only a placeholder, such as 0 for what the rule recommends, says so in its docstring.
    own = "[default:" in text or hint is bool  # says it in words
    if show_default and not own and field.default is not dataclasses.MISSING and field.default not in ("", None, ()):
        text = f"{text.rstrip('.')} [default: {field.default}]."
    text = text.replace("].", "]")
    # SUPPRESS leaves out what was not given: a preset and the rule's recommendation must be able to fill it in.
    options: dict[str, Any] = {"help": text, "default": argparse.SUPPRESS}
    if field.metadata.get("positional"):
        several = typing.get_origin(hint) is tuple
        target.add_argument(field.name, nargs="*" if several else "?", metavar=field.metadata["metavar"], **options)
        return
    if hint is bool:
        # What is off by default needs no --no-flag; what is on can only be changed by one.
        action = "store_true" if field.default is False else argparse.BooleanOptionalAction
        target.add_argument(flag_name(field.name), dest=field.name, action=action, **options)
        return
    origin = typing.get_origin(hint)
    if choices_of(hint):
        # Not argparse's `choices`: `convert` checks them, with the same sentence for flags, presets and Python.
        options["metavar"] = "{" + ",".join(map(str, choices_of(hint))) + "}"
    elif origin is tuple:
        options |= {"nargs": "+", "metavar": field.metadata.get("metavar", METAVARS[typing.get_args(hint)[0]])}
    elif origin is dict:
        # Options may be given in several places of a long line; without `extend` the last place would silently win.
        options |= {"nargs": "+", "metavar": field.metadata["metavar"], "action": "extend"}
    else:
        options["metavar"] = field.metadata.get("metavar", METAVARS[hint])
    target.add_argument(flag_name(field.name), dest=field.name, **options)


def parse(parser: Parser, cls: type, arguments: list[str]) -> dict[str, Any]:
    """The values that the user gave, converted; anything unknown is one sentence with the nearest known flag."""
    known = known_keys(cls)
    # Before the check below, which would call a flag of an earlier version unknown.
    arguments = [with_current_flag(argument, cls) for argument in arguments]
    for argument in arguments:
        # Before argparse: it would first complain about what a mistyped flag leaves missing.
        name = argument.partition("=")[0]
        if name.startswith("--") and name not in parser._option_string_actions:
            # Compared as names of settings, not as flags, because synonyms such as lr are kept by those names.
            flags = [key for key in known if flag_name(key) in parser._option_string_actions]
            hint = suggestion(name, flags, f"`{parser.prog} --help` lists all flags", shown=flag_name)
            raise UserError(f"unknown flag {name}{hint}")
    # Not parse_args: what it does not place may be more environments, which are collected below.
    namespace, extra = parser.parse_known_args(arguments)
    vars(namespace).pop(consent.FLAG.strip("-"), None)  # see cli.py
    for field in positionals(cls):
        if typing.get_origin(known[field.name]) is tuple:  # argparse takes only those that stand together
            words = [*getattr(namespace, field.name, []), *(word for word in extra if not word.startswith("-"))]
            vars(namespace).update({field.name: words} if words else {})
            extra = [word for word in extra if word.startswith("-")]
    if extra:
        kind = "flag" if extra[0].startswith("-") else "argument"
        raise UserError(f"unexpected {kind} '{extra[0]}'; `{parser.prog} --help` shows what is understood")
    return {name: convert(flag_or_word(name, cls), known[name], value) for name, value in vars(namespace).items()}


def with_current_flag(argument: str, cls: type) -> str:
    """A flag of an earlier version under its current name, with a note to the user; anything else as it is."""
    name, equals, value = argument.partition("=")
    for old, new in earlier_names(cls, *parts_of(cls)).items():
        if name == flag_name(old):
            print(f"note: {flag_name(old)} is called {flag_name(new)} now", file=sys.stderr)
            return f"{flag_name(new)}{equals}{value}"
    return argument


def flag_or_word(name: str, cls: type) -> str:
    """How a field is called in a sentence about the command line."""
    return next((field.metadata["metavar"] for field in positionals(cls) if field.name == name), flag_name(name))

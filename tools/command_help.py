"""A Markdown extension for the site: a block that holds `$ rulax COMMAND --help` alone is followed by what that command prints.

So no page has help that is out of date. In the repository a reader sees the line to type. Help needs no JAX, hence no more packages
than the site itself.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```text\n\$ rulax (?P<name>.*?) ?--help\n```$", re.MULTILINE)
WIDTH = "110"


def help_of(name: str) -> str:
    """What `rulax NAME --help` prints; without a name, what `rulax --help` prints."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from rulax.commands.cli import COMMANDS, command_help, overview  # not above: most pages have no help

    if name and name not in COMMANDS:
        raise ValueError(f"a page shows the help of `rulax {name}`, which is not a command")
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH  # argparse wraps its text to the terminal
    try:
        return command_help(name) if name else overview()
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)


def filled(text: str) -> str:
    """A page with the help in its place."""
    return BLOCK.sub(lambda found: f"{found[0][: -len('```')]}{help_of(found['name'])}\n```", text)


class Fill(Preprocessor):
    """Fills in one page."""

    def run(self, lines: list[str]) -> list[str]:
        """Before blocks of code are taken out of the text."""
        return filled("\n".join(lines)).split("\n")


class CommandHelp(Extension):
    """No options."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Called by Markdown; superfences, at 25, comes later."""
        md.preprocessors.register(Fill(md), "command_help", 28)


def makeExtension(**options: str) -> CommandHelp:
    """The entry point that Markdown looks for."""
    return CommandHelp(**options)

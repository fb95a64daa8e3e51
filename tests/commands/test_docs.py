"""docs/command_line.md shows the real help texts. After changing a flag: `python -m tests.commands.test_docs` writes them anew."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from rulax.commands.cli import COMMANDS, command_help, overview

PAGE = Path(__file__).parents[2] / "docs" / "command_line.md"
BLOCK = re.compile(r"```text\n\$ rulax (.*?)--help\n(.*?)```", re.DOTALL)


def real_help(name: str) -> str:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "110"  # argparse wraps its text to the terminal
    try:
        return command_help(name) if name else overview()
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)


def block(name: str) -> str:
    return f"```text\n$ rulax {name + ' ' if name else ''}--help\n{real_help(name)}\n```"


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_in_the_documentation_is_current(name: str) -> None:
    if sys.version_info[:2] >= (3, 13):
        pytest.skip("argparse formats help differently from Python 3.13 on")
    assert block(name) in PAGE.read_text(), "run: python -m tests.commands.test_docs"


def rewrite() -> None:
    PAGE.write_text(BLOCK.sub(lambda match: block(match[1].strip()), PAGE.read_text()))


if __name__ == "__main__":
    rewrite()

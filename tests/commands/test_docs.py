"""docs/command_line.md has a place for every command, in which the site prints its help."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rulax.commands.cli import COMMANDS, command_help

PAGE = Path(__file__).parents[2] / "docs" / "command_line.md"
PASTED = re.compile(r"(```text\n\$ rulax .*?--help\n).+?(```)", re.DOTALL)


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_every_command_has_its_place(name: str) -> None:
    block = f"```text\n$ rulax {name + ' ' if name else ''}--help\n```\n"
    assert PAGE.read_text().count(block) == 1, "help is printed when the site is built: run python -m tests.commands.test_docs"


def test_the_site_prints_real_help() -> None:
    markdown = pytest.importorskip("markdown", reason="pip install 'rulax[docs]'")
    text = "before\n\n```text\n$ rulax rules get --help\n```\n\nafter"
    html = markdown.markdown(text, extensions=["fenced_code", "tools.command_help"])
    first = command_help("rules get").splitlines()[0]
    assert first in html
    assert html.index("before") < html.index(first) < html.index("--from") < html.index("after")
    assert html.count("<code") == 1
    with pytest.raises(ValueError, match="`rulax trian`, which is not a command"):
        markdown.markdown("```text\n$ rulax trian --help\n```", extensions=["tools.command_help"])


if __name__ == "__main__":  # removes help that was pasted
    PAGE.write_text(PASTED.sub(r"\1\2", PAGE.read_text()))

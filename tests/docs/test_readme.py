"""The README is short, what it tells people to type exists, and the rule that it shows is the tutorial's, which is executed."""

from __future__ import annotations

import ast
import re
import shlex

from rulax.commands.cli import COMMANDS, command_help
from rulax.rules.base import UpdateRule
from tests.docs.pages import DOCS
from tests.shared import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = re.findall(r"^(?:\$ )?(rulax .*)$", TEXT, re.MULTILINE)


def test_two_screens():
    assert len(TEXT.splitlines()) <= 115


def test_commands_and_flags_exist():
    assert len(LINES) >= 10
    for line in LINES:
        words = shlex.split(line, comments=True)[1:]
        name = max((each for each in COMMANDS if " ".join(words).startswith(each)), key=len, default="")
        assert name, line
        assert all(f"{flag} " in command_help(name) for flag in words if flag.startswith("--")), line


def test_the_rule_is_that_of_the_tutorial():
    (shown,) = re.findall(r"```python\n(# my_rule.py.*?)```", TEXT, re.DOTALL)
    (executed,) = re.findall(
        r'```python title="my_rule.py"\n(.*?)```', (DOCS / "tutorials" / "researcher.md").read_text(), re.DOTALL
    )
    assert ast.dump(ast.parse(shown)) == ast.dump(ast.parse(executed))
    names: dict = {}
    exec(shown, names)
    assert isinstance(names["cloning"](), UpdateRule)

"""The tables of what a rule can use list every field, and helpers with the arguments that they have."""

import importlib
import inspect
import re

from rulax.types import Batch, Experience
from tests.docs.pages import DOCS

SECTION = (DOCS / "rules.md").read_text().partition("## What a rule can use")[2].partition("\n## ")[0]


def test_every_field_is_listed():
    words = re.findall(r"^\| (`.*?) \|", SECTION, re.MULTILINE)
    fields = {word for cell in words for word in re.findall(r"`(\w+)`", cell)}
    assert fields == {*Experience._fields, *Batch._fields}


def test_signatures_are_those_of_the_helpers():
    found = [
        (module, name, arguments)
        for cell, module in re.findall(r"^\| (`.*\)`) \| `(rulax[\w.]+)`", SECTION, re.MULTILINE)
        for name, arguments in re.findall(r"`(\w+)\((.*?)\)`(?=,|$)", cell)
    ]
    assert len(found) >= 17
    for module, name, arguments in found:
        helper = getattr(importlib.import_module(module), name)
        has = [each.name for each in inspect.signature(helper).parameters.values()]
        listed = [piece.strip("* ").partition("=")[0] for piece in arguments.replace("Clips()", "").split(",") if piece.strip("* ")]
        assert listed == (["x"] if name in ("now", "later") else has), name

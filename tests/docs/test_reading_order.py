"""`read_in_this_order.md` names files and what is in them: `methods/loop.py: Loop(step, total)`. All of it must be there."""

import ast
import re

from tests.docs.pages import DOCS
from tests.shared import ROOT

NAMED = re.compile(r"`([\w/]+\.py): ([^`]+)`")


def names_in(path):
    """What a file defines at its top, and the methods and fields of its classes as `Class.name` and by themselves."""
    found = set()

    def visit(body, owner=""):
        for node in body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
            for name in (getattr(each, "id", getattr(each, "attr", getattr(each, "name", None))) for each in targets):
                found.update({name, f"{owner}.{name}"})
            if isinstance(node, ast.ClassDef):
                visit(node.body, node.name)
            elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
                visit(node.body, owner)

    visit(ast.parse(path.read_text(encoding="utf-8")).body)
    return found


def missing(text):
    """Names that the text claims of files and that are not there."""
    wrong = []
    for file, named in NAMED.findall(text):
        paths = [path for path in (ROOT / "rulax").rglob("*.py") if path.as_posix().endswith(f"/{file}")]
        inner = re.sub(r"\([^()]*\)", "", named)  # arguments may themselves have some, as in f(g(x), y)
        for name in re.sub(r"\([^()]*\)|->.*", "", inner).split(", "):
            if not any(name.strip() in names_in(path) for path in paths):
                wrong.append(f"{file}: {name}")
    return wrong


def test_what_the_page_names_is_there():
    text = (DOCS / "read_in_this_order.md").read_text(encoding="utf-8")
    assert len(NAMED.findall(text)) > 20
    assert missing(text) == []


def test_what_is_not_there_is_seen():
    text = "`methods/loop.py: Loop(step, total)`, `learning/train.py: BaseTrainer._init, CompiledTrainer.begin`, `no/such.py: one`"
    assert missing(text) == ["learning/train.py: CompiledTrainer.begin", "no/such.py: one"]

"""The page of a method follows the template of the rules' pages, and names what exists."""

import re

import pytest

from rulax.methods.catalogue import METHODS, experiments_of
from tests.docs.pages import DOCS, sections
from tests.docs.test_rule_pages import TEMPLATE
from tests.shared import ROOT


def test_every_method_has_a_page_and_every_page_a_method():
    assert {path.stem for path in (DOCS / "methods").glob("*.md")} == set(METHODS)
    listed = (DOCS / "methods.md").read_text()
    assert all(f"methods/{method}.md" in listed for method in METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_the_template_and_what_it_names(method):
    found = sections(DOCS / "methods" / f"{method}.md")
    assert [title for title in found if title != "Experiments"] == TEMPLATE  # which a page may have, where they need words
    assert all(len(text.split()) >= 5 for text in found.values())
    files = re.findall(r"^(?:- )?\[`(rulax/\S+\.py)`\]", found["File"].strip(), re.MULTILINE)
    assert files.index(f"rulax/methods/{method}.py") < files.index(f"rulax/methods/experiments/{method}.py")
    assert all((ROOT / file).exists() for file in files)
    commands = re.findall(r"^rulax method .*", found["Command"], re.MULTILINE)
    assert commands
    names = {each.name for each in experiments_of(method)}
    assert set(re.findall(r"--experiment (\S+)", " ".join(commands))) <= names
    assert "results/methods.md" in found["Result"], "the page must lead to all rows"

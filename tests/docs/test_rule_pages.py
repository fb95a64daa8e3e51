"""The page of a rule follows the template, and says what the code and the recorded results say."""

from __future__ import annotations

import re

import jax
import pytest

from rulax.commands.cli import COMMANDS, command_help
from rulax.rules.registry import EMBEDDED, RULES, STORED, make_rule
from tests.docs.pages import DOCS, links, sections
from tests.rules.data import init_params, make_targets, random_batch, taken_predictions
from tests.shared import ROOT

TEMPLATE = ["Idea", "Equation", "File", "Command", "Logged metrics", "Result", "Differences from the paper"]
NUMBER = re.compile(r"(?<![\w.,])-?\d[\d,]*(?:\.\d+)?(?![\w.]*\d)")


def page(rule):
    return DOCS / "rules" / f"{rule}.md"


def test_every_rule_has_a_page_and_every_page_a_rule():
    assert {path.stem for path in (DOCS / "rules").glob("*.md")} == set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_the_template(rule):
    found = sections(page(rule))
    assert list(found) == TEMPLATE
    assert all(len(text.split()) >= 5 for text in found.values())
    (file,) = re.findall(r"^\[`(rulax/\S+\.py)`\]", found["File"].strip(), re.MULTILINE)
    assert (ROOT / file).exists()
    assert RULES[rule].where.split(":")[0] in {"", file.removesuffix(".py").replace("/", ".")}


@pytest.mark.parametrize("rule", RULES)
def test_commands_exist(rule):
    lines = re.search(r"```\n(.*?)```", sections(page(rule))["Command"], re.DOTALL)[1].splitlines()
    texts = {text: command_help(text) for text in COMMANDS}
    for line in lines:
        words = line.split("#")[0].split()
        assert words[0] == "rulax"
        command = max((text for text in COMMANDS if " ".join(words[1:]).startswith(text)), key=len)
        assert all(f"{flag} " in texts[command] for flag in words if flag.startswith("--")), line
    assert any(rule in line or "demo" in line for line in lines)


@pytest.mark.parametrize("rule", RULES)
def test_metrics_are_those_that_are_logged(rule):
    """What the rule reports on a small batch, by name, traced but not run; one in a file reports what any discovered rule does."""
    made = make_rule("disco" if rule in STORED else rule).rule

    def report():
        batch = random_batch(made)
        targets, _, said = make_targets(made, batch)
        _, more = made.loss(init_params(made), taken_predictions(made, batch), targets, batch.experience)
        return said, more

    said, more = jax.eval_shape(report)
    rows = re.findall(r"^\| (`.*?) \|", sections(page(rule))["Logged metrics"], re.MULTILINE)
    assert {each for row in rows for each in re.findall(r"`(\w+)`", row)} == set(said) | set(more)


@pytest.mark.parametrize("rule", RULES)
def test_results_are_recorded_ones(rule):
    """A number under "Result" also stands in docs/results, or on the card of an embedded rule: with the command that made it."""
    text = sections(page(rule))["Result"]
    assert any("results" in target for target in links(text))
    cards = [path.with_name(f"{path.stem}_card.md") for path in EMBEDDED.values()]
    recorded = "".join(path.read_text() for path in [*(DOCS / "results").glob("*.md"), *cards]).replace("**", "")
    known = set(NUMBER.findall(recorded)) | {number.replace(",", "") for number in NUMBER.findall(recorded)} | {"300,000"}
    for line in text.splitlines():
        shown = re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)
        assert set(NUMBER.findall(shown)) <= known, f"not in docs/results: {set(NUMBER.findall(shown)) - known}"

"""The tutorials are executed from top to bottom, as a reader would, with small sizes."""

from __future__ import annotations

import re
import shlex
import sys

import pytest

from rulax.commands.cli import main
from tests.docs.pages import DOCS

PAGES = sorted((DOCS / "tutorials").glob("*.md"))
BLOCK = re.compile(r'^```(python|sh)(?: title="(.*?)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
LONG = re.compile("runs/found|rulax explain")  # what takes minutes however small: a discovery, and all analyses of a rule
SMALL = ["--streams", "4", "--unroll", "8", "--hidden", "8", "--epochs", "1", "--minibatches", "1"]
# Every command with little to do; what a tutorial says itself stands before these and is overridden, as the last flag wins.
SIZES = {
    "train": ["--steps", "256", *SMALL],
    "compare": ["--steps", "256", "--seeds", "2", *SMALL],
    "explain": ["--steps", "2048", "--snapshots", "2", "--watch", "32"],
    "discover": shlex.split(
        "--steps 2 --agents 2 --window 2 --lifetimes 4 --streams 4 --batch 4 --critic-hidden 8 --evaluate-every 2 "
        "--validation grid/tiny-sparse:height=4 --evaluation-updates 10 --evaluation-seeds 1"
    ),
}


def run_command(line: str) -> None:
    name, *arguments = shlex.split(line, comments=True)[1:]
    sizes = SIZES.get(name, [])
    if name == "compare":  # one environment is as good as three here, and every rule in every environment is a program to compile
        arguments = [each for each in arguments if each not in ("cartpole", "grid/step-cost")]
    if "--resume" in arguments:  # what was chosen when the run began stays as it is
        sizes = ["--steps", "512"]
    elif "--preset" in arguments or any(".safetensors" in each for each in arguments):
        sizes = sizes[:2]
    assert main([name, *arguments, *sizes]) == 0, line


def run_python(code: str, names: dict) -> None:
    code = re.sub(r"steps=[\d_]+", "steps=2048", code)
    code = re.sub(r"seeds=\d+", "seeds=2", code)
    exec(compile(code, "tutorial", "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before, names = set(sys.modules), {}
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert len(blocks) >= 4
    for language, title, code in blocks:
        if title:
            (tmp_path / title).write_text(code)
        elif language == "sh":
            for line in filter(None, code.splitlines()):
                if not LONG.search(line):
                    run_command(line)
        else:
            run_python(code, names)
    assert capsys.readouterr().out.strip()
    for module in set(sys.modules) - before:  # my_env and my_rule belong to this tutorial alone
        if module.startswith("my_"):
            del sys.modules[module]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "number"), [("researcher", 2), ("reader", 1)])
def test_what_takes_long_runs(page, number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "tutorials" / f"{page}.md").read_text(encoding="utf-8")
    lines = [line for line in re.findall(r"^rulax .*$", text, re.MULTILINE) if LONG.search(line)]
    assert len(lines) == number
    for line in lines:
        run_command(line)


def test_there_is_one_for_each_persona():
    assert [page.stem for page in PAGES] == ["practitioner", "reader", "researcher"]

"""Every example runs, in a fresh process, on a tiny budget; and stays short."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("[0-9]*.py"))


LONG = ("02_swap_the_rule", "07_discover")  # the first compiles four rules; `make test-wheel` runs the second
BUDGET = {"06_compare": "2048", "07_discover": "2", "08_your_own_estimator": "2"}  # steps; of discovery, meta-steps


@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=pytest.mark.slow) if p.stem in LONG else p for p in EXAMPLES], ids=[p.stem for p in EXAMPLES]
)
def test_example_runs(path, tmp_path):
    result = subprocess.run(
        [sys.executable, str(path), BUDGET.get(path.stem, "4096")],
        cwd=tmp_path,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short(path):
    assert len(path.read_text().splitlines()) <= 60

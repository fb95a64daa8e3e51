"""The notebooks run from top to bottom in a kernel of their own, with small sizes, and are committed without outputs."""

from __future__ import annotations

import re

import nbclient
import nbformat
import pytest

from tests.shared import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SHOWN = {"train_and_own_rule": 2, "compare_and_look_inside": 1}  # runs and comparisons that appear as HTML with a picture


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the kernel starts in a folder of its own, where `rulax` must still be this one
    notebook = nbformat.read(path, as_version=4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    first.source, changed = re.subn(r"^STEPS.*$", "STEPS, SEEDS = 2048, 2", first.source, flags=re.MULTILINE)
    assert changed == 1
    for cell in notebook.cells:  # a discovered rule is a program that compiles for a minute; another cell makes one
        cell.source = cell.source.replace('"ppo", "rulax5", short_sighted', '"ppo", short_sighted')
    nbclient.NotebookClient(notebook, timeout=540, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    html = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert sum("data:image/png;base64," in each for each in html) == SHOWN[path.stem]


def test_notebooks_are_committed_without_outputs():
    assert {path.stem for path in NOTEBOOKS} == set(SHOWN)
    for path in NOTEBOOKS:
        for cell in nbformat.read(path, as_version=4).cells:
            assert cell.cell_type == "markdown" or (cell.outputs == [] and cell.execution_count is None), path.name

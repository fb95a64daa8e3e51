"""The parity command in the test suite: all parts in both precisions, and the meta-gradient in the one that decides it."""

import os
import subprocess
import sys

import pytest

from tests.parity.compare import Line, Recorded, noise_floors
from tests.shared import ROOT, golden_folder, weights

PARTS = ["1", "2", "3", "4", "5", "6"]
# Large programs that run for milliseconds: compiling them less well takes a fraction of the time.
QUICKLY = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def run(folder, precision, *cases):
    command = [sys.executable, "-m", "tests.parity", str(folder), "--weights", str(weights()), "--precision", precision]
    environment = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {QUICKLY}"}
    command = [*command, "--cases", *cases]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("precision", "cases"), [("float32", PARTS), ("float64", PARTS)], ids=["float32", "float64"])
def test_every_part_equals_the_reference(precision, cases):
    if not golden_folder().is_dir():
        pytest.skip("no recorded reference data: set RULAX_GOLDEN to the folder that holds it")
    result = run(golden_folder(), precision, *cases)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("  pass  ") == result.stdout.count(f" {precision} ") >= len(cases)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_meta_gradient_equals_the_reference(precision):
    if not golden_folder().is_dir():
        pytest.skip("no recorded reference data: set RULAX_GOLDEN to the folder that holds it")
    result = run(golden_folder(), precision, "7", "7w")
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_missing_file_fails(tmp_path):
    result = run(tmp_path, "float32", "4")
    assert result.returncode == 1
    assert "4_optimizer.npz is not in the folder" in result.stdout


def test_a_difference_fails_and_so_does_an_overlooked_array():
    line = Line("x", "float32", 1e-3)
    data = Recorded({"out/a": [1.0, 100.0], "out/b": [1.0]})
    data.compare(line, {"a": [1.05, 100.0]})
    assert line.passed
    assert line.relative == pytest.approx(5e-4)
    data.overlooked(line)
    assert not line.passed
    assert "out/b" in str(line)
    line = Line("x", "float32", 1e-3)
    data.compare(line, {"a": [1.2, 100.0]})
    assert not line.passed
    for wrong in ([1.0], [float("nan"), 100.0]):
        line = Line("x", "float32", 1e-3)
        data.compare(line, {"a": wrong})
        assert not line.passed
    assert not Line("nothing", "float32", 1e-3).passed


def test_noise_floors_come_from_the_folder(tmp_path):
    assert noise_floors(tmp_path)["1"] == 3.73e-5
    (tmp_path / "README.md").write_text("| case | a | b | c |\n|---|---|---|---|\n| 1 | 0.00e+00 | 3.08e-03 | 5.00e-05 | `x` |\n")
    assert noise_floors(tmp_path)["1"] == 5e-5

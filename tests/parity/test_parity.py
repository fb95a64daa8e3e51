"""The parity command in the test suite: the small set that comes with the repository, and all of it where the folder is there."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests.parity.compare import Line, Recorded, noise_floors, tolerance_of
from tests.parity.doubled import double
from tests.parity.learning import judged
from tests.shared import DATA, NO_GOLDEN, ROOT, golden_folder, weights

PARTS = ["1", "2", "3", "4", "5", "6"]
# Large programs that run for milliseconds: compiling them less well takes a fraction of the time.
QUICKLY = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


# Runs the command as somebody would who has not installed pytest.
WITHOUT_PYTEST = "import runpy, sys; sys.modules['pytest'] = None; runpy.run_module('tests.parity', run_name='__main__')"


def run(folder, precision, *cases, with_weights=True):
    chosen = ["--weights", str(weights())] if with_weights else ["--no-weights"]
    command = [sys.executable, "-c", WITHOUT_PYTEST, str(folder), *chosen, "--precision", precision]
    environment = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {QUICKLY}"}
    command = [*command, *(["--cases", *cases] if cases else [])]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_the_small_set_equals_the_reference_without_weights():
    """What everybody can check who has only this repository, and who need not have pytest."""
    result = run(DATA, "float64", with_weights=False)
    assert result.returncode == 0, result.stdout + result.stderr
    passed = [line.split("float64")[0].strip() for line in result.stdout.splitlines() if "  pass  " in line]
    assert passed == ["2 value estimation", "3 losses", "4 optimiser", "5 agent network", "6 learner steps: first estimates"]
    assert "5 of 5 pass, 4 skipped" in result.stdout


@pytest.mark.slow
def test_the_small_set_has_the_meta_gradient():
    result = run(DATA, "float64", "6", "7")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "7 meta-gradient: gradient of the rule" in result.stdout
    assert "skip" not in result.stdout


def test_the_small_set_fails_where_something_differs(tmp_path):
    shutil.copytree(DATA, tmp_path, dirs_exist_ok=True)
    corrupt(tmp_path / "4_optimizer.npz", lambda data: data.update({"in/ct/a": 1.01 * data["in/ct/a"]}), DATA)
    corrupt(tmp_path / "2_value_utils.npz", lambda data: data.update({"out/new": data["out/rho"]}), DATA)
    result = run(tmp_path, "float32", "2", "4", with_weights=False)
    assert result.returncode == 1
    assert "failed: 2 value estimation, 4 optimiser" in result.stdout
    assert "1 results were not compared, such as out/new" in result.stdout


def test_the_weights_cannot_be_read_off_the_small_set():
    """No tensor of Disco103 and no results that would determine its wide layers; and the set stays small."""
    files = {path.name: dict(np.load(path, allow_pickle=False)) for path in DATA.glob("*.npz")}
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 800_000
    for name, arrays in files.items():
        assert not [key for key in arrays if key.startswith(("dbg/", "vjp/"))], name
        assert all(array.size <= 600 for key, array in arrays.items() if "meta_grad/" in key), name
        # y and z have 600 numbers from 257 unknowns each: three rows of them say next to nothing.
        wide = [array for key, array in arrays.items() if key.endswith(("targets/y", "targets/z", "meta_out/y", "meta_out/z"))]
        assert sum(array.size for array in wide) <= 2 * 3 * 600, name


def test_a_run_without_the_recorded_data_says_so_at_its_end(tmp_path):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "noise_floors"]
    environment = os.environ | {"RULAX_GOLDEN": str(tmp_path / "nowhere")}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "The recorded reference data is NOT here" in result.stdout


@pytest.mark.parametrize(
    ("precision", "cases"), [pytest.param("float32", PARTS, marks=pytest.mark.slow), ("float64", PARTS)], ids=["float32", "float64"]
)
def test_every_part_equals_the_reference(precision, cases):
    if not golden_folder().is_dir():
        pytest.skip(NO_GOLDEN)
    result = run(golden_folder(), precision, *cases)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("  pass  ") == result.stdout.count(f" {precision} ") >= len(cases)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_meta_gradient_equals_the_reference(precision):
    if not golden_folder().is_dir():
        pytest.skip(NO_GOLDEN)
    result = run(golden_folder(), precision, "7", "7w")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
def test_other_sizes_equal_the_reference(tmp_path):
    if not golden_folder().is_dir():
        pytest.skip(NO_GOLDEN)
    double(golden_folder(), tmp_path, ["1_meta_net", "3_agent_loss", "5_agent_net", "6_learner_step"])
    result = run(tmp_path, "float64", "1", "3", "5", "6")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("  pass  ") == 8


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_no_size_is_taken_for_granted(precision, tmp_path_factory):
    """Other numbers of actions, steps and streams, and other networks; the results are our own, see recording.py."""
    folder = tmp_path_factory.getbasetemp() / "recorded"
    if not folder.exists():
        command = [sys.executable, "-m", "tests.parity.recording", str(folder), "--weights", str(weights())]
        subprocess.run(command, cwd=ROOT, env=os.environ | {"XLA_FLAGS": QUICKLY}, check=True)
    result = run(folder, precision, "1", "3", "5", "6")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("  pass  ") == (9 if precision == "float32" else 8)


def corrupt(path, change, source=None):
    with np.load((source or golden_folder()) / path.name) as data:
        arrays = dict(data)
    change(arrays)
    np.savez(path, **arrays)


def cut_in_half(path):
    path.write_bytes((golden_folder() / path.name).read_bytes()[: path.stat().st_size // 2])


def test_what_is_wrong_with_a_folder_is_one_line_each(tmp_path):
    """Each bad file fails its own case with its reason, and the cases that need none of them still run."""
    if not golden_folder().is_dir():
        pytest.skip(NO_GOLDEN)
    corrupt(tmp_path / "5_agent_net.npz", lambda data: data.update({"in/obs": data["in/obs"][:, :-1]}))
    corrupt(tmp_path / "2_value_utils.npz", lambda data: data.update({"in/td": data["in/td"] * np.nan}))
    corrupt(tmp_path / "4_optimizer.npz", lambda data: data.pop("in/learning_rate"))
    shutil.copy(golden_folder() / "1_meta_net.npz", tmp_path)
    cut_in_half(tmp_path / "1_meta_net.npz")
    result = run(tmp_path, "float32")
    assert result.returncode == 1
    assert "Traceback" not in result.stdout + result.stderr
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if " float32 " in line}
    assert list(lines) == ["1", "2", "3", "4", "5", "6", "7", "7w"]
    assert all("FAIL" in line for line in lines.values())
    assert "1_meta_net.npz cannot be read" in lines["1"]
    assert "2_value_utils.npz: in/td is not finite" in lines["2"]
    assert "3_agent_loss.npz is not in the folder" in lines["3"]
    assert "in/learning_rate is not in the file" in lines["4"]
    assert "cannot be computed from these arrays" in lines["5"]
    assert "6_learner_step.npz is not in the folder" in lines["6"]


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


def test_the_meta_gradient_in_float64_is_held_to_eight_digits():
    line = judged("7 meta-gradient", ["gradient of the rule"], "float64")["gradient of the rule"]
    assert line.tolerance <= 1e-8
    data = Recorded({"out/a": [1.0, 100.0]})
    data.compare(line, {"a": [1.0 + 9e-7, 100.0]})
    assert line.passed
    data.compare(line, {"a": [1.0 + 2e-6, 100.0]})
    assert not line.passed


def test_noise_floors_come_from_the_folder(tmp_path):
    assert noise_floors(tmp_path)["1"] == pytest.approx(3.735e-5), "3.73e-05 is printed for anything up to here"
    (tmp_path / "README.md").write_text("| case | a | b | c |\n|---|---|---|---|\n| 1 | 0.00e+00 | 3.08e-03 | 5.00e-05 | `x` |\n")
    floors = noise_floors(tmp_path)
    assert floors["1"] == pytest.approx(5.005e-5)
    assert tolerance_of(floors, "1", "float64") == pytest.approx(5.005e-5)
    assert tolerance_of(floors, "1", "float32") == pytest.approx(5.005e-5 + 3.5e-6), "their rounding and ours"
    assert tolerance_of(floors, "5", "float32") == pytest.approx(1e-5)
    assert tolerance_of(floors, "5", "float64") == pytest.approx(1e-5)

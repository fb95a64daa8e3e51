"""The program that kills runs, in small: one folder, killed at a write and once more, comes to what nobody disturbed comes to."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_run_that_is_killed_twice_comes_to_the_same(tmp_path: Path) -> None:
    command = [
        sys.executable,
        ROOT / "benchmarks" / "kill_points.py",
        "--only",
        "train",
        "--points",
        "2",
        "--out",
        tmp_path / "kills",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [*command, "--json", tmp_path / "kills.json"], env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "kills.json").read_text())
    assert found["kill_points"] >= 2
    assert found["faults"] == 0

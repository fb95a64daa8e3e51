"""A discovery of two processes, one of which is killed: the other ends with a sentence, and both go on to the same rule."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from rulax.records.checkpoint import read_tensors
from tests.parallel.running import IMPATIENT, several

SIZES = "--agents 2 --window 2 --streams 2 --unroll 4 --validation-unroll 4 --hidden 4 --critic-hidden 4"
OTHERS = "--evaluation-updates 3 --evaluation-seeds 1 --checkpoint-minutes 0.001 --steps 40 --rule lpg --lifetimes 6 12"
DISCOVER = ["-c", IMPATIENT, "discover", "catch:rows=5,columns=5", *SIZES.split(), *OTHERS.split()]


def rule(folder: Path):
    return read_tensors((folder / "last.safetensors").read_bytes())


def ended(processes):
    outputs = [process.communicate(timeout=400) for process in processes]
    return [process.returncode for process in processes], outputs


@pytest.mark.slow
def test_one_of_two_is_killed_and_both_go_on_to_the_same_rule(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with several(2, [*DISCOVER, "--out", str(whole)]) as processes:
        codes, outputs = ended(processes)
    assert codes == [0, 0], outputs
    assert not outputs[1][0], "only the first process is seen"

    with several(2, [*DISCOVER, "--out", str(killed)]) as processes:
        deadline = time.monotonic() + 300
        while not any(int(path.name) > 4 for path in (killed / "checkpoint.sharded").glob("[0-9]*") if path.name.isdigit()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        processes[1].kill()
        codes, outputs = ended(processes)
    assert codes[0] == 2, outputs
    assert "error: process 1 of 2 gave no sign of life for 8 seconds" in outputs[0][1]
    assert "Traceback" not in outputs[0][1]
    made = json.loads((killed / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert made < 40

    with several(2, ["-c", IMPATIENT, "discover", "--resume", str(killed)]) as processes:
        codes, outputs = ended(processes)
    assert codes == [0, 0], outputs
    found, wanted = rule(killed), rule(whole)
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)

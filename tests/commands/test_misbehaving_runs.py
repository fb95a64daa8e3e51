"""Runs whose environment misbehaves end as other failures do: a sentence, a summary, a page, and a folder to go on from."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rulax
from rulax.commands.cells import FAILED, Cell, failure
from rulax.commands.train.settings import TrainConfig
from rulax.envs.adapters import limit
from rulax.errors import TrainingStopped, UserError
from rulax.files import write_json
from rulax.settings import STEP_LIMIT

pytest.importorskip("gymnasium")

from ..envs import misbehaving

HERE = misbehaving.HERE + misbehaving.ID
ROOT = str(Path(__file__).resolve().parents[2])
SMALL = {"rule": "actor_critic", "streams": 2, "unroll": 5, "hidden": [4], "steps": 100, "quiet": True}
KEPT = ("checkpoint.safetensors", "summary.json", "report.html")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(misbehaving.Misbehaving, "made", 0)
    monkeypatch.setattr(limit, "SETUP", 0.5)
    yield
    limit.allow(STEP_LIMIT)


def run(folder, limit_of=STEP_LIMIT, **options):
    return rulax.train(HERE, out=folder, env_options=options, step_limit=limit_of, animation=False, **SMALL)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("hang", r"did not come back from step within 0\.5 seconds \(--step-limit\) in stream 0"),
        ("nan", r"showed an observation that is not a finite number \(nan\) at step 7 of stream 0"),
        ("paid nan", r"paid a reward that is not a finite number \(nan\) at step 7 of stream 0"),
        ("longer", r"showed an observation of shape \(3,\) .* at step 7, where shape \(2,\) .* is declared"),
    ],
)
def test_a_run_ends_in_a_sentence_with_all_that_is_kept(tmp_path, what, words):
    with pytest.raises(TrainingStopped, match=rf"^training stopped: environment '{HERE}' {words}.*; the last good state is in"):
        run(tmp_path / "run", 0.5 if what == "hang" else STEP_LIMIT, what=what, when=7)
    assert all((tmp_path / "run" / name).exists() for name in KEPT)


def test_what_wants_to_end_python_is_restarted_and_counted(tmp_path):
    assert run(tmp_path / "run", what="end_python", when=40).summary()["restarts"] == 2
    misbehaving.Misbehaving.made = 0
    assert run(tmp_path / "other", what="interrupt", when=40).summary()["last_failure"].startswith("KeyboardInterrupt (misbehaving")


def test_a_constructor_that_hangs_leaves_no_folder(tmp_path):
    with pytest.raises(UserError, match=r"did not come back from being made within 0\.5 seconds"):
        run(tmp_path / "run", 0.5, what="hang", where="make", when=0, before=0)
    misbehaving.Misbehaving.made = 0
    with pytest.raises(UserError, match=r"did not come back from being opened within 0\.5 seconds"):
        run(tmp_path / "run", 0.5, what="hang", where="make", when=0)
    misbehaving.Misbehaving.made = 0
    with pytest.raises(TrainingStopped, match=r"cannot be started: .* did not come back from reset within 0\.5 seconds"):
        run(tmp_path / "run", 0.5, what="hang", where="reset", when=0)
    assert not (tmp_path / "run").exists()


def test_an_evaluation_and_a_film_end_in_a_sentence_too(tmp_path):
    agent = run(tmp_path / "run", what="nan", when=1000).agent
    for what, words in (("nan", "is not a finite number"), ("hang", r"did not come back from step within 0\.5 seconds")):
        options = {"env_options": {"what": what, "when": 3}}
        limit.allow(0.5)
        misbehaving.Misbehaving.made = 0
        with pytest.raises(TrainingStopped, match=f"^the evaluation stopped: environment '{HERE}' .*{words}"):
            rulax.commands.evaluate.run.guarded(_elsewhere(agent, options), 3, 0, None)
    misbehaving.Misbehaving.made = 0
    with pytest.raises(Exception, match="did not come back from step"):
        rulax.play(_elsewhere(agent, options)[0], episodes=1)


def _elsewhere(agent, options):
    return rulax.commands.evaluate.run.find_agents(agent, None, **options)


def test_a_cell_is_tried_again_with_a_larger_limit(tmp_path):
    cell = lambda **values: Cell("cells", "x", "y", TrainConfig(out=str(tmp_path), **values))  # noqa: E731
    write_json(tmp_path / FAILED, {"reason": "it hung", "step_limit": 5.0})
    assert failure(cell(step_limit=5.0)) == "it hung"
    assert failure(cell(step_limit=6.0)) is None
    assert failure(cell(step_limit=0.0)) is None, "0 is no limit at all"
    write_json(tmp_path / FAILED, {"reason": "it broke", "most_restarts": 3})
    assert failure(cell(most_restarts=0)) == "it broke"


def start(folder, *arguments):
    command = [sys.executable, "-m", "rulax", "train", HERE, "--rule", "actor_critic", "--streams", "2", "--unroll", "5"]
    command += ["--hidden", "4", "--steps", "1000", "--quiet", "--no-animation", "--out", str(folder), *arguments]
    environment = {**os.environ, "PYTHONPATH": ROOT}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment)


def test_what_cannot_be_interrupted_ends_the_process_after_saving(tmp_path):
    """The thread that waits inside of a library never comes back; another one saves, and says why."""
    process = start(tmp_path / "run", "--step-limit", "1", "--env-options", "what=deadlock", "when=30")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2
    assert said.startswith(f"error: environment '{HERE}' did not come back from step within 1 seconds (--step-limit)")
    assert said.count("\n") == 1
    assert all((tmp_path / "run" / name).exists() for name in KEPT)


@pytest.mark.parametrize(("sent", "processes"), [(signal.SIGTERM, 0), (signal.SIGINT, 1)])
def test_a_signal_ends_a_run_that_hangs(tmp_path, sent, processes):
    told = tmp_path / "told"
    options = ["what=hang", "when=30", f"tell={told}", f"processes={processes}"]
    process = start(tmp_path / "run", "--env-options", *options)
    try:
        until = time.monotonic() + 120
        while not told.exists() and time.monotonic() < until:
            time.sleep(0.1)
        began = time.monotonic()
        process.send_signal(sent)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert time.monotonic() - began < 30
    assert process.returncode == 2
    assert "did not come back from step within 10 seconds of the request to stop in stream 0" in said
    assert all((tmp_path / "run" / name).exists() for name in KEPT)

"""Runs on host environments: what replay takes is said before they start, failures are counted, and all of it can be resumed."""

import json

import pytest

import rulax
from rulax.errors import TrainingStopped, UserError

from ..learning.environments import Flicker

SMALL = {"rule": "actor_critic", "streams": 2, "unroll": 5, "hidden": [4], "quiet": True}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"replay_limit": "50KiB"},
            r"replay buffer of 1024 trajectories would take .* --replay-limit is 50 KiB; --capacity \d+ would fit",
        ),
        ({"replay_limit": "many"}, "replay_limit expects a size such as 4GiB or 512M, not 'many'"),
        ({"most_restarts": -1}, "most_restarts must not be negative"),
        ({"overlap": "sometimes"}, "overlap expects one of auto, on, off"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_written(tmp_path, settings, sentence):
    with pytest.raises(UserError, match=sentence):
        rulax.train(Flicker(), steps=100, replay=0.5, out=tmp_path / "run", **SMALL, **settings)
    assert not (tmp_path / "run").exists()


def test_the_capacity_that_would_fit_fits(capsys):
    with pytest.raises(UserError) as refused:
        rulax.train(Flicker(), steps=100, replay=0.5, replay_limit="50KiB", **SMALL)
    fits = int(str(refused.value).partition("--capacity ")[2].split()[0])
    with pytest.raises(UserError, match="would fit"):
        rulax.train(Flicker(), steps=100, replay=0.5, capacity=fits + 1, replay_limit="50KiB", **SMALL)
    rulax.train(Flicker(), steps=10, replay=0.5, capacity=fits, replay_limit="50KiB", **SMALL | {"quiet": False})
    assert f"replay: {fits} trajectories, " in capsys.readouterr().err


@pytest.mark.parametrize("setting", [{"overlap": "on"}, {"replay_limit": "1GiB"}])
def test_environments_on_the_device_refuse_what_would_do_nothing(setting):
    with pytest.raises(UserError, match="is for environments that step on the CPU, and 'catch' runs on the device"):
        rulax.train("catch", steps=1000, **SMALL, **setting)


def test_failures_are_counted_and_end_a_run_only_beyond_the_limit(tmp_path):
    pytest.importorskip("gymnasium")
    from ..envs.failing import ID

    (tmp_path / "copies").mkdir()
    options = {"folder": str(tmp_path / "copies"), "when": 8, "who": [0, 2]}  # one stream, and the copy that replaced it
    settings = {"env_options": options, "replay": 0.5, "capacity": 8, **SMALL}
    run = rulax.train(ID, steps=40, out=tmp_path / "run", **settings)
    assert run.finished
    assert run.summary()["restarts"] == 2 == sum(row["restarts"] for row in run.rows)
    for copy in (tmp_path / "copies").iterdir():
        copy.unlink()
    with pytest.raises(
        TrainingStopped,
        match=r"restarted too often \(stream 0, 1 per stream .* fell over \(failing.py, line \d+\); the last good state is in",
    ):
        rulax.train(resume=tmp_path / "run", steps=100, most_restarts=1, quiet=True)
    assert json.loads((tmp_path / "run/summary.json").read_text())["restarts"] == 4  # the last two are in no row
    run = rulax.train(resume=tmp_path / "run", steps=100, most_restarts=10, quiet=True)
    assert run.finished
    assert run.summary()["steps"] == 100


def test_a_first_reset_that_fails_is_counted(tmp_path):
    pytest.importorskip("gymnasium")
    from ..envs.failing import ID

    options = {"folder": str(tmp_path), "what": "reset", "when": 0, "who": [0]}
    run = rulax.train(ID, steps=40, env_options=options, **SMALL)
    assert run.summary()["restarts"] == 1 == sum(row["restarts"] for row in run.rows)
    assert run.summary()["last_failure"].startswith("ValueError: the game would not start (failing.py, line")

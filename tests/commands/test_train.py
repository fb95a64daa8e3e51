"""The driver with a small fake trainer: run folders, resuming bit by bit, Ctrl-C, and numbers that are not numbers."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import rulax
from rulax.commands.cli import main
from rulax.commands.train.result import load
from rulax.commands.train.setup import FIXES_THE_RESULT
from rulax.envs.base import HostEnvironment
from rulax.errors import Interrupted
from rulax.records import folder as folders
from rulax.records.provenance import fingerprint
from rulax.records.rows import Recorder, read_rows
from rulax.settings import Learning, Network
from rulax.text import shown_return
from tests.commands.conftest import FakeTrainer

LINE = ["train", "catch", "--steps", "2345", "--seeds", "3"]


def train(out: str, *more: str) -> int:
    return main([*LINE, "--out", out, "--quiet", *more])


def without_time(folder: Path) -> list[dict]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in read_rows(folder)]


def assert_same_run(one: Path, other: Path) -> None:
    first, second = load_file(one / folders.CHECKPOINT), load_file(other / folders.CHECKPOINT)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    assert without_time(one) == without_time(other)


def test_a_run_folder_is_complete(fake, tmp_path: Path, capsys) -> None:
    assert main(LINE) == 0
    folder = tmp_path / "runs" / "catch-ppo-001"
    names = {path.name for path in folder.iterdir()}
    files = {"config.json", "metrics.jsonl", "checkpoint.safetensors", "curve.png", "summary.json", "report.html"}
    assert names == files | {"tensorboard", "checkpoint.1.safetensors", "stages.json"}
    record = json.loads((folder / "config.json").read_text())
    assert record["settings"]["steps"] == 2345
    assert record["learning"]["streams"] == 2
    assert record["versions"]["jax"]
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    rows = read_rows(folder)
    assert [row["step"] for row in rows] == [*range(30, 2341, 30), 2350]  # 235 iterations, 3 to a point, one is left over
    assert rows[0]["loss"] is None  # not measured yet
    assert rows[1]["loss"] is not None
    assert rows[0]["episodes_per_seed"] == [6, 6, 6]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["finished"]
    late = [row for row in rows if row["step"] > 0.9 * 2350]
    weights = [6 if row["step"] < 2350 else 2 for row in late]
    expected = np.average([row["return_per_seed"] for row in late], axis=0, weights=weights)
    np.testing.assert_allclose(summary["final_return_per_seed"], expected)
    assert summary["cpu_seconds"] > 0
    output = capsys.readouterr()
    assert output.out.rstrip().endswith("runs/catch-ppo-001/report.html")  # what a newcomer sees last
    assert "unfinished" not in (folder / "report.html").read_text().partition("<style>")[0]
    assert "--resume" in output.out
    assert "compiling" in output.err
    assert fake.trainers[0].closed
    assert main(LINE) == 0
    assert (tmp_path / "runs" / "catch-ppo-002").exists()


def test_names_become_folder_names(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(folders.create_numbered("gymnax/Breakout-MinAtar", "my/rule.safetensors")) == "runs/gymnax-Breakout-MinAtar-rule-001"
    assert str(folders.create_numbered("gymnax/Breakout-MinAtar", "my/rule.safetensors")).endswith("-002")


def test_a_speed_is_shown_only_once_it_is_known(fake, monkeypatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr("rulax.commands.progress.Lines.update", lambda lines, status: seen.append(" ".join(status.facts)))
    assert main(LINE) == 0
    assert "steps/s" not in seen[0]
    assert "steps/s" in seen[-1]
    assert not any(" 0 steps/s" in line for line in seen)


def test_the_last_line_shows_the_return_of_the_latest_point(fake, tmp_path: Path, capsys) -> None:
    assert main([*LINE, "--log-every", "100", "--out", "run"]) == 0
    (last,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("100.0 %")]
    assert f" · return {shown_return(read_rows(tmp_path / 'run')[-1]['episode_return'])} · " in last
    assert "left" not in last


def test_a_folder_that_cannot_be_made(fake, tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("")
    assert train("file/below") == 2
    assert train("file") == 2
    assert "cannot be created" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_quiet_prints_only_the_folder(fake, capsys) -> None:
    assert train("here") == 0
    output = capsys.readouterr()
    assert output.out == "here\n"
    assert output.err == ""


def test_tensorboard_events_can_be_read_back(fake, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train("here")
    events = accumulator.EventAccumulator(str(tmp_path / "here" / "tensorboard"))
    events.Reload()
    values = [event.value for event in events.Scalars("train/episode_return")]
    np.testing.assert_allclose(values, [row["episode_return"] for row in read_rows(tmp_path / "here")], rtol=1e-5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("chunk", [1, 7, 50])
def test_interrupted_and_resumed_is_the_same_run(fake, tmp_path: Path, chunk: int, number: signal.Signals, capsys) -> None:
    train("whole")
    fake.on_chunk = lambda count: os.kill(os.getpid(), number) if count == chunk else None
    assert train("parts") == 130
    said = capsys.readouterr().err
    assert "rulax train --resume parts" in said
    assert said.rstrip().endswith("parts/report.html")
    assert "(unfinished)</title>" in (tmp_path / "parts" / "report.html").read_text()
    assert {"checkpoint.safetensors", "curve.png", "summary.json"} <= {path.name for path in (tmp_path / "parts").iterdir()}
    assert not json.loads((tmp_path / "parts" / "summary.json").read_text())["finished"]
    assert read_rows(tmp_path / "parts")[-1:] != read_rows(tmp_path / "whole")[-1:]
    fake.on_chunk = None
    assert main(["train", "--resume", "parts", "--quiet"]) == 0
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_lines_after_the_checkpoint_are_written_once(fake, tmp_path: Path) -> None:
    train("whole")

    def crash(count: int) -> None:
        if count == 20:
            raise MemoryError

    fake.on_chunk = crash
    with pytest.raises(MemoryError):
        train("parts")  # the checkpoint is that after the first chunk, the lines are those of 19 chunks
    assert len(read_rows(tmp_path / "parts")) > 10
    with (tmp_path / "parts" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99')  # a line cut off by the crash
    fake.on_chunk = None
    assert main(["train", "--resume", "parts", "--quiet"]) == 0
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_a_finished_run_can_be_extended(fake, tmp_path: Path) -> None:
    train("here")
    assert main(["train", "--resume", "here", "--steps", "3000", "--quiet"]) == 0
    steps = [row["step"] for row in read_rows(tmp_path / "here")]
    assert steps == sorted(set(steps))
    assert steps[-1] == 3000
    assert json.loads((tmp_path / "here" / "config.json").read_text())["settings"]["steps"] == 3000
    assert main(["train", "--resume", "here", "--steps", "100"]) == 2
    assert main(["train", "--resume", "here", "--seeds", "5"]) == 2


def test_a_bad_reward_stops_and_the_last_good_state_is_kept(fake, tmp_path: Path, capsys) -> None:
    train("whole")
    fake.bad_at = 100
    assert train("parts") == 2
    error = capsys.readouterr().err
    assert "a reward was not a finite number in environment 'catch' between steps 990 and 1000 of seed 0" in error
    assert error.count("\n") == 1
    assert "the last good state is in parts/checkpoint.safetensors" in error
    assert not json.loads((tmp_path / "parts" / "summary.json").read_text())["finished"]
    assert (tmp_path / "parts" / "curve.png").exists()
    fake.bad_at = None
    assert main(["train", "--resume", "parts", "--quiet"]) == 0
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_stopped_before_the_first_chunk(fake, tmp_path: Path, monkeypatch) -> None:
    train("whole")
    init = FakeTrainer.init
    monkeypatch.setattr(
        FakeTrainer, "init", lambda self, key: (os.kill(os.getpid(), signal.SIGINT), time.sleep(0.2), init(self, key))[-1]
    )
    assert train("parts") == 130
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert read_rows(tmp_path / "parts") == []
    assert (tmp_path / "parts" / "checkpoint.safetensors").exists()


def test_a_crash_in_the_first_chunk_can_be_resumed(fake, tmp_path: Path) -> None:
    def crash(count: int) -> None:
        raise MemoryError

    train("whole")
    fake.on_chunk = crash
    with pytest.raises(MemoryError):
        train("parts")
    fake.on_chunk = None
    assert main(["train", "--resume", "parts", "--quiet"]) == 0
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_a_folder_from_before_a_setting_existed_can_go_on(fake, tmp_path: Path) -> None:
    """Its config.json lacks the settings of today, and its checkpoint carries the fingerprint of then."""
    newer = [
        (part, field.name, field.metadata["before"])
        for part, cls in (("learning", Learning), ("network", Network))
        for field in dataclasses.fields(cls)
        if "before" in field.metadata
    ]
    # As runs were before: where that is not what the rule recommends today, it has to be asked for.
    flags = ["--action-distribution", "bins", "--schedule-steps", "0"]
    train("whole", *flags)
    fake.on_chunk = lambda count: os.kill(os.getpid(), signal.SIGINT) if count == 7 else None
    train("parts", *flags)
    fake.on_chunk = None
    path = tmp_path / "parts" / "config.json"
    record = json.loads(path.read_text())
    assert [record[part].pop(name) for part, name, _ in newer] == [before for _, _, before in newer]
    fixed = {name: record["settings"][name] for name in FIXES_THE_RESULT}
    assert fingerprint([fixed, record["learning"], record["network"]]) == record["fingerprint"], "as it was made then"
    path.write_text(json.dumps(record))
    assert main(["train", "--resume", "parts", "--quiet"]) == 0
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_a_finished_run_says_how_to_train_on(fake, capsys) -> None:
    import rulax

    train("here")
    assert main(["train", "--resume", "here"]) == 2
    assert "here is finished, after 2,350 steps; a larger --steps N goes on" in capsys.readouterr().err
    assert rulax.train(resume="here", steps=3000, quiet=True).steps[-1] == 3000
    assert rulax.train("catch", resume="here", steps=3100, quiet=True).finished  # its own settings may be repeated
    sentence = (
        "made with other settings, which a resumed run keeps: env is catch there and not cartpole; only --steps, --eval-every"
    )
    with pytest.raises(ValueError, match=sentence):
        rulax.train("cartpole", resume="here")
    with pytest.raises(ValueError, match="preset cannot be given with --resume; only --steps, "):
        rulax.train(preset="demo", resume="here")


class Own(HostEnvironment):
    """An environment of the user's own, which nothing is done with."""

    num_actions, observation = 2, jax.ShapeDtypeStruct((3,), np.float32)

    def open(self, num_streams: int):
        raise NotImplementedError


def test_objects_of_the_users_own(fake, capsys) -> None:
    import rulax

    own = Own()
    fake.on_chunk = lambda count: os.kill(os.getpid(), signal.SIGINT) if count == 9 else None
    with pytest.raises(Interrupted, match=r"rulax.train\(env=<Own>, resume='here'\)"):
        rulax.train(own, steps=2000, quiet=True, out="here")
    fake.on_chunk = None
    assert main(["train", "--resume", "here"]) == 2
    assert "give the same object again" in capsys.readouterr().err
    assert rulax.train(own, resume="here", quiet=True).finished
    with pytest.raises(ValueError, match=r"rulax.load\(folder, env=...\)"):
        load("here").agent  # noqa: B018
    assert load("here", env=own).agent.environment is own
    for arguments, keywords in (((3,), {}), (("catch",), {"rule": 3})):
        with pytest.raises(rulax.UserError, match="must be"):
            rulax.train(*arguments, **keywords)


def test_python_gets_the_partial_run(fake, tmp_path: Path) -> None:
    import rulax

    fake.on_chunk = lambda count: os.kill(os.getpid(), signal.SIGINT) if count == 9 else None
    with pytest.raises(Interrupted) as caught:
        rulax.train("catch", steps=2000, quiet=True)
    assert caught.value.run.steps[-1] < 2000
    made = caught.value.run.summary()["steps"]
    assert made == int(str(caught.value).split("stopped at step ")[1].split(" of ")[0].replace(",", "")), "what the user was told"
    assert list(tmp_path.iterdir()) == []


def test_python_run(fake, tmp_path: Path) -> None:
    import rulax

    run = rulax.train("catch", steps="2k", seeds=2, quiet=True, out="here", log_every=100, hidden=8)
    assert run.returns.shape == (20, 2)
    assert run.steps[-1] == 2000
    assert run.metrics["loss"].shape == (20,)
    assert run.config.overrides == {"hidden": (8,)}
    assert "final return" in repr(run)
    run.plot(tmp_path / "my.svg")
    assert "<svg" in (tmp_path / "my.svg").read_text()
    again = load("here")
    np.testing.assert_array_equal(again.returns, run.returns)
    assert again.finished
    np.testing.assert_array_equal(again.agents[1].params["weight"], run.agents[1].params["weight"])
    with pytest.raises(ValueError, match="did you mean 'learning_rate'"):
        rulax.train("catch", lerning_rate=1)
    with pytest.raises(ValueError, match="already holds a run"):
        rulax.train("catch", out="here")


def test_checkpoints_that_do_not_fit_are_refused(fake, tmp_path: Path, capsys) -> None:
    train("here", "--checkpoints", "1")  # with no other to fall back on
    path = tmp_path / "here" / "checkpoint.safetensors"
    whole = path.read_bytes()
    record = json.loads((tmp_path / "here" / "config.json").read_text())
    resume = ["train", "--resume", "here", "--steps", "9000", "--quiet"]

    def complaint() -> str:
        before = sorted((file.name, file.read_bytes()) for file in (tmp_path / "here").iterdir() if file.is_file())
        assert main(resume) == 2
        assert before == sorted((file.name, file.read_bytes()) for file in (tmp_path / "here").iterdir() if file.is_file())
        return capsys.readouterr().err

    path.write_bytes(whole[: len(whole) // 2])
    assert "not a readable checkpoint" in complaint()
    path.unlink()
    assert "no checkpoint" in complaint()
    path.write_bytes(whole)
    (tmp_path / "here" / "config.json").write_text(json.dumps({**record, "settings": {**record["settings"], "seed": 9}}))
    assert "other settings" in complaint()


def test_log_shows_no_repeated_config(fake, tmp_path: Path) -> None:
    train("here")
    text = (tmp_path / "here" / "config.json").read_text()
    assert str(tmp_path) not in text  # a run folder can be moved or shown to others


def test_a_seed_without_an_episode_counts_with_its_last_value() -> None:
    episodes = np.array([[1, 1], [0, 1], [1, 0], [0, 0]])
    metrics = {"episodes": episodes, "episode_return": episodes * [[2.0, 4.0]], "episode_length": episodes * 1.0}
    whole = Recorder(1, 10)
    rows = whole.add(metrics, 0.0)
    assert [row["episode_return"] for row in rows] == [3.0] * 4
    assert rows[1]["return_per_seed"] == [None, 4.0]
    first = Recorder(1, 10)
    first.add({name: values[:1] for name, values in metrics.items()}, 0.0)
    second = Recorder(1, 10, first.step, first.pending())
    assert second.add({name: values[1:] for name, values in metrics.items()}, 0.0) == rows[1:]


def test_a_row_does_not_depend_on_where_chunks_begin() -> None:
    generator = np.random.default_rng(0)
    metrics = {name: generator.normal(size=(50, 1)) for name in ("episode_return", "episode_length", "loss")}
    metrics["episodes"] = np.ones((50, 1))
    recorder, parts = Recorder(20, 1), Recorder(20, 1)
    rows = recorder.add(metrics, 0.0)
    cut = [parts.add({name: values[start : start + 7] for name, values in metrics.items()}, 0.0) for start in range(0, 50, 7)]
    assert rows == [row for each in cut for row in each]
    np.testing.assert_equal(recorder.pending(), parts.pending())


def test_a_warm_up_that_the_run_does_not_outlast_is_said(fake, capsys) -> None:
    """2,345 steps are 235 updates here; with as many of warm-up, the last one is still below the peak."""
    text = "warning: the learning rate never reaches 0.0003: it rises over 235 updates, and the whole run has 235; give "
    rate = ["--learning-rate", "3e-4"]
    assert main([*LINE, *rate, "--warmup-updates", "235", "--out", "short"]) == 0
    assert capsys.readouterr().err.count(f"{text}--warmup-updates N with fewer, or more --steps\n") == 1
    assert main(["train", "--resume", "short", "--steps", "3000"]) == 0  # now there are more
    assert "warning" not in capsys.readouterr().err
    assert main([*LINE, *rate, "--warmup-updates", "234", "--out", "long"]) == 0
    assert "warning" not in capsys.readouterr().err
    rulax.train("catch", steps=2345, warmup_updates=235, learning_rate=3e-4)
    assert text in capsys.readouterr().err
    assert main([*LINE, *rate, "--warmup-updates", "235", "--epochs", "2", "--out", "twice"]) == 0
    assert "warning" not in capsys.readouterr().err  # a pass over the batch is an update of its own

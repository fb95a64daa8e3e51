"""Callbacks: what they see, how they stop a run, what happens when they fail, and that training does not notice them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import rulax
from rulax.callbacks import EarlyStopping, Evaluate, Point, SaveBest
from rulax.commands.cli import main
from rulax.commands.train.callbacks import Caller
from rulax.errors import TrainingStopped, UserError
from rulax.evaluation.episodes import Episodes
from rulax.evaluation.scores import Evaluation, Score
from rulax.records import folder as folders
from rulax.records.rows import read_rows

TINY = {"rule": "ppo", "streams": 4, "unroll": 8, "minibatches": 1, "epochs": 1, "hidden": 8, "quiet": True, "animation": False}


def train(out, callback=None, steps=2345, **more):
    return rulax.train("catch", steps=steps, seeds=3, out=out, quiet=True, callback=callback, **more)


def without_time(folder: Path) -> list[dict]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in read_rows(folder)]


def assert_same_run(one: Path, other: Path, but: tuple[str, ...] = ()) -> None:
    first, second = load_file(one / folders.CHECKPOINT), load_file(other / folders.CHECKPOINT)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    rows = [[{name: row[name] for name in row if not name.startswith(but)} if but else row for row in without_time(each)]
            for each in (one, other)]  # fmt: skip
    assert rows[0] == rows[1]


def test_it_is_called_at_every_logged_point(fake, tmp_path: Path) -> None:
    seen: list[Point] = []
    run = train("run", seen.append)
    assert [point.step for point in seen] == run.steps.tolist() == [*range(30, 2341, 30), 2350]
    assert [point.last for point in seen] == [False] * (len(seen) - 1) + [True]
    assert seen[3].metrics == run.rows[3]
    assert [len(point.rows) for point in seen] == list(range(1, len(seen) + 1))
    train("without")
    assert_same_run(tmp_path / "run", tmp_path / "without")
    with pytest.raises(RuntimeError, match="inside of the callback"):
        _ = seen[0].agents


def test_agents_are_those_of_the_point(fake) -> None:
    weights = {}

    def keep(point: Point) -> None:
        if point.step in (300, 1200):
            weights[point.step] = [np.asarray(agent.params["weight"]) for agent in point.agents]

    train("run", keep)
    shorter = train("shorter", steps=300)  # the same run, stopped there by its budget
    for agent, weight in zip(shorter.agents, weights[300], strict=True):
        np.testing.assert_array_equal(agent.params["weight"], weight)
    assert (weights[300][0] != weights[1200][0]).any()


@pytest.mark.parametrize("way", ["returns False", "calls stop"])
def test_a_callback_stops_the_run_which_can_go_on(fake, tmp_path: Path, way: str, capsys) -> None:
    def enough(point: Point) -> bool | None:
        if point.step < 600:
            return None
        return False if way == "returns False" else point.stop("it is enough")

    train("whole")
    run = train("parts", enough)
    assert not run.finished
    assert run.steps[-1] == 600
    assert run.stopped_by == ("enough" if way == "returns False" else "enough: it is enough")
    summary = json.loads((tmp_path / "parts" / "summary.json").read_text())
    assert (summary["finished"], summary["steps"], summary["stopped_by"]) == (False, 600, run.stopped_by)
    assert "by enough" in (tmp_path / "parts" / "report.html").read_text()
    assert rulax.load(tmp_path / "parts").stopped_by == run.stopped_by
    assert fake.trainers[-1].closed
    resumed = rulax.train(resume="parts", quiet=True)
    assert resumed.finished
    assert resumed.stopped_by == ""
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_a_callback_that_fails_leaves_a_run_that_can_go_on(fake, tmp_path: Path) -> None:
    train("whole")

    def broken(point: Point) -> None:
        if point.step == 900:
            raise KeyError("no such thing")

    with pytest.raises(TrainingStopped, match=r"the callback broken failed \(KeyError: 'no such thing'\); the last good") as error:
        train("parts", [lambda point: None, broken])
    assert isinstance(error.value.__cause__, KeyError)  # with its traceback, for whoever wrote it
    assert fake.trainers[-1].closed
    assert read_rows(tmp_path / "parts")[-1]["step"] == 900
    rulax.train(resume="parts", quiet=True)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_what_is_no_callback_is_refused_before_anything_is_written(fake, tmp_path: Path) -> None:
    for wrong in (3, [print, "x"], EarlyStopping):
        with pytest.raises(UserError, match="must be a function of a point"):
            train("run", wrong)
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match="patience or a threshold"):
        EarlyStopping()
    with pytest.raises(UserError, match=r"\.safetensors"):
        SaveBest("agent.pt")


def test_numbers_can_be_added(fake, tmp_path: Path) -> None:
    train("run", lambda point: point.log(twice=2 * point.step, unknown=float("nan")))
    rows = read_rows(tmp_path / "run")
    assert [row["twice"] for row in rows] == [2 * row["step"] for row in rows]
    assert rows[0]["unknown"] is None
    with pytest.raises(TrainingStopped, match="there is a metric 'step' already"):
        train("again", lambda point: point.log(step=1))


# -- those that come with Rulax ------------------------------------------------------------------------------------------------


def rows_of(values: list, metric: str = "episode_return") -> list[dict]:
    return [{"step": 10 * (number + 1), "return_per_seed": [value], metric: value} for number, value in enumerate(values)]


def stops_at(callback, rows) -> int | None:
    """The step at which a callback stops a run with these rows."""
    for number in range(1, len(rows) + 1):
        caller = Caller([callback], 0)
        caller(rows[:number], list, last=False)
        if caller.stopped_by:
            return rows[number - 1]["step"]
    return None


def test_early_stopping() -> None:
    rows = rows_of([0.0, 1.0, 0.9, 1.0, 0.5, 1.1, 1.0, 1.0, 1.0])
    assert stops_at(EarlyStopping(patience=3), rows) == 50
    assert stops_at(EarlyStopping(patience=4), rows) is None  # 1.1 comes in time, and three follow it
    assert stops_at(EarlyStopping(patience=4, least_gain=0.2), rows) == 60
    assert stops_at(EarlyStopping(threshold=1.05), rows) == 60
    assert stops_at(EarlyStopping(threshold=2), rows) is None
    # Points without a measurement do not count; evaluations are judged by where there are some.
    sparse = [row | ({"evaluation_greedy_return": 1.0} if number % 3 == 0 else {}) for number, row in enumerate(rows)]
    assert stops_at(EarlyStopping(patience=2), sparse) == 70
    assert stops_at(EarlyStopping(patience=2), rows_of([None, None, None, None])) is None


def test_a_metric_that_does_not_exist(fake) -> None:
    with pytest.raises(TrainingStopped, match="there is no metric 'los'; did you mean 'loss'"):
        train("run", EarlyStopping(patience=1, metric="los"))


def test_the_best_of_all_seeds_and_points() -> None:
    rows = [{"step": 1, "return_per_seed": [0.0, 3.0]}, {"step": 2, "return_per_seed": [4.0, None]}]
    rows.append({"step": 3, "return_per_seed": [4.0, 1.0]})
    assert SaveBest("a.safetensors").best(rows) == (4.0, 2, 0)
    rows[0]["evaluation_greedy_return"], rows[0]["evaluation_greedy_return_per_seed"] = 1.0, [0.5, 1.5]
    assert SaveBest("a.safetensors").best(rows) == (1.5, 1, 1)


def test_evaluations_come_when_they_are_due() -> None:
    made = []

    def examine(agents, step, episodes, greedy):
        made.append(step)
        return Evaluation("", [Score(0, "greedy", Episodes(np.ones(episodes), np.ones(episodes, int)))])

    rows = [{"step": step} for step in (30, 60, 90, 120, 150, 170)]
    for number in range(1, len(rows) + 1):
        Evaluate(every=70, episodes=2, greedy=True)(Point(rows[:number], list, examine, last=number == len(rows)))
    assert made == [90, 150, 170]  # the first points from 70 and 140 on, and the last
    assert rows[2]["evaluation_greedy_return"] == 1.0
    assert "evaluation_greedy_return" not in rows[1]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory) -> Path:
    """A real run with evaluations, the same without, and the same in two parts."""
    folder = tmp_path_factory.mktemp("evaluated")
    more = {"eval_every": 64, "eval_episodes": 3, "log_every": 32, "seeds": 2, **TINY}
    rulax.train("catch", steps=192, out=folder / "with", save_best=str(folder / "best.safetensors"), **more)
    rulax.train("catch", steps=192, out=folder / "without", **more | {"eval_every": 0})
    rulax.train("catch", steps=192, out=folder / "parts", callback=lambda point: point.step < 96, **more)
    rulax.train(resume=folder / "parts", quiet=True)
    return folder


def test_training_does_not_notice_evaluations(evaluated: Path) -> None:
    assert_same_run(evaluated / "with", evaluated / "without", but=("evaluation_",))
    rows = read_rows(evaluated / "with")
    assert [row["step"] for row in rows if "evaluation_greedy_return" in row] == [64, 128, 192]
    assert [len(row["evaluation_sampled_return_per_seed"]) for row in rows if "evaluation_sampled_return" in row] == [2, 2, 2]
    assert not any("evaluation_greedy_return" in row for row in read_rows(evaluated / "without"))


def test_nor_does_a_resumed_run(evaluated: Path) -> None:
    assert_same_run(evaluated / "with", evaluated / "parts")


def test_everything_says_which_return_it_shows(evaluated: Path, capsys) -> None:
    summary = json.loads((evaluated / "with" / "summary.json").read_text())
    last = read_rows(evaluated / "with")[-1]
    assert summary["evaluation_greedy_return"] == last["evaluation_greedy_return"]
    page = (evaluated / "with" / "report.html").read_text()
    for words in ("evaluation, greedy", "evaluation, as in training", "Return of training episodes"):
        assert words in page
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(evaluated / "with" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/evaluation_sampled_return")] == [64, 128, 192]


def test_the_best_agent_is_in_its_file(evaluated: Path) -> None:
    about = rulax.load_agent(evaluated / "best.safetensors").description
    rows = [row for row in read_rows(evaluated / "with") if "evaluation_greedy_return" in row]
    best = max(value for row in rows for value in row["evaluation_greedy_return_per_seed"])
    (row,) = [row for row in rows if row["step"] == about.steps]
    assert row["evaluation_greedy_return_per_seed"][about.seed] == best


def test_stopping_from_the_command_line(fake, tmp_path: Path, capsys) -> None:
    assert main(["train", "catch", "--steps", "2345", "--out", "run", "--stop-at", "-100"]) == 0
    output = capsys.readouterr().out
    assert "stopped at step 30 of 2,345 by EarlyStopping: episode_return reached" in " ".join(output.split())
    assert "rulax train --resume run\n" in output
    assert main(["train", "catch", "--save-best", "best.pt"]) == 2
    assert "ends in .safetensors" in capsys.readouterr().err

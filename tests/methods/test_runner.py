"""`rulax method`: seeds, budgets, records, interruption, bad input; on a method that is nothing but known numbers."""

import dataclasses
import json
import math
import os
import signal
import time
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rulax
from rulax.commands.cli import main
from rulax.commands.method import run as method
from rulax.commands.method import setup
from rulax.commands.method.record import Seed, interval, read_experiment
from rulax.commands.method.settings import MethodConfig
from rulax.commands.progress import Lines
from rulax.errors import Interrupted, UserError
from rulax.methods import base, catalogue
from rulax.methods.base import Experiment, Progress, Published, Reference, SeedRun, score

STEPS = 4
started: list[int] = []


class Known(SeedRun):
    """Test values 1 + seed + (-0.5, 0.5), after four meta-updates."""

    def __init__(self, suite, seed):
        started.append(seed)
        self.suite, self.seed, self.updates = suite, seed, 0

    def advance(self):
        self.updates += 1
        return Progress(self.updates / STEPS, self.updates, 10 * self.updates, float(self.updates))

    def done(self):
        return self.updates >= STEPS

    def test(self):
        values = 1 + self.seed + np.array([-0.5, 0.5] * 50)
        return base.Tested(values, 0.0, Reference("known", 4.0, "exact"), {"other": 3.0}, {"updates": self.updates})


def experiment(name="numbers", goal=2.0, **others):
    return Experiment("toy", name, "numbers", "a number", goal, 100.0, Known, Published(2.5, "nowhere"), **others)


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    started.clear()
    monkeypatch.setattr(catalogue, "METHODS", {"toy": "numbers"})
    monkeypatch.setattr(setup, "METHODS", {"toy": "numbers"})
    found = (experiment(), experiment("more", goal=9.0))
    monkeypatch.setattr(setup, "experiments_of", lambda name: found)
    return found


def run(tmp_path, *flags):
    code = main(["method", "toy", "--out", str(tmp_path / "out"), *flags])
    return code, {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out").glob("toy.*.json")}


def test_a_record_holds_what_tables_need(tmp_path, capsys):
    code, records = run(tmp_path, "--experiment", "numbers", "--seeds", "3")
    record = records["toy.numbers"]
    assert code == 0
    assert record["seeds"] == [0, 1, 2]
    assert record["value"] == 2.0
    assert record["pass"] is True
    assert record["score"] == 0.5
    assert record["published_score"] == 2.5 / 4
    assert record["n_test_tasks"] == 100
    assert record["meta_updates"] == 3 * STEPS
    assert record["env_steps"] == 3 * 10 * STEPS
    assert record["baselines"] == {"other": 3.0}
    assert record["reference"]["kind"] == "exact"
    assert len(record["per_seed"][0]["curve"]) == STEPS
    seeds = 4.302652730 * 1.0 / math.sqrt(3)  # the seeds' values are 1, 2, 3
    tasks = 1.96 * np.std([-0.5, 0.5] * 50, ddof=1) / 10
    np.testing.assert_allclose(record["ci95"], math.hypot(seeds, tasks), rtol=1e-6)
    table = capsys.readouterr().out
    assert "toy.numbers" in table
    assert "pass" in table
    assert "1 of 1 goals reached" in table
    assert (tmp_path / "out" / "table.md").read_text().count("|") > 20
    assert (tmp_path / "out" / "scores.png").read_bytes()[:4] == b"\x89PNG"


# Published 97.5 % quantiles of Student's t with 1, 2, 9, 10, 11 and 29 degrees of freedom.
@pytest.mark.parametrize(("seeds", "factor"), [(2, 12.7062), (3, 4.3027), (10, 2.2622), (11, 2.2281), (12, 2.2010), (30, 2.0452)])
def test_the_interval_over_seeds_follows_students_t_for_any_number_of_seeds(seeds, factor):
    """The spread over test tasks is zero here, so the interval is Student's over the seeds alone."""
    values = np.random.default_rng(0).normal(size=seeds)
    reference = Reference("known", 4.0, "exact")
    tested = [base.Tested(np.full(50, value), 0.0, reference) for value in values]
    rows = [Seed.of(seed, each, None, [], 0.0, True) for seed, each in enumerate(tested)]
    np.testing.assert_allclose(interval(rows), factor * values.std(ddof=1) / math.sqrt(seeds), rtol=2e-5)


def test_a_missed_goal_is_said_and_shown_by_the_exit_code(tmp_path, capsys):
    code, records = run(tmp_path)
    assert code == 1
    assert records["toy.more"]["pass"] is False
    assert "MISSED" in capsys.readouterr().out


def test_what_is_missed_by_the_quick_suite_has_its_own_goal(tmp_path):
    code, records = run(tmp_path, "--experiment", "numbers", "--suite", "quick")
    assert code == 1
    assert records["toy.numbers"]["goal"] == 100.0


def test_rulax_runs_lists_it(tmp_path, capsys):
    run(tmp_path, "--experiment", "numbers")
    capsys.readouterr()
    assert main(["runs", str(tmp_path), "--csv", str(tmp_path / "runs.csv")]) == 0
    heads, row = (line.split(",") for line in (tmp_path / "runs.csv").read_text().splitlines())
    found = dict(zip(heads, row, strict=False))
    assert found["kind"] == "method"
    assert (found["rule"], found["env"], found["finished"], float(found["score"])) == ("toy", "numbers", "True", 0.5)


def test_a_budget_ends_training_and_is_recorded(tmp_path):
    _, records = run(tmp_path, "--experiment", "numbers", "--budget", "1e-9", "--seeds", "1")
    seed = records["toy.numbers"]["per_seed"][0]
    assert seed["complete"] is False
    assert seed["details"]["updates"] == 0
    assert records["toy.numbers"]["budget_s"] == 1e-9


def test_an_interrupted_run_goes_on_with_the_seeds_that_are_missing(tmp_path, monkeypatch, capsys):
    advance = Known.advance

    def stop_at_the_third_seed(self):
        if self.seed == 2:
            raise Interrupted("as if by Ctrl-C")
        return advance(self)

    monkeypatch.setattr(Known, "advance", stop_at_the_third_seed)
    out = str(tmp_path / "out")
    assert main(["method", "toy", "--experiment", "numbers", "--out", out]) == 130
    assert read_experiment(tmp_path / "out" / "toy.numbers.json")["seeds"] == [0, 1]
    monkeypatch.setattr(Known, "advance", advance)
    started.clear()
    assert main(["method", "--resume", out]) == 0
    assert started == [2]
    assert read_experiment(tmp_path / "out" / "toy.numbers.json")["seeds"] == [0, 1, 2]


class Walk(Known):
    """A sum of random numbers, which can be saved on its way."""

    kept = ("updates", "state")

    def __init__(self, suite, seed):
        super().__init__(suite, seed)
        self.state = {"key": jax.random.key(seed), "sum": jnp.zeros(2)}

    def advance(self):
        key, key_step = jax.random.split(self.state["key"])
        self.state = {"key": key, "sum": self.state["sum"] + jax.random.normal(key_step, 2)}
        return super().advance()

    def test(self):
        return dataclasses.replace(super().test(), values=np.asarray(self.state["sum"]))


@pytest.mark.parametrize("kind", [Walk, Known])
def test_a_seed_is_saved_on_its_way_where_it_can_be_and_nothing_else_is_promised(tmp_path, monkeypatch, capsys, kind):
    made = []
    advance = kind.advance

    def interrupted_at_the_third(self):
        made.append(self.seed)
        if len(made) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.1)
        return advance(self)

    found = (dataclasses.replace(experiment(), start=kind),)
    monkeypatch.setattr(setup, "experiments_of", lambda name: found)
    line = ["method", "toy", "--seeds", "1", "--suite", "quick"]
    main([*line, "--out", str(tmp_path / "whole")])
    monkeypatch.setattr(kind, "advance", interrupted_at_the_third)
    parts = tmp_path / "parts"
    assert main([*line, "--out", str(parts)]) == 130
    said = capsys.readouterr().err
    assert ("saving…" in said) == (kind is Walk)
    assert ("the current one cannot be saved on its way and begins again" in said) == (kind is Known)
    main(["method", "--resume", str(parts)])
    assert len(made) == (STEPS if kind is Walk else STEPS + 3)
    records = [read_experiment(folder / "toy.numbers.json") for folder in (tmp_path / "whole", parts)]
    for record in records:
        for seed in record["per_seed"]:
            del seed["wall_s"]
    assert records[0]["per_seed"] == records[1]["per_seed"]
    assert not list(parts.glob("*.safetensors"))


def test_other_settings_than_those_of_the_folder_are_refused(tmp_path, capsys):
    run(tmp_path, "--experiment", "numbers", "--seeds", "1")
    assert main(["method", "--resume", str(tmp_path / "out"), "--seeds", "2"]) == 2
    assert "seeds is 1 there" in capsys.readouterr().err
    assert main(["method", "toy", "--out", str(tmp_path / "out")]) == 2
    assert "already holds a run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"method": "tyo"}, "did you mean 'toy'"),
        ({"method": "numbers"}, "rulax method toy --experiment numbers"),
        ({"method": "toy", "experiment": "number"}, "did you mean 'numbers'"),
        ({"method": "all", "experiment": "numbers"}, "leave it out"),
        ({}, "which method"),
        ({"method": "toy", "seeds": 0}, "seeds"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, values, words):
    with pytest.raises(UserError, match=words):
        method.command({**values, "out": str(tmp_path / "x")})
    assert not (tmp_path / "x").exists()


def test_what_cannot_run_here_is_left_out_of_all_and_refused_by_name(tmp_path, monkeypatch, capsys):
    able, unable = experiment(), experiment("far", unavailable=lambda: "no such file")
    monkeypatch.setattr(setup, "METHODS", {"toy": "", "away": ""})
    away = types.SimpleNamespace(**{**vars(unable), "method": "away", "unavailable": unable.unavailable})
    monkeypatch.setattr(setup, "experiments_of", lambda name: (able,) if name == "toy" else (away,))
    assert main(["method", "all", "--seeds", "3", "--out", str(tmp_path / "all")]) == 0
    assert "away is left out: no such file" in capsys.readouterr().err
    assert main(["method", "away", "--out", str(tmp_path / "away")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_of_a_method_only_what_cannot_run_is_left_out(tmp_path, monkeypatch, capsys):
    able, unable = experiment(), experiment("far", unavailable=lambda: "no such file")
    monkeypatch.setattr(setup, "METHODS", {"toy": ""})
    monkeypatch.setattr(setup, "experiments_of", lambda name: (able, unable))
    assert main(["method", "toy", "--seeds", "1", "--out", str(tmp_path / "both")]) in (0, 1)
    assert "toy far is left out: no such file" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "both").glob("toy.*.json")] == [f"toy.{able.name}.json"]
    assert main(["method", "toy", "--experiment", "far", "--out", str(tmp_path / "far")]) == 2
    assert "toy cannot run: no such file" in capsys.readouterr().err


def test_python_users_hold_the_records(tmp_path, capsys):
    found = rulax.method("toy", experiment="numbers", seeds=2, out=tmp_path / "out")
    assert found.folder == tmp_path / "out"
    (record,) = found.records
    assert record == read_experiment(tmp_path / "out" / "toy.numbers.json")
    assert (record["value"], record["seeds"], record["pass"]) == (1.5, [0, 1], False)
    assert found.table == (tmp_path / "out" / "table.md").read_text()
    assert repr(found).endswith("0 of 1 goals reached)")
    with pytest.raises(UserError, match="seeds is 2 there"):
        rulax.method(resume=found.folder, seeds=3)
    with pytest.raises(UserError, match="did you mean 'toy'"):
        rulax.method("tyo")
    # Experiments of one's own need no name in any table.
    several = rulax.method([experiment("one", goal=1.0), experiment("two")], seeds=1, out=tmp_path / "own")
    assert [(each["id"], each["pass"]) for each in several.records] == [("toy.one", True), ("toy.two", False)]
    assert capsys.readouterr().out == ""


def test_python_runs_a_method_of_the_catalogue(tmp_path, monkeypatch):
    monkeypatch.undo()  # the real table, not that of the tests above
    monkeypatch.chdir(tmp_path)
    found = rulax.method("pbt", experiment="toy", suite="quick", seeds=1)
    assert found.folder.parent == Path("runs")
    (record,) = found.records
    assert record["id"] == "pbt.toy"
    assert record["pass"]
    assert record["value"] >= record["goal"]


def test_the_common_axis():
    assert score(5.0, 5.0, 6.0) == 0
    assert score(6.0, 5.0, 6.0) == 1
    assert score(2.0, 10.0, 0.0) == 0.8  # less is better
    assert math.isnan(score(1.0, 1.0, 1.0))


def refuse_nine(size=1, word=""):
    if size == 9:
        raise UserError("nine is too many")


def test_an_experiment_gets_the_options_that_it_has(tmp_path, monkeypatch, capsys):
    given = []

    def start(suite, seed, size=1, word="none"):
        given.append((size, word))
        return Known(suite, seed)

    able = dataclasses.replace(experiment(), start=start, options={"size": 1, "word": "none"}, check=refuse_nine)
    monkeypatch.setattr(setup, "experiments_of", lambda name: (able, experiment("more")))
    out = tmp_path / "out"
    words = ["method", "toy", "--experiment", "numbers", "--seeds", "1"]
    assert main([*words, "--options", "size=3", "word=w", "--out", str(out)]) == 1
    assert given == [(3, "w")]  # as the defaults are: a number and a word
    assert json.loads((out / "config.json").read_text())["settings"]["options"] == {"size": 3, "word": "w"}
    for option, sentence in {"sise=3": "did you mean 'size'", "size=9": "nine is too many", "size=x": "size expects"}.items():
        assert main([*words, "--options", option, "--out", str(tmp_path / "no")]) == 2
        assert sentence in capsys.readouterr().err
    assert main(["method", "toy", "--experiment", "more", "--options", "size=3"]) == 2
    assert "toy more has no option 'size'; --experiment numbers has" in capsys.readouterr().err
    assert main(["method", "all", "--options", "size=3"]) == 2
    assert "with `all` leave them out" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_a_chunk_without_a_meta_update_can_be_shown(tmp_path, capsys, monkeypatch):
    """The first chunk may end before the first meta-update: then nothing is known of the total either."""

    class Slow(Known):
        def advance(self):
            done = super().advance()
            return done if self.updates > 1 else Progress(0.0, 0, 10, float("nan"))

    class Talkative(Lines):
        def update(self, status):
            self.last = -math.inf
            super().update(status)

    monkeypatch.setattr(setup, "experiments_of", lambda name: (dataclasses.replace(experiment(), start=Slow),))
    monkeypatch.setattr(method, "make_progress", lambda quiet: Talkative())
    code, _ = run(tmp_path, "--experiment", "numbers", "--seeds", "1")
    assert code == 1
    assert "  0.0 % · step 0 · value -" in capsys.readouterr().err


def test_the_quick_suite_of_all_methods_is_short(monkeypatch):
    """Beside what has a goal there, only what has none at all and takes minutes in full: CI waits for it."""
    goal, no_quick_goal = experiment("goal"), dataclasses.replace(experiment("no-quick-goal"), quick_goal=None)
    short, long = (dataclasses.replace(no_quick_goal, name=f"{minutes}", goal=None, minutes=minutes) for minutes in (1, 20))
    monkeypatch.setattr(setup, "experiments_of", lambda name: (goal, no_quick_goal, short, long))
    chosen = [each.name for each in setup.chosen(MethodConfig(method="all", suite="quick"))]
    assert chosen == ["goal", "1"]
    assert len(setup.chosen(MethodConfig(method="all", suite="full"))) == 4

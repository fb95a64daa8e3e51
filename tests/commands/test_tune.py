"""Searches for settings with the small fake trainer: what may be searched, resuming exactly, Ctrl-C, and what is reported."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rulax
from rulax.commands import build
from rulax.commands.cli import main
from rulax.commands.search_space import Choices, Range, read_space
from rulax.commands.train.settings import TrainConfig
from rulax.commands.tune.results import rank_correlation
from rulax.errors import UserError

SPACE = ["--tune", "learning_rate=1e-5:1e-2:log", "unroll=1,5", "hidden=8,8x8"]
LINE = ["train", "catch", "--rule", "ppo", "--steps", "200", "--seeds", "4", "--trials", "6", "--tune-seeds", "2", *SPACE]


@pytest.fixture
def paid(fake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Fake agents whose return depends on nothing but the learning rate: the closer to 1e-3, the more."""
    pytest.importorskip("optuna")
    make_trainer, fake.seeds = build.make_trainer, []

    def make(environment: Any, recipe: Any, config: Any) -> Any:
        trainer = make_trainer(environment, recipe, config)
        advance, init = trainer.advance, trainer.init

        def advanced(state: Any) -> Any:
            state, metrics = advance(state)
            value = -abs(np.log10(recipe.learning.learning_rate) + 3)
            return state, metrics | {"episode_return": metrics["episodes"] * value}

        def begun(key: Any) -> Any:
            fake.seeds.append((config.seed, config.seeds, recipe.learning.learning_rate))
            return init(key)

        trainer.advance, trainer.init = advanced, begun
        return trainer

    monkeypatch.setattr("rulax.commands.build.make_trainer", make)
    # Most of the time of so small a run is its picture, which other tests look at.
    monkeypatch.setattr("rulax.commands.train.result.Run.plot", lambda run, path=None: None)
    return fake


def one_line(text: str) -> str:
    assert text.startswith("error: ")
    assert text.count("\n") == 1, text
    return text


def charts_of(page: str) -> list[dict[str, Any]]:
    return json.loads(page.partition('id="data">')[2].partition("</script>")[0])


def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "tune.json").read_text())


def tried(folder: Path) -> list[Any]:
    return [(trial["settings"], trial["final_return"], trial["note"]) for trial in results(folder)["trials"]]


# -- what may be searched --------------------------------------------------------------------------------------------------------


def test_ranges_and_lists_have_the_type_of_their_setting() -> None:
    texts = [
        "lr=1e-4:1e-2:log",
        "unroll=8:64",
        "hidden=64,64x32",
        "schedule=linear,constant",
        "rule.discount=0.9:1:lin",
        "rule.n=1:3",
    ]
    space = read_space([*texts, "normalise_rewards=true,false"], TrainConfig, (), ())
    assert space == {
        "learning_rate": Range(1e-4, 1e-2, True, False),
        "unroll": Range(8, 64, False, True),
        "hidden": Choices({"64": (64,), "64x32": (64, 32)}),
        "schedule": Choices({"linear": "linear", "constant": "constant"}),
        "rule.discount": Range(0.9, 1.0, False, False),
        "rule.n": Range(1, 3, False, True),
        "normalise_rewards": Choices({"true": True, "false": False}),
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("learning_rat=1:2", "'learning_rat' is not a setting of an agent or its learning; did you mean 'learning_rate'?"),
        ("lr=1e-2:1e-4", "the range learning_rate=1e-2:1e-4 is empty; its first number must be the smaller one"),
        ("lr=1e-3:1e-3", "is empty"),
        ("replay=0:1:log", "a logarithmic range must begin above 0, and replay=0:1:log does not"),
        ("lr=0:1", "learning_rate must be greater than 0, not 0"),
        ("lr=1:2:exp", "is no range; write learning_rate=LOW:HIGH"),
        ("lr=a:b", "--tune learning_rate expects a number, not 'a'"),
        ("unroll=1.5:3", "expects a whole number"),
        ("lr=1e-3", "learning_rate needs at least two different values"),
        ("lr=", "needs at least two different values"),
        ("schedule=a:b", "schedule is not a number, so it has no range; list its values"),
        ("schedule=linear,cosin", "expects one of constant, linear, cosine, not 'cosin'"),
        ("adam_b1=0.9:0.99", "adam_b1 is set twice"),
        ("rule.discount=0.9:0.99", "rule.discount is set twice"),
        ("=1:2", "expects KEY=LOW:HIGH or KEY=A,B,C"),
    ],
)
def test_what_cannot_be_searched_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        read_space([text], TrainConfig, ("adam_b1",), ("discount",))
    assert sentence in str(error.value)


def test_mistakes_are_found_before_anything_is_written(fake: Any, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    def refused(*line: str) -> str:
        assert main(list(line)) == 2
        assert not list(tmp_path.iterdir())
        return one_line(capsys.readouterr().err)

    assert "--trials is for a search for settings: give --tune" in refused("train", "catch", "--trials", "3")
    with pytest.raises(UserError, match=r"in Python a search for settings is rulax\.tune"):
        rulax.train("catch", tune="lr=1:2")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'rulax[tune]'" in refused("train", "catch", "--tune", "lr=1e-4:1e-2")
    monkeypatch.undo()
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    assert "which settings? for example: rulax tune catch --tune" in refused("tune", "catch")
    assert "did you mean 'unroll'?" in refused("train", "catch", "--tune", "unrol=1:2")
    assert "trials must be at least 1" in refused("train", "catch", "--tune", "unroll=1:2", "--trials", "0").replace(
        "be at", "be at"
    )
    # Nothing is faked here: options of a rule are checked by the rule itself.
    assert "clip" in refused("train", "catch", "--rule", "ppo", "--tune", "rule.clipp=0.1:0.3")
    # And so is whether a setting can do anything.
    idle = refused("train", "catch", "--rule", "mfec", "--tune", "unroll=4,8", "lr=1e-4:1e-2")
    assert "--tune: learning_rate does nothing for rule 'mfec', whose agents take no gradient steps" in idle


# -- a whole sweep ---------------------------------------------------------------------------------------------------------------


def test_a_sweep_finds_the_best_and_trains_it_on_seeds_of_its_own(paid: SimpleNamespace, tmp_path: Path, capsys: Any) -> None:
    assert main([*LINE, "--out", "sweep"]) == 0
    shown = capsys.readouterr().out
    folder = tmp_path / "sweep"
    found = results(folder)
    assert found["finished"]
    assert [trial["trial"] for trial in found["trials"]] == [1, 2, 3, 4, 5, 6]
    for trial in found["trials"]:
        rate = trial["settings"]["learning_rate"]
        assert 1e-5 <= rate <= 1e-2
        assert trial["settings"]["unroll"] in (1, 5)
        assert trial["final_return"] == pytest.approx(-abs(np.log10(rate) + 3), abs=1e-6)
        assert rulax.load(folder / trial["folder"]).config.overrides["learning_rate"] == rate, "each is a run of its own"
    scores = [trial["final_return"] for trial in found["trials"]]
    assert found["best"]["final_return"] == max(scores)
    # Chosen by two seeds of one kind, reported by four of another.
    *trials, last = paid.seeds
    assert {seeds[:2] for seeds in trials} == {(1_000_003, 2)}
    assert last == (0, 4, found["best"]["settings"]["learning_rate"])
    assert len(found["result"]["final_return_per_seed"]) == 4
    # Only the learning rate does anything.
    assert found["mattered"][0]["name"] == "learning_rate"
    assert sum(row["importance"] for row in found["mattered"]) == pytest.approx(1)
    assert "the best settings on 4 fresh seeds" in shown
    assert "what mattered: learning_rate" in shown
    page = (folder / "report.html").read_text()
    for words in ("What mattered", "seeds that no trial had", "rulax tune --resume", "Rank correlation"):
        assert words in page
    (panels,) = (chart["panels"] for chart in charts_of(page) if chart["kind"] == "panels")
    assert [panel["kind"] for panel in panels] == ["curves", "bars", "bars"], "a line for a range, bars for lists"
    assert main(["runs", "."]) == 0
    assert "tune" in capsys.readouterr().out


def test_recommended_settings_are_tried_first_where_they_may_be(paid: SimpleNamespace, tmp_path: Path) -> None:
    line = ["tune", "catch", "--steps", "50", "--trials", "2", "--tune-seeds", "1", "--seeds", "1", "--quiet"]
    assert main([*line, "--tune", "learning_rate=1e-5:1e-2:log", "unroll=5,10", "--out", "inside"]) == 0
    first = results(tmp_path / "inside")["trials"][0]
    assert (first["settings"], first["note"]) == ({"learning_rate": 3e-4, "unroll": 5}, "recommended settings")
    assert main([*line, "--tune", "learning_rate=1e-3:1e-2:log", "unroll=5,10", "--out", "outside"]) == 0
    assert "recommended settings" not in [trial["note"] for trial in results(tmp_path / "outside")["trials"]]


def test_settings_that_come_again_are_not_trained_again_and_what_does_not_fit_fails_alone(paid: Any, tmp_path: Path) -> None:
    space = {"minibatches": [1, 2, 3]}  # of two streams, which three do not divide
    sweep = rulax.tune("catch", rule="ppo", space=space, trials=12, steps=50, seeds=1, tune_seeds=1, out="sweep")
    assert len(sweep.trials) == 12
    notes = {trial["settings"]["minibatches"]: trial["note"] for trial in reversed(sweep.trials)}
    assert "must be divisible by minibatches (3)" in notes[3]
    assert len(paid.seeds) == 3, "two settings once each, and the best again"
    assert [trial["note"] for trial in sweep.trials].count("repeated") >= 5
    assert sweep.best["minibatches"] in (1, 2)
    assert repr(sweep) == "Sweep(catch · ppo, 12 trials)"
    assert "final return" in sweep.table
    assert sweep.run.finished
    assert rulax.Sweep.load("sweep").best == sweep.best


# -- going on --------------------------------------------------------------------------------------------------------------------


def test_an_interrupted_sweep_goes_on_as_if_nothing_had_happened(paid: SimpleNamespace, tmp_path: Path, capsys: Any) -> None:
    assert main([*LINE, "--trials", "12", "--out", "whole", "--quiet"]) == 0
    line = [*LINE, "--trials", "12", "--out", "parts", "--quiet"]
    for stop_at in (2, 3, 1):  # chunks of some trial, in its middle
        chunks = [0]

        def on_chunk(_: int, stop_at: int = stop_at, chunks: list[int] = chunks) -> None:
            chunks[0] += 1
            if chunks[0] == 2 + 3 * stop_at:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.2)  # the listener's thread needs a moment

        paid.on_chunk = on_chunk
        assert main(line) == 130
        said = capsys.readouterr().err
        assert "everything is saved. To go on:" in said
        assert "rulax tune --resume parts" in said
        assert (tmp_path / "parts" / "report.html").exists()
        line = ["train", "--resume", "parts", "--quiet"]
    paid.on_chunk = None
    assert main(line) == 0
    assert tried(tmp_path / "whole") == tried(tmp_path / "parts")
    assert results(tmp_path / "whole")["result"] == results(tmp_path / "parts")["result"]


def test_more_trials_extend_a_sweep_exactly_and_fewer_are_refused(paid: Any, tmp_path: Path, capsys: Any) -> None:
    assert main([*LINE, "--trials", "5", "--out", "whole", "--quiet"]) == 0
    assert main([*LINE, "--trials", "3", "--out", "parts", "--quiet"]) == 0
    assert main(["tune", "--resume", "parts", "--trials", "5", "--quiet"]) == 0
    assert tried(tmp_path / "whole") == tried(tmp_path / "parts")
    capsys.readouterr()
    for more, sentence in (
        ([], "parts is finished, after 5 trials; a larger --trials N goes on"),
        (["--trials", "4"], "has already made 5 trials, more than --trials 4"),
        (["--steps", "9"], "steps is 200 there and not 9"),
        (["--tune", "lr=1:2"], "which a resumed run keeps"),
    ):
        assert main(["tune", "--resume", "parts", *more]) == 2
        assert sentence in one_line(capsys.readouterr().err)
    assert main(["compare", "--resume", "parts"]) == 2
    assert "holds a search for settings, not a comparison; go on with it by: rulax tune --resume parts" in capsys.readouterr().err


def test_a_journal_of_another_search_or_of_nothing_is_refused(paid: Any, tmp_path: Path, capsys: Any) -> None:
    assert main([*LINE, "--trials", "2", "--out", "sweep", "--quiet"]) == 0
    journal = tmp_path / "sweep" / "trials.jsonl"
    for text in ("not json\n" * 3, '{"a": 1}\n' * 3, journal.read_text().replace("learning_rate", "adam_eps")):
        journal.write_text(text)
        assert main(["tune", "--resume", "sweep", "--trials", "3"]) == 2
        assert "cannot be read as the journal of a sweep" in one_line(capsys.readouterr().err)


def test_a_trial_that_breaks_ends_alone_and_a_sweep_without_any_says_why(
    paid: SimpleNamespace, tmp_path: Path, capsys: Any
) -> None:
    paid.bad_at = 3
    assert main([*LINE, "--trials", "2", "--out", "sweep", "--quiet"]) == 2
    assert (
        "no trial could be trained to its end, so there is nothing to choose from: training stopped: a reward"
        in capsys.readouterr().err
    )
    assert "unfinished" in (tmp_path / "sweep" / "report.html").read_text()
    paid.bad_at = None
    assert main(["tune", "--resume", "sweep", "--trials", "3", "--quiet"]) == 0
    assert [trial["final_return"] is None for trial in results(tmp_path / "sweep")["trials"]] == [True, True, False]


def test_the_direction_of_a_setting() -> None:
    assert rank_correlation([1, 2, 3, 10], [0.1, 0.2, 5.0, 6.0]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 10], [9.0, 4.0, 2.0, 1.0]) == pytest.approx(-1)
    assert rank_correlation(["a", "b", "c", "d"], [1.0, 2.0, 3.0, 4.0]) is None
    assert rank_correlation([1, 1, 1, 1], [1.0, 2.0, 3.0, 4.0]) is None


def test_own_objects_are_searched_like_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything real but small: an environment and a rule of one's own, and agents that can act."""
    pytest.importorskip("optuna")
    from tests.learning.environments import Counter

    monkeypatch.chdir(tmp_path)
    space = {"learning_rate": (1e-4, 1e-2, "log"), "rule.discount": [0.5, 0.9]}
    small = {"streams": 2, "unroll": 4, "hidden": 4, "steps": 16, "seeds": 1, "tune_seeds": 1}
    sweep = rulax.tune(Counter(length=3), rule="actor_critic", space=space, trials=2, **small)
    assert set(sweep.best) == {"learning_rate", "rule.discount"}
    assert sweep.folder.parent == Path("runs")

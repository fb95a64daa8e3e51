"""Comparisons in host environments: the settings of their loop, and replay that must fit before anything is trained."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rulax
from rulax.commands.cells import SCORE
from rulax.commands.cli import main
from rulax.commands.compare.cells import plan
from rulax.commands.compare.provenance import cell_command, compare_command
from rulax.commands.compare.settings import CompareConfig, build_compare, settings_of
from rulax.commands.flags import make_parser, parse
from rulax.errors import UserError
from tests.commands.conftest import FakeTrainer

from ..learning.environments import Flicker, FlickerStreams

HOST = {"replay_limit": "1GiB", "most_restarts": 3, "overlap": "on"}
SMALL = {"streams": 2, "unroll": 5, "hidden": [4], "replay": 0.5}


def from_line(line: str) -> CompareConfig:
    return build_compare(parse(make_parser("rulax compare", CompareConfig, ""), CompareConfig, shlex.split(line)))


@pytest.fixture
def flickering(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Every environment is a small one of the host, with the real trainer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rulax.commands.build.make_environment", lambda name, options: Flicker())
    monkeypatch.setattr("rulax.commands.compare.cells.UNTRAINED_STEPS", (100, 100))
    monkeypatch.setattr("rulax.report.plot.save_figure", lambda *arguments: None)
    return tmp_path


def test_flags_of_the_loop_go_to_the_environments_that_have_one() -> None:
    config = from_line("catch CartPole-v1 --rules ppo --steps 10k --overlap on --replay-limit 1GiB --most-restarts 3")
    assert {name: getattr(config, name) for name in HOST} == HOST
    ours, theirs = [cell.config for cell in plan(config, Path("x")) if cell.purpose == SCORE]
    assert {name: getattr(theirs, name) for name in HOST} == HOST
    assert (ours.overlap, ours.replay_limit) == ("auto", "")  # which `rulax train catch` would refuse
    line = cell_command(plan(config, Path("x"))[-1])
    assert all(part in line for part in ("--overlap on", "--replay-limit 1GiB", "--most-restarts 3"))
    again = from_line(compare_command(config).removeprefix("rulax compare "))
    assert settings_of(again) == settings_of(config)


@pytest.mark.parametrize("setting", [{"overlap": "on"}, {"replay_limit": "1GiB"}])
def test_where_no_environment_has_one_they_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(
        UserError, match="is for environments that step on the CPU, and all of these run on the device; leave it out"
    ):
        rulax.compare(["catch", "gymnax/CartPole-v1"], rules=["ppo"], **setting)


@pytest.mark.parametrize("limit", [{"replay_limit": "50KiB"}, {}])
def test_replay_that_does_not_fit_is_refused_before_anything_is_trained(flickering: Path, monkeypatch, limit) -> None:
    monkeypatch.setattr("rulax.learning.host_replay.free_memory", lambda: 100_000)
    monkeypatch.setattr("rulax.commands.train.run.begin", lambda *arguments: pytest.fail("something was trained"))
    sentence = r"^Other-v0 · actor_critic: the replay buffer of 1024 trajectories would take .*; --capacity \d+ would fit"
    with pytest.raises(UserError, match=sentence):
        rulax.compare(["Other-v0"], rules=["actor_critic", "policy_gradient"], seeds=2, steps=100, **SMALL, **limit)
    assert list(flickering.iterdir()) == []


def test_what_is_tuned_must_fit_with_all_seeds(flickering: Path, monkeypatch) -> None:
    """A trial has fewer seeds than what is made of it."""
    asked = []
    monkeypatch.setattr("rulax.learning.host.HostTrainer.reserve", lambda self, seeds=0: asked.append(seeds) or "")
    monkeypatch.setattr("rulax.records.folder.create_new", lambda *names: pytest.fail("that is enough"))
    tuned = {"tune": "lr=1e-3,1e-2", "tune_seeds": 1}
    with pytest.raises(pytest.fail.Exception, match="that is enough"):
        rulax.compare(["Other-v0"], rules=["actor_critic"], seeds=4, steps=100, **SMALL, **tuned)
    assert asked == [0, 4, 4]


def test_memory_that_is_gone_later_leaves_what_is_done(fake: SimpleNamespace, monkeypatch, capsys) -> None:
    monkeypatch.setattr("rulax.commands.compare.cells.UNTRAINED_STEPS", (200, 200))
    monkeypatch.setattr("rulax.report.plot.save_figure", lambda *arguments: None)
    monkeypatch.setattr("rulax.commands.compare.cells.untrained_recipe", lambda config: None)
    asked: list[FakeTrainer] = []

    def reserve(self: FakeTrainer, seeds: int = 0) -> str:
        asked.append(self)
        if len(asked) == 6:  # all three have been prepared, and two have begun
            raise ValueError("the replay buffer would take too much")
        return ""

    monkeypatch.setattr(FakeTrainer, "reserve", reserve)
    assert main(["compare", "catch", "--rules", "ppo", "q_learning", "--steps", "200", "--seeds", "2", "--out", "here"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: catch · q_learning: the replay buffer would take too much; stopped after 2 of 3 cells;")
    assert error.endswith("To go on: rulax compare --resume here")
    assert main(["compare", "--resume", "here", "--quiet"]) == 0


def test_a_resumed_comparison_may_change_what_does_not_change_the_result(flickering: Path) -> None:
    settings = {"rules": ["actor_critic"], "seeds": 1, "steps": 40, "out": "here", "capacity": 8, **SMALL}
    rulax.compare(["Other-v0"], **settings, replay_limit="1GiB")
    record = flickering / "here" / "config.json"
    rulax.compare(resume="here", most_restarts=4)
    kept = json.loads(record.read_text())["settings"]
    assert (kept["replay_limit"], kept["most_restarts"], kept["overlap"]) == ("1GiB", 4, "auto")
    with pytest.raises(UserError, match="other settings, which a resumed run keeps: overlap is auto there and not off"):
        rulax.compare(resume="here", overlap="off")
    old = json.loads(record.read_text())
    old["settings"] = {name: value for name, value in old["settings"].items() if name not in HOST}
    record.write_text(json.dumps(old))  # as folders were before there were these settings
    assert rulax.compare(resume="here", overlap="auto").finished


def test_an_unfinished_cell_goes_on_with_what_is_given_now(flickering: Path, monkeypatch) -> None:
    """Its own folder holds what was given then."""
    settings = {"rules": ["actor_critic"], "seeds": 1, "steps": 40, "out": "here", "capacity": 8, **SMALL}
    rulax.compare(["Other-v0"], **settings, replay_limit="1GiB")
    metrics = flickering / "here" / "cells" / "01-Other-v0-actor_critic" / "metrics.jsonl"
    metrics.write_text("")  # so that it counts as unfinished
    given = []
    monkeypatch.setattr("rulax.commands.train.run.resume", lambda values, **others: given.append(values))
    rulax.compare(resume="here", replay_limit="2GiB", most_restarts=7)
    assert [(values["replay_limit"], values["most_restarts"]) for values in given] == [("2GiB", 7)]


def test_an_environment_that_cannot_be_started_does_not_end_the_comparison(flickering: Path, monkeypatch) -> None:
    def start(self: FlickerStreams, seed: int) -> None:
        raise OSError("no power")

    monkeypatch.setattr(FlickerStreams, "start", start)
    found = rulax.compare(["Other-v0"], rules=["actor_critic"], seeds=1, steps=40, out="here", **SMALL)
    assert any(text.startswith("Other-v0 · untrained: 'Other-v0' cannot be started") for text in found.results["warnings"])
    assert any(text.startswith("Other-v0 · actor_critic: 'Other-v0' cannot be") for text in found.results["warnings"])


@pytest.mark.parametrize(("who", "place"), [(0, "untrained"), (32, "cells")])
def test_an_environment_that_failed_too_often_goes_on_when_it_is_allowed_more(tmp_path: Path, monkeypatch, who, place) -> None:
    pytest.importorskip("gymnasium")
    from ..envs.failing import ID

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rulax.commands.compare.cells.UNTRAINED_STEPS", (100, 100))
    monkeypatch.setattr("rulax.report.plot.save_figure", lambda *arguments: None)
    (tmp_path / "copies").mkdir()
    env = f"{ID}:folder={tmp_path / 'copies'},when=8,who=[{who}]"
    settings = {"rules": ["actor_critic"], "seeds": 1, "steps": 40, "out": "here", **SMALL, "capacity": 8}
    found = rulax.compare([env], **settings, most_restarts=0)
    assert any("restarted too often" in text for text in found.results["warnings"])
    assert [path.parts[1] for path in Path("here").rglob("failed.json")] == [place]
    found = rulax.compare(resume="here", most_restarts=5)
    assert found.finished
    assert not any("restarted too often" in text for text in found.results["warnings"])
    assert not list(Path("here").rglob("failed.json"))

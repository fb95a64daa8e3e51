"""`rulax explain` from end to end with rules so small that it takes seconds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from rulax.commands.cli import main
from rulax.commands.driver import drive
from rulax.commands.explain import analyses as explain_study
from rulax.commands.explain.analyses import choose_moments
from rulax.commands.explain.run import ExplainJob
from rulax.commands.explain.settings import ExplainConfig
from rulax.commands.progress import Silent
from rulax.evaluation.explain import record
from rulax.evaluation.explain.record import TrainingRecord
from rulax.metanet.network import MetaNetwork
from rulax.report.explain import write_explain_page
from rulax.rules.pretrained import save_rule
from tests.metanet.environments import SMALL

TINY = ["--env", "catch", "--env-options", "rows=4", "columns=3", "--snapshots", "3", "--watch", "128"]
TINY += ["--hidden", "8", "--streams", "4"]
DISCO = ["--batch", "4", "--unroll", "8", "--warmup", "4", "--capacity", "16", "--action-model", "4", "--action-hidden", "4"]


SCENE = (
    "label",
    "step",
    "action",
    "reward",
    "end",
    "policy",
    "value",
    "advantages",
)  # what a trajectory for the page has under every rule
SUBJECT = SimpleNamespace(
    config=ExplainConfig(rule="ppo"),
    inside=None,
    prepared=SimpleNamespace(
        record={name: {} for name in ("settings", "learning", "network", "versions")} | {"command": None, "commit": None},
        recipe=SimpleNamespace(learning=SimpleNamespace(streams=4)),
        environment=SimpleNamespace(num_actions=3),
        trainer=SimpleNamespace(close=lambda: None),
    ),
)


def explain_small(folder: Path) -> Path:
    """A small rule with random weights, explained."""
    rule, out = folder / "small.safetensors", folder / "out"
    save_rule(rule, jax.jit(lambda key: MetaNetwork(key, SMALL))(jax.random.key(3)), SMALL)
    assert main(["explain", str(rule), *TINY, *DISCO, "--steps", "256", "--ablations", "--out", str(out), "--quiet"]) == 0
    return out


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it, but that the agents without y and z do not really live: to compile their rules is half of the time."""

    def trained(trainer: Any, seed: int, snapshots: int, go_on: Any) -> TrainingRecord:
        if snapshots:
            return record.train_with_snapshots(trainer, seed, snapshots, go_on)
        return TrainingRecord([128, 256], [-1.0, -0.5], [], go_on(256, -0.5))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explain_study, "train_with_snapshots", trained)
        return explain_small(tmp_path_factory.mktemp("explain"))


@pytest.mark.slow
def test_agents_without_predictions_live_too(tmp_path: Path) -> None:
    found = json.loads((explain_small(tmp_path) / "explain.json").read_text())
    assert all(lived["finished"] and lived["steps"][-1] == 256 for lived in found["ablations"].values())


def test_everything_is_measured_and_shown(explained: Path) -> None:
    found = json.loads((explained / "explain.json").read_text())
    assert found["finished"]
    assert found["discovered"]
    assert [row["step"] for row in found["over_life"]] == [0, 128, 256]
    assert set(found["ablations"]) == {"own", "all"}
    for row in found["over_life"]:
        assert all(-1.001 <= row["cosines"][name]["value"] <= 1.001 for name in ("whole", "policy", "again"))
        assert all(of["value"] >= 0 for heads in row["reliance"]["blanked"].values() for of in heads.values())
    close = found["close"]["trained"]
    assert {row["distance"] for row in close["horizon"]["z hidden"]["policy"]} == set(range(16))
    assert close["saliency"]["policy"]["advantage"]["value"] > 0
    page = (explained / "report.html").read_text()
    assert len(page) < 6e6
    for title in (
        "Edit a trajectory",
        "The rule&#x27;s step and the policy gradient",
        "What predictions know",
        "Bootstrapping horizon",
        "rely on",
        "listens to",
    ):
        assert title in page, title
    assert "unfinished" not in re.sub(r"<style>.*?</style>|<script.*?</script>", "", page, flags=re.DOTALL)


def test_an_unfinished_page_says_so(explained: Path, tmp_path: Path) -> None:
    found = json.loads((explained / "explain.json").read_text())
    for name in ("close", "scenes", "weights", "ablations"):
        del found[name]
    (tmp_path / "explain.json").write_text(json.dumps({**found, "finished": False}))
    assert "unfinished" in write_explain_page(tmp_path).read_text()
    for name in ("over_life", "moments", "life"):
        del found[name]
    (tmp_path / "explain.json").write_text(json.dumps({**found, "finished": False}))
    assert "stopped before all analyses" in write_explain_page(tmp_path).read_text()


def test_the_page_of_a_rule_of_people(explained: Path, tmp_path: Path) -> None:
    found = json.loads((explained / "explain.json").read_text())
    for row in found["over_life"]:
        del row["reliance"]
    for close in found["close"].values():
        del close["horizon"], close["saliency"]
    scenes = [{name: scene[name] for name in SCENE} for scene in found["scenes"]]
    people = {
        **found,
        "rule": "far/mine.py:my_rule",
        "discovered": False,
        "sizes": None,
        "weights": None,
        "ablations": {},
        "scenes": scenes,
    }
    (tmp_path / "explain.json").write_text(json.dumps(people))
    page = write_explain_page(tmp_path).read_text()
    assert "do not apply" in page
    assert "Edit a trajectory and see what actor-critic and PPO want" in page  # the rule itself cannot be asked there
    assert "Bootstrapping horizon</h2>" not in page
    assert "<h1>What my_rule does" in page
    assert "The rule&#x27;s step and the policy gradient" in page


@pytest.mark.slow
def test_a_rule_of_people(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["explain", "actor_critic", *TINY, "--steps", "512", "--out", str(out), "--quiet"]) == 0
    found = json.loads((out / "explain.json").read_text())
    assert not found["discovered"]
    assert "reliance" not in found["over_life"][0]
    assert found["over_life"][0]["cosines"]["policy"]["value"] > 0.5  # normalised advantages and an entropy bonus, else the same
    page = (out / "report.html").read_text()
    assert "do not apply" in page
    assert "Edit a trajectory and see what actor-critic and PPO want" in page  # the rule itself cannot be asked there
    assert "Bootstrapping horizon</h2>" not in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "which rule?"),
        (["no_such_rule"], "unknown rule"),
        (["actor_critic", "--snapshots", "1"], "snapshots must be at least 2"),
        (["actor_critic", "--watch", "5"], "watch must be at least 32"),
        (["actor_critic", "--env", "gymnasium/CartPole-v1"], "written in JAX"),
        (["actor_critic", "--env", "point"], "an action is 2 choices at once, which explain does not support"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture, monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    if "gymnasium/CartPole-v1" in arguments:
        pytest.importorskip("gymnasium")
    assert main(["explain", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_folder_is_not_written_over(explained: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["explain", "actor_critic", "--out", str(explained)]) == 2
    assert "already holds an explanation" in capsys.readouterr().err


def test_what_was_found_is_on_disk_before_the_next_phase_begins(tmp_path: Path) -> None:
    """A driver whose second phase never comes back, as if the machine were switched off."""

    class Lost(BaseException):
        pass

    def second(report: Any) -> None:
        assert json.loads((tmp_path / "explain.json").read_text())["life"] == {"steps": [1], "returns": [2.0]}
        assert "unfinished" in (tmp_path / "report.html").read_text()
        raise Lost

    study = SimpleNamespace(found={}, subject=SUBJECT)
    first = {"life": {"steps": [1], "returns": [2.0]}}
    study.phases = lambda: [("one", lambda report: study.found.update(first), 1.0), ("two", second, 1.0)]
    with pytest.raises(Lost):
        drive(ExplainJob(study, tmp_path), Silent(), SimpleNamespace(requested=False))
    assert json.loads((tmp_path / "explain.json").read_text())["finished"] is False


def test_moments() -> None:
    assert choose_moments([-1.0, -0.9, 0.1, 1.0, 1.0]) == {"untrained": 0, "learning": 2, "trained": 4}
    assert choose_moments([None, None, None]) == {"untrained": 0, "learning": 1, "trained": 2}
    assert choose_moments([0.0, 1.0]) == {"untrained": 0, "trained": 1}

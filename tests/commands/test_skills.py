"""`rulax train ENV --rule diayn` from beginning to end: the environment shows skills, and every command knows about them."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import rulax
from rulax.commands.cli import main
from rulax.envs.catch import Catch
from rulax.errors import UserError

TINY = {"streams": 4, "unroll": 8, "minibatches": 1, "epochs": 1, "hidden": 8, "quiet": True, "animation": False}
OPTIONS = {"skills": 3, "discriminator_hidden": 7, "discriminator_steps": 1}
SMALL = {"rows": 4, "columns": 3}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "catch"
    return rulax.train("catch", rule="diayn", steps=64, rule_options=OPTIONS, env_options=SMALL, seeds=2, out=str(folder), **TINY)


def same(one, other) -> bool:
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(bool((left == right).all()) for left, right in leaves)


def test_the_environment_of_the_record_shows_the_skills(run) -> None:
    settings = json.loads((run.folder / "config.json").read_text())["settings"]
    assert settings["env_options"] == {**SMALL, "with_skill": 3}
    assert set(run.agent.environment.observation) == {"observation", "skill"}
    assert run.agent.params.discriminator.last.weight.shape == (7, 3)


def test_a_resumed_run_is_the_run_that_was_not_interrupted(run, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    common = {"rule": "diayn", "rule_options": OPTIONS, "env_options": SMALL, "seeds": 2, **TINY}
    rulax.train("catch", steps=32, out=str(folder), **common)
    resumed = rulax.train(resume=str(folder), steps=64, quiet=True)
    assert all(same(one.params, other.params) for one, other in zip(resumed.agents, run.agents, strict=True))


def test_skills_are_judged_in_the_folder_and_by_evaluate(run, capsys) -> None:
    summary = json.loads((run.folder / "summary.json").read_text())
    assert [each["number"] for each in summary["skills"]] == [3, 3]
    assert (run.folder / "skills.png").read_bytes().startswith(b"\x89PNG")
    page = (run.folder / "report.html").read_text()
    assert "Where each skill goes" in page
    assert "data:image/png" in page
    assert main(["evaluate", str(run.folder), "--episodes", "2", "--greedy", "--json"]) == 0
    judged = json.loads(capsys.readouterr().out)["skills"]
    assert len(judged) == 2
    for each in judged:
        assert each["information"] <= np.log(3)
        assert each["effective"] == pytest.approx(np.exp(each["information"]))
        assert len(each["accuracy"]) == 3
    assert main(["evaluate", str(run.folder), "--episodes", "2", "--greedy"]) == 0
    assert "worst skill" in capsys.readouterr().out


def test_the_numbers_are_those_of_the_discriminator_on_second_halves(run) -> None:
    agent = run.agent
    skills = agent.skills(seed=5, episodes=6)
    assert (skills.number, skills.paths.places.shape[1:]) == (3, (6, 2))
    lasting = np.isfinite(skills.paths.places).all(-1).sum(0)
    assert set(lasting) == {3}  # four rows: every episode of this Catch has three steps
    assert same(agent.skills(5, 6).rewards, skills.rewards)
    # Its discriminator has seen two unrolls and knows next to nothing.
    assert abs(skills.information) < 0.2


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_an_episode_of_one_step_is_judged_by_that_step(tmp_path: Path) -> None:
    """Its state is the same whichever skill is followed, so there is nothing to know: 0 nats, and no number is missing."""
    run = rulax.train("bandit/gaussian", rule="diayn", steps=32, rule_options=OPTIONS, out=str(tmp_path / "run"), **TINY)
    skills = run.agent.skills(episodes=64)
    assert np.isfinite(skills.rewards).all()
    # Whoever cannot tell knows each skill with its share, up to how far an untrained discriminator is from that.
    assert -1 < skills.information <= 0
    assert np.sort(skills.accuracy).tolist() == [0, 0, 1]
    assert "nan" not in " ".join(skills.row("0"))


def test_an_agent_file_holds_all_of_it(run, tmp_path: Path) -> None:
    loaded = rulax.load_agent(run.agent.save(tmp_path / "agent.safetensors"))
    assert same(loaded.params, run.agent.params)
    assert loaded.skills(seed=1, episodes=4).as_dict() == run.agent.skills(seed=1, episodes=4).as_dict()
    assert loaded.description.rule_options == OPTIONS


def test_a_film_shows_the_environment(run) -> None:
    moment = next(run.agent.play())
    assert moment.picture.ndim == 3


def test_an_environment_of_ones_own_gets_the_skills_too(tmp_path: Path) -> None:
    own = rulax.train(Catch(**SMALL), rule="diayn", steps=32, rule_options=OPTIONS, out=str(tmp_path / "own"), **TINY)
    assert set(own.agent.environment.observation) == {"observation", "skill"}
    loaded = rulax.load(own.folder, env=Catch(**SMALL))
    assert same(loaded.agent.params, own.agent.params)


@pytest.mark.slow
def test_the_host_and_several_dimensions(tmp_path: Path) -> None:
    run = rulax.train("CartPole-v1", rule="diayn", steps=64, rule_options=OPTIONS, out=str(tmp_path / "host"), **TINY)
    assert run.skills[0].number == 3
    real = rulax.train("point/box", rule="diayn", steps=32, rule_options=OPTIONS, env_options={"limit": 5}, **TINY)
    assert real.agent.skills(episodes=4).paths.axes == ("first number of the state", "second number of the state")


def test_a_contradiction_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs with_skill=3 of the environment, not with_skill=8"):
        rulax.train("catch", rule="diayn", env_options={"with_skill": 8}, rule_options=OPTIONS, out=str(tmp_path / "no"), **TINY)
    assert not (tmp_path / "no").exists()


def test_the_picture_in_python(run, tmp_path: Path) -> None:
    figure = run.agents[1].plot_skills(tmp_path / "skills.png")
    assert (tmp_path / "skills.png").exists()
    assert figure.axes[0].get_title(loc="left") == "Where each skill goes"

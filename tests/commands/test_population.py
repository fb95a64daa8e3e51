"""`rulax train --population`: the run goes on exactly, its schedule can be followed, hosts too, and mistakes are one sentence."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import rulax
from rulax.commands.cli import main
from rulax.errors import UserError
from rulax.learning import train
from rulax.methods.population import PopulationTrainer
from rulax.records import folder as folders

from ..learning.environments import Flicker
from ..learning.test_train import same

SMALL = {"rule": "actor_critic", "streams": 2, "unroll": 5, "hidden": [4], "quiet": True, "animation": False}
SIZE = 10  # environment steps of one iteration
ENV = "catch:rows=3,columns=3"
POPULATION = {"population": 4, "tune": ["learning_rate", "entropy_cost", "discount"], "exploit_every": 4 * SIZE}


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(train.CompiledTrainer, "compile_options", train.COMPILE_FAST)


def tensors(folder):
    return load_file(folder / folders.CHECKPOINT)


def equal(one, other):
    one, other = tensors(one), tensors(other)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_a_population_leaves_its_turns_its_schedule_and_a_page_and_goes_on_exactly(tmp_path):
    whole = rulax.train(ENV, steps=20 * SIZE, out=tmp_path / "whole", **SMALL, **POPULATION)
    rulax.train(ENV, steps=8 * SIZE, out=tmp_path / "parts", **SMALL, **POPULATION)  # ends where a turn is due
    parts = rulax.train(resume=tmp_path / "parts", steps=20 * SIZE, quiet=True)
    equal(tmp_path / "whole", tmp_path / "parts")
    assert parts.turns == whole.turns
    for name in (folders.TURNS, folders.SCHEDULE):
        assert (tmp_path / "whole" / name).read_text() == (tmp_path / "parts" / name).read_text()
    assert [turn["step"] for turn in whole.turns] == [0, 40, 80, 120, 160]
    loaded = rulax.load(tmp_path / "whole")
    assert (loaded.turns, loaded.schedule, loaded.best) == (whole.turns, whole.schedule, whole.best)
    assert whole.best == int(np.argmax(whole.final_returns))
    assert whole.agent is whole.agents[whole.best]
    # The first member begins with what the rule recommends.
    begun = whole.turns[0]["hyperparameters"]
    assert [begun[name][0] for name in ("discount", "entropy_cost", "learning_rate")] == pytest.approx([0.99, 0.01, 3e-3])
    assert len(set(begun["learning_rate"])) == 4
    page = (tmp_path / "whole" / folders.REPORT).read_text()
    assert "What the population found" in page
    assert "4 members" in page
    assert (tmp_path / "whole" / folders.POPULATION).stat().st_size > 10_000
    assert whole.rows[-1]["learning_rate"] == pytest.approx(
        np.mean(tensors(tmp_path / "whole")["state.hyperparameters['learning_rate']"])
    )
    # What was found is what its file says, and others can be trained by it.
    found = json.loads((tmp_path / "whole" / folders.SCHEDULE).read_text())
    assert found["points"] == whole.schedule
    replay = rulax.train(ENV, steps=20 * SIZE, seeds=2, schedule=tmp_path / "whole", **SMALL)  # the folder stands for its file
    for row in replay.rows:
        point = [each for each in whole.schedule if each["step"] < row["step"]][-1]
        assert {name: row[name] for name in POPULATION["tune"]} == pytest.approx({name: point[name] for name in POPULATION["tune"]})


@pytest.mark.slow
def test_a_schedule_of_one_point_is_plain_training_with_that_learning_rate(tmp_path):
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps({"kind": "schedule", "points": [{"step": 0, "learning_rate": 0.02}]}))
    scheduled = rulax.train(ENV, steps=12 * SIZE, schedule=path, out=tmp_path / "scheduled", **SMALL)
    rulax.train(ENV, steps=12 * SIZE, schedule="constant", learning_rate=0.02, out=tmp_path / "plain", **SMALL)
    one, other = (tensors(tmp_path / name) for name in ("scheduled", "plain"))
    assert one.keys() - other.keys() == {"state.life.learner_state.hyperparameters['learning_rate']"}
    for name in other:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    # It goes on from its folder, and not with another schedule under the same name.
    assert scheduled.config.schedule_file == str(path)
    rulax.train(resume=tmp_path / "scheduled", steps=14 * SIZE, quiet=True)
    path.write_text(path.read_text().replace("0.02", "0.03"))
    with pytest.raises(UserError, match="other settings"):
        rulax.train(resume=tmp_path / "scheduled", steps=16 * SIZE, quiet=True)


@pytest.fixture
def begun(monkeypatch):
    """The state that each stretch of training begins with, in order."""
    states, advance = [], PopulationTrainer.advance

    def noted(self, state, *rest):
        states.append(jax.tree.map(jnp.copy, state))
        return advance(self, state, *rest)

    monkeypatch.setattr(PopulationTrainer, "advance", noted)
    return states


def lasting(state):
    """All of a population's state but what its streams are in the middle of, which begins anew where they step on the host."""
    training = state.training
    return state._replace(training=(training.life.learner_state, training.life.key, training.iteration))


def on_host(env, folder, begun, **settings):
    """Trains eight iterations of 2 x `unroll` steps, turns after every second, and goes on; the first run."""
    size = settings["streams"] * settings["unroll"]
    tune = {"learning_rate": (1e-3, 1e-1, "log"), "discount": (0.8, 0.99)}
    run = rulax.train(env, population=3, tune=tune, steps=8 * size, exploit_every=2 * size, out=folder, **settings)
    assert [turn["step"] for turn in run.turns] == [0, 2 * size, 4 * size, 6 * size]
    copied = [(member, parent) for turn in run.turns for member, parent in enumerate(turn["parents"]) if member != parent]
    assert copied
    prepared, state = run.source
    saved = jax.tree.map(jnp.copy, lasting(state))
    begun.clear()
    again = rulax.train(resume=folder, steps=10 * size, quiet=True, **({} if isinstance(env, str) else {"env": env}))
    assert again.turns[:4] == run.turns
    assert [turn["step"] for turn in again.turns[4:]] == [8 * size]
    # Weights, optimisers, hyper-parameters, scores and random keys: a turn was due, so nothing has touched them since.
    assert jax.tree.structure(lasting(begun[0])) == jax.tree.structure(saved)
    same(lasting(begun[0]), saved)
    assert len(set(np.asarray(saved.hyperparameters["learning_rate"]).tolist())) > 1
    return prepared


@pytest.mark.parametrize("overlap", [pytest.param("off", marks=pytest.mark.slow), "on"])
def test_host_environments_have_populations_too(tmp_path, begun, overlap):
    prepared = on_host(Flicker(), tmp_path / "run", begun, **SMALL, overlap=overlap)
    assert prepared.trainer.inner._learning is None, "nothing is on its way at the end"


def test_gymnasiums_cartpole_has_populations_too(tmp_path, begun):
    pytest.importorskip("gymnasium")
    on_host("CartPole-v1", tmp_path / "run", begun, **SMALL | {"unroll": 40})  # longer than an episode


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"population": 1, "tune": ["learning_rate"]}, "a population of 1 has nobody to copy"),
        ({"population": 4}, "which hyper-parameters does the population tune"),
        ({"population": 4, "tune": ["clip"]}, "rule 'actor_critic' has no hyper-parameter 'clip' .* did you mean 'clip_"),
        ({"population": 4, "tune": ["learning_rate=1e-2:1e-4"]}, "range .* is empty; its first number must be the smaller one"),
        ({"population": 4, "tune": ["learning_rate=0.1,0.2"]}, "has a range, learning_rate=LOW:HIGH, and not a list"),
        ({"population": 4, "tune": ["discount=0.9:1.5"]}, "discount must lie between 0 and 1, not 1.5"),
        ({"population": 4, "tune": ["weight_decay"]}, "weight_decay is 0, around which there is no range"),
        ({"population": 4, "tune": ["lr", "learning_rate"]}, "learning_rate is given twice"),
        ({"population": 4, "tune": ["lr"], "seeds": 3}, "a population is one run of --population agents"),
        ({"population": 4, "tune": ["lr"], "task": "random"}, "need the same task"),
        ({"population": 4, "tune": ["lr"], "rule": "mfec"}, "rule 'mfec' has no hyper-parameter that could change during a run"),
        ({"population": -3, "tune": ["lr"]}, "population must not be negative, not -3"),
        (
            {"population": 4, "tune": ["lr"], "exploit_every": 100},
            "its first turn after 100 steps, and the whole run has 100: lower",
        ),
        ({"exploit": "tournament"}, "exploit is for a population"),
        ({"schedule": "gone.json"}, "^gone.json cannot be read: No such file or directory; a population writes one"),
        ({"schedule": "."}, "^schedule.json cannot be read: No such file or directory"),
        ({"schedule": "soon"}, r"expects one of constant, linear, cosine, not 'soon' \(or a file that ends in .json\)"),
    ],
)
def test_mistakes_are_one_sentence_before_anything_is_written(tmp_path, settings, sentence):
    with pytest.raises(UserError, match=sentence):
        rulax.train(ENV, steps=100, out=tmp_path / "run", **SMALL | settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"kind": "train"}, "holds no schedule"),
        ({"kind": "schedule", "points": [{"step": 5, "learning_rate": 0.1}]}, "is damaged"),
        ({"kind": "schedule", "points": [{"step": 0, "learning_rate": -0.1}]}, "learning_rate must be greater than 0"),
        ({"kind": "schedule", "points": [{"step": 0, "clip": 0.1}]}, "is a schedule of clip, and rule 'actor_critic' has no"),
    ],
)
def test_a_schedule_that_cannot_be_followed_is_refused(tmp_path, content, sentence):
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=sentence):
        rulax.train(ENV, steps=100, schedule=path, **SMALL)


def test_a_value_beside_a_schedule_of_the_same_is_refused(tmp_path):
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps({"kind": "schedule", "points": [{"step": 0, "learning_rate": 0.1, "discount": 0.9}]}))
    for given in ({"learning_rate": 0.2}, {"rule_options": {"discount": 0.5}}):
        with pytest.raises(
            UserError, match=f"is a schedule of {next(iter(given)) if 'rule' not in str(given) else 'discount'}, so"
        ):
            rulax.train(ENV, steps=100, schedule=path, **SMALL | given)


def test_the_commands_that_do_not_change_settings_say_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "catch", "--rules", "ppo", "--schedule", "some.json"]) == 2
    assert main(["tune", "catch", "--population", "4", "--tune", "learning_rate=1e-3:1e-2"]) == 2
    assert main(["train", "catch", "--population", "4", "--tune", "learning_rate", "--trials", "3"]) == 2
    assert main(["train", "catch", "--tune", "learning_rate"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert ["only rulax train follows" in said[0], "a search for settings trains with fixed ones" in said[1]] == [True, True]
    assert "--trials is for a search for settings" in said[2]
    assert said[3].endswith("not 'learning_rate'; or give --population K, which needs no range")

"""`--randomise` on the command line and in Python: recorded, resumed, evaluated elsewhere, refused in one sentence."""

import pytest

import rulax
from rulax.commands.compare.settings import build_compare
from rulax.envs.tasks import EachEpisode
from rulax.errors import UserError
from rulax.files import read_json
from tests.commands.bad_lines import refused_in_one_sentence

SMALL = {"streams": 4, "unroll": 8, "minibatches": 1, "hidden": (8,), "quiet": True}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    ranges, other = {"force": (5, 15), "cartpole.length": (0.25, 0.75)}, {"force": [(1, 5), (15, 20)]}
    settings = {"eval_every": 32, "eval_episodes": 2, "eval_randomise": other, "animation": False}
    return rulax.train("cartpole", steps=64, out=folder, randomise=ranges, env_options={"limit": 20}, **settings, **SMALL)


def test_ranges_are_an_option_of_the_environment_and_are_recorded(run):
    settings = read_json(run.folder / "config.json")["settings"]
    assert settings["env_options"] == {"limit": 20, "randomise": "force=5:15,length=0.25:0.75"}
    assert settings["eval_randomise"] == {"force": "1:5|15:20"}
    assert "force=5:15,length=0.25:0.75" in (run.folder / "report.html").read_text()
    assert isinstance(rulax.load(run.folder).agent.environment, EachEpisode)


def test_a_resumed_run_is_the_uninterrupted_one(run):
    longer = rulax.train(resume=run.folder, steps=128, randomise="force=5:15,length=.25:.75", quiet=True)
    whole = rulax.train(
        "cartpole", steps=128, randomise="force=5:15,length=.25:.75", env_options={"limit": 20}, log_every=32, **SMALL
    )
    assert longer.rows[-1]["episode_return"] == whole.rows[-1]["episode_return"]
    with pytest.raises(UserError, match="env_options is"):
        rulax.train(resume=run.folder, steps=256, randomise={"force": (5, 16)}, quiet=True)


def test_held_out_ranges_replace_those_of_training(run):
    evaluation = rulax.evaluate(run, episodes=4, greedy=True, randomise={"force": [(1, 5), (15, 20)]})
    assert "drawn anew for every episode: force=1:5|15:20" in str(evaluation)
    assert "length" not in " ".join(evaluation.notes()[-1:])


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ({"forse": (1, 2)}, "did you mean 'force'"),
        ({"force": (2, 1)}, "begins with its lowest number"),
        ("pendulum.mass=1:2", "names the environment 'pendulum'"),
    ],
)
def test_held_out_ranges_are_checked_like_those_of_training(run, ranges, words):
    with pytest.raises(UserError, match=words) as caught:
        rulax.evaluate(run, episodes=1, randomise=ranges)
    assert "\n" not in str(caught.value)


def test_a_comparison_gives_each_environment_its_own_ranges():
    config = build_compare(
        {"envs": ["cartpole", "pendulum:limit=50"], "rules": ["ppo"], "randomise": "cartpole.force=5:15,length=1,pendulum.mass=1:2"}
    )
    assert config.envs == ("cartpole:randomise=(force=5:15,length=1)", "pendulum:limit=50,randomise=(mass=1:2)")
    with pytest.raises(UserError, match="names 'pendulun', which is not compared; did you mean 'pendulum'"):
        build_compare({"envs": ["pendulum"], "rules": ["ppo"], "randomise": {"pendulun.mass": "1:2"}})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train cartpole --randomise forse=5:15", "did you mean 'force'?"),
        ("train cartpole --randomise force=15:5", "begins with its lowest number"),
        ("train cartpole --randomise pendulum.mass=1:2", "names the environment 'pendulum'"),
        ("train cartpole --randomise", "--randomise expected at least one argument"),
        ("train cartpole --eval-randomise force=1:2", "give --eval-every STEPS too"),
        ("train cartpole --eval-every 1000 --eval-randomise forse=1:2", "did you mean 'force'?"),
        ("train cartpole --eval-every 1000 --eval-randomise force=2:1", "begins with its lowest number"),
        ("train cartpole --randomise force=5:x", "expects a number, not 'x'"),
        ("train cartpole --randomise =5:15", "expects KEY=VALUE, not '=5:15'"),
        ("train catch --randomise force=5:15", "'catch' has"),
        ("compare cartpole --rules ppo --randomise forse=5:15", "did you mean 'force'?"),
    ],
)
def test_mistakes_are_one_sentence(line, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    refused_in_one_sentence(line, words, tmp_path, capsys)

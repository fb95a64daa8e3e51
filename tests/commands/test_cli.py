"""The command line as a newcomer meets it: quick help, one sentence per mistake, exit code 2, nothing on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rulax.commands.cli import COMMANDS, load_function, main
from rulax.commands.preset_files import preset_names
from tests.commands.bad_lines import refused_in_one_sentence

HEAVY = ("jax", "numpy", "matplotlib", "equinox", "optax", "tensorboardX", "rich", "gymnasium", "gymnax")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["train", "--help"], ["bench", "train", "-h"], ["--version"], ["rules"], ["envs"]]
)
def test_nothing_heavy_is_imported(arguments: list[str]) -> None:
    code = (
        f"import sys; from rulax.commands.cli import main; main({arguments!r}); print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_python_m_rulax() -> None:
    result = subprocess.run([sys.executable, "-m", "rulax", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("rulax ")


def test_help_names_every_command(capsys) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert command.usage in text
        assert main([*name.split(), "--help"]) == 0
        assert f"usage: rulax {name}" in capsys.readouterr().out
        assert callable(load_function(command.function))
    assert main(["bench", "--help"]) == 0  # of both its subcommands
    text = capsys.readouterr().out
    assert "usage: rulax bench train" in text
    assert "usage: rulax bench discover" in text


BAD_LINES = [
    ("trian", "did you mean `rulax train`?"),
    ("qqqq", "`rulax --help` lists them"),
    ("bench", "for example: rulax bench train"),
    ("bench trian", "for example: rulax bench train"),
    ("--hlep", "did you mean --help?"),
    ("train --streems 3", "unknown flag --streems; did you mean --streams?"),
    ("train catch --streems=3", "did you mean --streams?"),
    ("train catch --lr 3", "did you mean --learning-rate?"),
    ("train catch extra", "unexpected argument 'extra'"),
    ("train catch -x", "unexpected flag '-x'"),
    ("train catch --steps", "--steps expected one argument"),
    ("train catch --steps ten", "--steps expects a whole number"),
    ("train catch --steps 0", "steps must be at least 1"),
    ("train catch --steps 5", "less than one iteration"),
    ("train catch --steps 1e15", "more than can be counted"),
    ("train catch --seeds -1", "seeds must be at least 1"),
    ("train catch --streams 0", "streams must be at least 1"),
    ("train catch --hidden 64 -3", "hidden must be at least 1"),
    ("train catch --replay 2", "replay must lie between 0 and 1"),
    ("train catch --minibatches 7", "must be divisible by minibatches"),
    ("train catch --schedule never", "--schedule expects one of constant, linear, cosine"),
    ("train catch --env-options rows", "--env-options expects KEY=VALUE"),
    ("train catch --env-options rowz=3", "rowz"),
    ("train catch --env-options rows=0", "rows"),
    ("train catch --rule-options discuont=0.5", "discount"),
    ("train catch --rule-options discount=abc", "discount expects a number, not 'abc'"),
    ("train catch --rule-options discount=5", "discount must lie between 0 and 1, not 5"),
    ("train catch --rule-options discount=true", "discount expects a number, not True"),
    ("train catch --rule ppo_targets --rule-options bins=61", "bins expects 2 values (number, largest), for example 61,60, not 61"),
    ("train catch --rule ppo_targets --rule-options bins=1,60", "bins (number) must be at least 2, not 1"),
    ("train catch --env-options rows=5.5", "'catch': rows expects a whole number such as 50000, 1e6 or 200k, not 5.5"),
    ("train catch --env-options rows=abc", "'catch': rows expects a whole number such as 50000, 1e6 or 200k, not 'abc'"),
    ("train cartpole --env-options limit=-1", "limit must not be negative"),
    ("train catch --hidden ,", "hidden needs at least one number"),
    ("train catch --channels 0", "channels must be at least 1"),
    ("train catch --burn-in 99", "burn_in (99) must leave something"),
    ("train catch --burn-in 5", "this one has none: --core lstm"),
    ("train --preset paper-atari", "names none; for example: rulax train atari/Pong --preset paper-atari"),
    ("train --preset paper-dmlab", "for example: rulax train dm_env/my_lab:Lab --preset paper-dmlab"),
    ("train --preset paper-procgen", "for example: rulax train envpool/CoinrunHard-v0 --preset paper-procgen"),
    ("train --preset paper-procgen-mini", "for example: rulax train envpool/CoinrunEasy-v0 --preset paper-procgen-mini"),
    ("train", "which environment? for example: rulax train catch (`rulax envs` lists them all)"),
    ("train CartPole-v1 --torso impala", "torso 'impala' needs images"),
    ("train ALE/Pong-v5", "did you mean 'atari/Pong'?"),
    ("train PongNoFrameskip-v4", "did you mean 'atari/Pong'?"),
    ("train Pong", "did you mean 'atari/Pong'"),
    ("train CartPole-v1 --task random", "its library has no distribution of tasks"),
    ("train gymnax/CartPole-v1 --task random", "its library has no distribution of tasks"),
    ("train bandit/barcode --task random", "it draws its tasks itself, again and again"),
    ("train catch --core episodic_lstm", "--env-options contexts=10 shows one in any compiled environment, and a dictionary space"),
    ("train CartPole-v1 --core episodic_lstm", "needs observations with a part 'context', a vector of numbers"),
    ("train bandit/barcode --core episodic_lstm --normalise-observations", "normalise_observations lets contexts drift"),
    ("train bandit/barcode --core episodic_lstm --memory-level life", "with memory_level life is nowhere"),
    ("train catch --rule actor_critic --warmup 5", "replay is 0"),
    ("train catch --rule actor_critic --replay 0.5 --warmup 900 --steps 5k", "nothing would be learned"),
    ("rules get", "which rule?"),
    ("rules get ppo", "needs no installing"),
    ("rules get dico103", "did you mean 'disco103'"),
    ("rules get disco103 --from nowhere.npz", "nowhere.npz cannot be read"),
    ("train catch --actions 3", "unknown flag --actions"),
    ("bench train --actions 2", "actions must be at least the environment's own 3, not 2"),
    ("bench train --actions -1", "actions must not be negative"),
    ("train catch --preset dmo", "did you mean 'demo'?"),
    ("train ctach", "unknown environment 'ctach'; did you mean 'catch'"),
    ("train catch --rule pp0", "unknown rule 'pp0'"),
    ("train Blackjack-v1", "flatten=True"),
    ("train catch --platform gpu", "platform gpu is not available"),
    ("train --resume nowhere", "nowhere holds no run"),
    ("train catch --resume nowhere", "nowhere holds no run"),
    ("bench train --seconds 0", "seconds must be greater than 0"),
    ("bench train --rule nope", "unknown rule 'nope'"),
    ("rules zzzz", "no rule contains 'zzzz'"),
    ("envs zzzz", "no environment contains 'zzzz'"),
]


@pytest.mark.parametrize(("line", "words"), BAD_LINES, ids=[line for line, _ in BAD_LINES])
def test_one_sentence_and_nothing_on_disk(line: str, words: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    if "gpu" in line:
        monkeypatch.setattr("jax.devices", no_devices)
    refused_in_one_sentence(line, words, tmp_path, capsys)


def no_devices() -> list:
    raise RuntimeError("no such platform")


@pytest.fixture(autouse=True)
def _keep_jax_settings():
    import jax

    platforms = jax.config.jax_platforms
    yield
    jax.config.update("jax_platforms", platforms)


def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path, capsys) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert main(["train", "catch", "--out", str(tmp_path)]) == 2
    assert "choose another --out, or go on with --resume" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert (tmp_path / "config.json").read_text() == "{}"


def test_lists(capsys) -> None:
    assert main(["rules", "PPO"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("ppo ")
    assert "actor_critic" not in text
    assert main(["envs", "catch"]) == 0
    assert "rulax train NAME" in capsys.readouterr().out
    assert main(["envs", "gymnax"]) == 0
    assert "MountainCar-v0" in capsys.readouterr().out
    assert main(["envs", "dm_env"]) == 0  # which has no list


OWN = """
import gymnasium

class Own(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        raise OSError("no power")

gymnasium.register("Own-v0", Own)
"""


def test_a_module_in_the_current_folder_and_an_environment_that_cannot_be_reset(tmp_path: Path, monkeypatch, capsys) -> None:
    """The installed script has the folder of the script on its path, not that of the user."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    (tmp_path / "own_environments.py").write_text(OWN)
    assert main(["train", "own_environments:Own-v0", "--steps", "5k"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "'own_environments:Own-v0' cannot be started: an environment had to be restarted too often" in error
    assert error.endswith("because of OSError: no power (own_environments.py, line 9)")
    assert not (tmp_path / "runs").exists()


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m rulax envs | head -1"
    result = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert result.stderr == ""


def test_help_says_how_long_each_suite_is(capsys) -> None:
    assert main(["discover", "--help"]) == 0
    text = capsys.readouterr().out
    assert "  paper           25,862 meta-steps. The paper's protocol" in text
    assert text.count(" meta-steps. ") == len(preset_names(suites=True))


def test_alarms_of_the_compiler_are_silenced_unless_they_are_asked_for(monkeypatch, capsys) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    assert main(["--version"]) == 0
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0"
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    assert main(["--version"]) == 0
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "3"  # at 2 XLA still prints slow_operation_alarm

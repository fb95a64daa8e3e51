"""`rulax evaluate` and `rulax play`: tables, films, the terminal, and mistakes, each in one sentence."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import rulax
from rulax.commands.cli import main
from rulax.commands.evaluate.show import show
from rulax.commands.play.show import HIDE, SHOW, as_blocks, watch
from rulax.errors import UserError
from rulax.evaluation.episodes import Episodes
from rulax.evaluation.playing import Moment
from rulax.evaluation.scores import Evaluation, Score
from rulax.records import folder as folders
from rulax.report.film import Film
from rulax.rules.registry import EMBEDDED

TINY = {"rule": "ppo", "streams": 4, "unroll": 8, "minibatches": 1, "epochs": 1, "hidden": 8, "quiet": True}


@pytest.fixture(scope="module")
def there(tmp_path_factory) -> Path:
    """A folder with a run of two agents and one of them as a file."""
    folder = tmp_path_factory.mktemp("there")
    run = rulax.train("catch", steps=64, seeds=2, env_options={"rows": 4}, out=folder / "runs" / "one", **TINY)
    run.agent.save(folder / "agent.safetensors")
    return folder


@pytest.fixture(autouse=True)
def here(there: Path, monkeypatch) -> None:
    monkeypatch.chdir(there)


def test_the_page_shows_an_episode(there: Path) -> None:
    gif = (there / "runs" / "one" / folders.FILM).read_bytes()
    assert len(gif) < 300_000
    image = Image.open(io.BytesIO(gif))
    assert image.format == "GIF"
    assert image.n_frames > 4  # three episodes of four pictures, some of which may be alike
    page = (there / "runs" / "one" / "report.html").read_text()
    assert 'src="data:image/gif;base64,' in page
    assert "What it learned" in page


def test_evaluate_a_run_and_a_file(capsys) -> None:
    assert main(["evaluate", "runs/one", "--episodes", "5"]) == 0
    output = capsys.readouterr().out
    assert re.findall(r"^(\w+) +(greedy|sampled)", output, re.MULTILINE) == [
        ("0", "greedy"), ("1", "greedy"), ("mean", "greedy"), ("0", "sampled"), ("1", "sampled"), ("mean", "sampled"),
    ]  # fmt: skip
    assert "return in evaluation" in output
    assert main(["evaluate", "agent.safetensors", "--episodes", "5", "--greedy", "--json"]) == 0
    (score,) = json.loads(capsys.readouterr().out)["scores"]
    assert (score["actions"], score["lengths"]) == ("greedy", [3] * 5)
    assert score["mean"] == np.mean(score["returns"])
    # The file holds the run's first agent, and both meet the same episodes.
    by_run = rulax.load("runs/one").evaluate(episodes=5, greedy=True)
    assert by_run.scores[0].returns.tolist() == score["returns"]
    assert rulax.evaluate("agent.safetensors", episodes=5, greedy=True).mean == by_run.scores[0].mean
    other = rulax.evaluate("agent.safetensors", episodes=50, seed=1).scores[0].returns
    assert (other != rulax.evaluate("agent.safetensors", episodes=50).scores[0].returns).any()


def test_intervals_are_not_broken_at_80_columns(monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    returns = np.array([-0.1236, -0.1442, -0.0123, -0.5551])
    show(Evaluation("one", [Score(0, "sampled", Episodes(returns, np.full(4, 49)))]), as_json=False)
    assert re.search(r"^0 .*\[-\d\S+, \S+\] .*49$", capsys.readouterr().out, re.MULTILINE)


def test_another_environment_with_the_same_observations(capsys) -> None:
    assert main(["evaluate", "runs/one", "--episodes", "2", "--greedy", "--env-options", "rows=6"]) == 2
    assert "observations float32[4, 5, 1]" in capsys.readouterr().err
    assert main(["evaluate", "agent.safetensors", "--episodes", "2", "--env", "catch", "--env-options", "rows=4"]) == 0


def test_films(there: Path, capsys) -> None:
    assert main(["play", "runs/one", "--agent", "1", "--episodes", "2", "--gif", "films/one.gif"]) == 0
    assert capsys.readouterr().out == "films/one.gif\n"
    assert Image.open(there / "films" / "one.gif").n_frames >= 4
    film = rulax.play("agent.safetensors", episodes=2)
    assert film.lengths == [3, 3]
    assert film.whole
    assert [moment.step for moment in film.moments] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert film._repr_html_().startswith('<img src="data:image/gif')
    assert "2 episodes shown" in film.said()


def test_a_large_film_is_made_to_fit() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (12, 160, 160, 3), np.uint8)
    film = Film(Moment(picture, 0, step, 0.0, step == 11) for step, picture in enumerate(noise))
    assert len(film.gif()) > 100_000 > len(film.gif(100_000))
    assert len(Film(iter(film.moments), most=7).moments) == 7


def test_mp4(there: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    rulax.play("agent.safetensors", there / "one.mp4")
    assert b"ftyp" in (there / "one.mp4").read_bytes()[:16]


def test_a_pipe_gets_a_line_per_episode(capsys) -> None:
    assert main(["play", "agent.safetensors", "--episodes", "2"]) == 0
    output = capsys.readouterr()
    assert [line.split(":")[0] for line in output.out.splitlines()] == ["episode 1", "episode 2"]
    assert "\x1b" not in output.out
    assert "--gif" in output.err


def test_a_terminal_is_left_as_it_was(monkeypatch) -> None:
    def moments():
        yield Moment(np.zeros((40, 60, 3), np.uint8), 0, 0, 0.0, False)
        raise KeyboardInterrupt

    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with pytest.raises(KeyboardInterrupt):
        watch(moments(), fps=1000)
    assert out.getvalue().startswith(HIDE)
    assert out.getvalue().endswith(SHOW)


def test_blocks_are_two_pixels_each() -> None:
    picture = np.zeros((4, 3, 3), np.uint8)
    picture[1, 2] = (255, 0, 0)
    lines = as_blocks(picture, 10, 10)
    assert [line.count("▀") for line in lines] == [3, 3]
    assert "48;2;255;0;0" in lines[0]  # below the middle of the first line
    assert "255" not in lines[1]
    assert all(line.count("▀") <= 20 for line in as_blocks(np.zeros((300, 400, 3), np.uint8), 20, 5))


def test_ctrl_c_while_playing(there: Path) -> None:
    line = [sys.executable, "-m", "rulax", "play", "agent.safetensors", "--episodes", "100000"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith("episode 1")
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert said.endswith("stopped\n")
    assert "Traceback" not in said


MISTAKES = {
    (): "which agent?",
    ("ppo",): "'ppo' is a rule",
    ("catch",): "'catch' is an environment",
    ("runs/oen",): "did you mean 'runs/one'?",
    ("runs/one/checkpoint.safetensors",): "give the run's folder instead: runs/one",
    (str(EMBEDDED["rulax5"]),): "holds a rule, not an agent",
    ("disco.npz",): "is a rule file",
    ("found",): "holds a discovery, which has no agents",
    ("nothing",): "holds no run",
    ("runs/one/config.json",): "not a whole .safetensors file",
    ("runs/one", "--episodes", "0"): "episodes must be at least 1",
    ("runs/one", "--env", "cach"): "did you mean 'catch'",
}


@pytest.mark.parametrize("command", ["play", "evaluate"])
@pytest.mark.parametrize("line", MISTAKES, ids=" ".join)
def test_mistakes(there: Path, command: str, line: tuple[str, ...], capsys) -> None:
    (there / "disco.npz").touch()
    (there / "nothing").mkdir(exist_ok=True)
    (there / "found").mkdir(exist_ok=True)
    (there / "found" / "config.json").write_text('{"kind": "discover", "settings": {}}')
    assert main([command, *line]) == 2
    output = capsys.readouterr()
    assert MISTAKES[line] in output.err
    assert output.err.count("\n") == 1
    assert not output.out


def test_mistakes_with_films(monkeypatch, capsys) -> None:
    assert main(["play", "runs/one", "--agent", "2"]) == 2
    assert "no agent 2; there is 0 to 1" in capsys.readouterr().err
    assert main(["play", "runs/one", "--gif", "x.png"]) == 2
    assert "ends in .gif" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["play", "runs/one", "--mp4", "x.mp4"]) == 2
    assert "rulax[video]" in capsys.readouterr().err
    with pytest.raises(UserError, match="not 3"):
        rulax.evaluate(3)


def test_gymnasium_draws_itself(tmp_path: Path) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    pytest.importorskip("pygame")
    run = rulax.train("gymnasium/CartPole-v1", steps=32, out=tmp_path / "run", **TINY)
    film = run.agent.film(most=5)
    env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    env.reset()
    assert film.moments[0].picture.shape == env.render().shape
    evaluation = run.evaluate(episodes=3)
    np.testing.assert_array_equal(evaluation.scores[0].returns, evaluation.scores[0].episodes.lengths)  # 1 for every step
    assert (tmp_path / "run" / folders.FILM).stat().st_size < 300_000

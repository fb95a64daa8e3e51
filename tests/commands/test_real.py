"""The command line with the real trainer, in real processes: Ctrl-C, resuming, a reward that is not a number, a benchmark."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import rulax
from rulax.commands.bench.references import reference_cpu_seconds, reference_flops
from rulax.commands.bench.run import WARM_UP_CHUNKS, against_reference, warm_up
from rulax.commands.bench.settings import build_bench
from rulax.commands.bench.setup import as_recorded
from rulax.commands.build import make_recipe
from rulax.commands.cli import main
from rulax.envs.catch import Catch
from rulax.envs.wrappers import MoreActions
from rulax.records.rows import read_rows

SMALL = ["--streams", "4", "--unroll", "4", "--hidden", "8"]


def start(arguments: list[str], folder: Path) -> subprocess.Popen:
    environment = {**os.environ, "RULAX_CACHE": str(folder / "cache"), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "rulax", *arguments]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_a_line(path: Path, process: subprocess.Popen) -> None:
    while process.poll() is None and not (path.exists() and path.read_text()):
        time.sleep(0.05)


def test_ctrl_c_and_resume_give_the_same_run(tmp_path: Path) -> None:
    line = ["train", "catch", "--rule", "actor_critic", "--steps", "120k", "--seeds", "2", "--log-every", "1000", *SMALL]
    process = start([*line, "--out", "parts"], tmp_path)
    wait_for_a_line(tmp_path / "parts" / "metrics.jsonl", process)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 130, error
    assert "To go on:\n  rulax train --resume parts" in error
    assert "Traceback" not in error
    stopped_at = read_rows(tmp_path / "parts")[-1]["step"]
    assert stopped_at < 120_000
    for arguments in (["train", "--resume", "parts", "--quiet"], [*line, "--out", "whole", "--quiet"]):
        process = start(arguments, tmp_path)
        output, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
        assert output.strip() in ("parts", "whole")
    one, other = (load_file(tmp_path / name / "checkpoint.safetensors") for name in ("parts", "whole"))
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    curves = [[(row["step"], row["return_per_seed"]) for row in read_rows(tmp_path / name)] for name in ("parts", "whole")]
    assert curves[0] == curves[1]
    assert len(list((tmp_path / "cache" / "compiled").iterdir())) > 0


@dataclasses.dataclass(frozen=True)
class Broken(Catch):
    """Catch whose reward is sometimes not a number."""

    def step(self, task, state, action, key):
        state, transition = super().step(task, state, action, key)
        bad = jax.random.uniform(key) < 1e-3
        return state, transition._replace(reward=jnp.where(bad, jnp.nan, transition.reward))


def test_a_reward_that_is_not_a_number(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("RULAX_CACHE", str(tmp_path / "cache"))
    with pytest.raises(rulax.TrainingStopped, match="a reward was not a finite number in environment 'Broken' between steps"):
        rulax.train(Broken(), rule="actor_critic", steps=400_000, out=tmp_path / "run", quiet=True, streams=4, unroll=4, hidden=8)
    tensors = load_file(tmp_path / "run" / "checkpoint.safetensors")
    for name, tensor in tensors.items():
        assert np.isfinite(tensor).all() or tensor.dtype.kind != "f", name


def test_the_agent_of_a_run_acts(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("RULAX_CACHE", str(tmp_path / "cache"))
    run = rulax.train(
        "catch",
        rule="actor_critic",
        steps=64,
        out=tmp_path / "run",
        quiet=True,
        streams=4,
        unroll=4,
        hidden=8,
        core="gru",
        core_size=4,
    )
    environment = rulax.make("catch")
    _, observation = environment.reset(environment.default_task(), jax.random.key(0))
    agent, again = run.agent, rulax.load(tmp_path / "run").agent
    assert [agent.act(observation) for _ in range(3)] == [again.act(observation) for _ in range(3)]
    agent.reset()
    assert agent.act(np.stack([observation] * 2)).shape == (2,)
    assert agent.act(np.stack([observation] * 2), key=jax.random.key(1), greedy=False).shape == (2,)
    with pytest.raises(ValueError, match="needs a key"):
        agent.act(observation, greedy=False)
    with pytest.raises(ValueError, match="an observation has shape"):
        agent.act(np.zeros(3))


def test_bench_prints_one_json_object(capsys) -> None:
    assert main(["bench", "train", "--rule", "actor_critic", "--seconds", "0.01", "--json", *SMALL]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["rule"], result["env"]) == ("actor_critic", "catch")
    for name in (
        "updates_per_s",
        "env_steps_per_s",
        "env_steps_per_cpu_s",
        "updates_per_cpu_s",
        "compile_s",
        "peak_rss_mb",
        "flops",
    ):
        assert result[name] > 0, name
    assert result["env_steps_per_s"] == pytest.approx(16 * result["updates_per_s"])


def test_an_agent_reads_gymnasiums_own_observations(tmp_path: Path, monkeypatch) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    monkeypatch.setenv("RULAX_CACHE", str(tmp_path / "cache"))
    settings = {"steps": 32, "quiet": True, "streams": 4, "unroll": 4, "hidden": 8, "core": "lstm", "core_size": 4}
    agent = rulax.train("FrozenLake-v1", rule="actor_critic", precision="bfloat16", **settings).agent
    environment = gymnasium.make("FrozenLake-v1")
    observation, _ = environment.reset(seed=0)
    action = agent.act(observation)
    environment.step(action)
    with pytest.raises(ValueError, match=r"remembers 1 stream.*call reset\(\)"):
        agent.act(np.arange(4))
    agent.reset()
    assert action == agent.act(np.eye(16, dtype=np.float32)[observation])
    agent.reset()
    assert agent.act(np.arange(4)).shape == (4,)
    with pytest.raises(ValueError, match="one of 16 indices"):
        agent.act(16)
    rulax.train("catch", rule="actor_critic", **settings)
    assert jax.config.jax_default_matmul_precision is None  # the precision of one run is not that of the next


def test_bench_can_offer_more_actions_than_the_environment_has(capsys) -> None:
    assert main(["bench", "train", "--rule", "actor_critic", "--seconds", "0.01", "--json", "--actions", "7", *SMALL]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["actions"] == 7
    assert 0 < result["utilisation"] < 1
    assert result["cpu_s_per_update"] > 0
    assert "times_reference_speed" not in result, "another setting than the one that was recorded"


def test_more_actions_do_what_the_last_one_does() -> None:
    catch, key = Catch(), jax.random.key(0)
    wide = MoreActions(catch, 18)
    state, observation = wide.reset(wide.default_task(), key)
    assert wide.num_actions == 18
    assert observation.shape == catch.observation.shape
    for action, same in ((0, 0), (1, 1), (2, 2), (3, 2), (17, 2)):
        got, expected = (w.step(w.default_task(), state, jnp.int32(a), key) for w, a in ((wide, action), (catch, same)))
        jax.tree.map(np.testing.assert_array_equal, got, expected)


def test_only_the_recorded_setting_is_compared_with_the_reference() -> None:
    catch = Catch(rows=8, columns=8)
    config = build_bench({"rule": "disco", "preset": "reference-catch"})
    recipe = make_recipe("disco", {}, config.overrides)
    assert as_recorded(config, recipe, catch)
    assert not as_recorded(config, make_recipe("disco", {}, {}), catch), "as recommended, it is smaller"
    assert not as_recorded(config, recipe, Catch(rows=5, columns=5))
    found = against_reference("update", reference_cpu_seconds(3), 2600.0, cpu=0.57, memory=1300.0)
    assert found == {"reference_cpu_s_per_update": 0.57, "times_reference_speed": 1.0, "share_of_reference_memory": 0.5}


def test_bench_measures_no_iteration_that_only_fills_the_replay_buffer() -> None:
    class Counting:
        """Chunks of three iterations; the first ten only fill the buffer."""

        warm_iterations, chunks = 10, 0

        def advance(self, state):
            self.chunks += 1
            return state + 3, {"loss": np.zeros((3, 1))}

    trainer: Any = Counting()
    state: Any = 3
    assert warm_up(trainer, state, made=3) == 12 + 3 * WARM_UP_CHUNKS
    trainer.warm_iterations = 0
    assert warm_up(trainer, state, made=3) == 3 + 3 * WARM_UP_CHUNKS


def test_the_reference_is_counted_as_recorded_and_grows_with_the_actions() -> None:
    assert reference_flops(3) == 24.5e9
    assert reference_cpu_seconds(3) == 0.57
    forward = 2 * 64 * 30 * 15 * 128 * (600 + 601)  # of the two large heads alone, for 15 more actions
    assert 4 * forward < reference_flops(18) - reference_flops(3) < 8 * forward

"""An agent as one file: it acts as before, its file says all, and whatever is wrong with a file is one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

import rulax
from rulax.agents.counting import with_count_bonus
from rulax.envs.catch import Catch
from rulax.envs.wrappers import TimeLimit
from rulax.errors import UserError
from rulax.files import safetensors_metadata
from rulax.records import checkpoint
from rulax.rules.registry import EMBEDDED, make_rule

TINY = {"steps": 64, "streams": 4, "unroll": 8, "minibatches": 1, "epochs": 1, "hidden": 8, "quiet": True}


@pytest.fixture(scope="module")
def run():
    return rulax.train("catch", rule="ppo", seeds=2, env_options={"rows": 5}, **TINY)


@pytest.fixture
def saved(run, tmp_path: Path) -> Path:
    return run.agents[1].save(tmp_path / "below" / "agent.safetensors")


def same(one, other) -> bool:
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(bool((left == right).all()) for left, right in leaves)


def damaged(path: Path, **changes) -> Path:
    """The file with some keys of its description changed; None removes one."""
    tensors, metadata = checkpoint.read_tensors(path.read_bytes()), safetensors_metadata(path.read_bytes())
    found = {name: value for name, value in (json.loads(metadata["agent"]) | changes).items() if value is not None}
    save_file(tensors, path, {"kind": metadata["kind"], "agent": json.dumps(found)})
    return path


def test_it_is_the_same_agent(run, saved) -> None:
    loaded = rulax.load_agent(saved)
    assert same(loaded.params, run.agents[1].params)
    assert not same(loaded.params, run.agents[0].params)
    observation = np.zeros((5, 5, 1), np.float32)
    assert loaded.act(observation) == run.agents[1].act(observation)
    assert loaded.environment == Catch(rows=5)
    about = loaded.description
    assert (about.env, about.rule, about.seed, about.steps) == ("catch", "ppo", 1, 64)
    assert about.training_return == run.final_returns[1]
    again = loaded.save(saved.with_name("again.safetensors"))
    assert rulax.load_agent(again).description == about
    assert same(rulax.load_agent(again).params, loaded.params)


def test_a_task_of_its_own_goes_with_it(tmp_path: Path) -> None:
    run = rulax.train("catch", rule="ppo", task="random", **TINY)
    loaded = rulax.load_agent(run.agent.save(tmp_path / "a.safetensors"))
    assert 0 < float(loaded.task.drift) == float(run.agent.task.drift)


def test_what_an_agent_carries_is_in_the_file(tmp_path: Path) -> None:
    def cell(observation):
        return jnp.zeros(observation.shape[:-3], jnp.int32)

    recipe = make_rule("ppo")._replace(make_agent=with_count_bonus(cell, 3, 0.1))
    run = rulax.train("catch", rule=recipe, **TINY)
    path = run.agent.save(tmp_path / "a.safetensors")
    with pytest.raises(UserError, match="code of your own"):
        rulax.load_agent(path)
    loaded = rulax.load_agent(path, rule=recipe)
    assert int(loaded.params.visits.value.sum()) == 64
    assert same(loaded.params, run.agent.params)


def test_an_environment_of_ones_own_is_handed_over_again(tmp_path: Path) -> None:
    own = TimeLimit(Catch(rows=4), 3)
    path = rulax.train(own, rule="ppo", **TINY).agent.save(tmp_path / "a.safetensors")
    with pytest.raises(UserError, match=r"name it again, with --env"):
        rulax.load_agent(path)
    assert rulax.load_agent(path, env=own).environment is own
    assert rulax.load_agent(path, env="catch", env_options={"rows": 4}).environment == Catch(rows=4)
    with pytest.raises(UserError, match=r"observations float32\[4, 5, 1\], and this environment has float32\[10, 5, 1\]"):
        rulax.load_agent(path, env=Catch())


def test_a_file_does_not_choose_code_to_import(saved) -> None:
    with pytest.raises(UserError, match="outside of Rulax"):
        rulax.load_agent(damaged(saved, env="subprocess:Popen"))


def test_nor_by_its_network(run, saved) -> None:
    network = run.agent.description.network | {"torso": "os:system"}
    with pytest.raises(UserError, match="torso of your own"):
        rulax.load_agent(damaged(saved, network=network))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": 9}, "format 9"),
        ({"format": None}, "no readable description"),
        ({"heads": None}, "no 'heads'"),
        ({"head": {}}, "unknown key 'head'; did you mean 'heads'"),
        ({"steps": "many"}, "steps = 'many'"),
        ({"heads": {"policy": [3, False]}}, "unknown tensor"),
        ({"heads": {"policy": [-3, False], "value": [601, False]}}, "cannot be built"),
        ({"heads": {"policy": 3}}, "cannot be built"),
        ({"network": {"hidden": [9]}}, "the tensor|missing"),
        ({"network": {"hidden": [0]}}, "hidden must be at least 1, not 0"),
        ({"network": {"hidden": [10**12]}}, "the tensor|missing"),
        ({"network": {"hiden": [8]}}, "did you mean 'hidden'"),
        ({"num_actions": 4}, "actions 4"),
        ({"observation": [1]}, "observations"),
        ({"env": "cach"}, "did you mean 'catch'"),
        ({"env_options": {"rows": 6}}, "observations"),
        ({"task": "random"}, "missing"),
    ],
)
def test_damaged_descriptions(saved, changes, said) -> None:
    with pytest.raises(UserError, match=said) as error:
        rulax.load_agent(damaged(saved, **changes))
    assert "\n" not in str(error.value)


def test_damaged_files(run, saved, tmp_path: Path) -> None:
    data = saved.read_bytes()
    for name, content in {"short": data[: len(data) // 2], "text": b"hello", "empty": b""}.items():
        (tmp_path / f"{name}.safetensors").write_bytes(content)
        with pytest.raises(UserError, match="not a whole"):
            rulax.load_agent(tmp_path / f"{name}.safetensors")
    tensors, metadata = checkpoint.read_tensors(data), safetensors_metadata(data)
    name = next(iter(tensors))
    other = {
        "missing": {each: value for each, value in tensors.items() if each != name},
        "unknown": tensors | {"agents": np.zeros(1)},
        "should be": tensors | {name: np.zeros((1, 2), np.float32)},
        "not finite": tensors | {name: np.full_like(tensors[name], np.nan)},
    }
    for said, changed in other.items():
        save_file(changed, saved, metadata)
        with pytest.raises(UserError, match=said):
            rulax.load_agent(saved)
    save_file(tensors, saved, {"made_by": "someone"})
    with pytest.raises(UserError, match="no agent that Rulax has saved"):
        rulax.load_agent(saved)
    with pytest.raises(UserError, match="holds a rule"):
        rulax.load_agent(EMBEDDED["rulax5"])
    with pytest.raises(UserError, match="cannot be read"):
        rulax.load_agent(tmp_path / "nothing.safetensors")
    with pytest.raises(UserError, match=r"ends in \.safetensors"):
        run.agent.save(tmp_path / "agent.pt")


def test_the_agents_of_a_folder_can_be_saved(tmp_path: Path) -> None:
    run = rulax.train("catch", rule="ppo", out=tmp_path / "run", animation=False, **TINY)
    loaded = rulax.load(tmp_path / "run")
    path = loaded.agent.save(tmp_path / "a.safetensors")
    assert same(rulax.load_agent(path).params, run.agent.params)
    assert loaded.agent.description.steps == 64

"""What docs/environments.md says is true: its code runs, and its table names every environment."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp

from rulax.envs import list_environments

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "environments.md").read_text()


def test_the_example_runs():
    (code,) = [code for code in re.findall(r"```python\n(.*?)```", TEXT, re.S) if "class Walk" in code]
    names: dict = {}
    exec(code, names)
    assert len([line for line in code.splitlines() if line]) <= 20
    task, step = names["Walk"]().default_task(), jax.jit(names["environment"].step)
    state, ended = names["state"], 0
    for t in range(20):
        state, timestep = step(task, state, jnp.ones(4, jnp.int32), jax.random.key(t))
        ended += int(timestep.episode.ended.sum())
        assert timestep.observation.shape == (4, 5)
    assert ended > 4


def test_the_table_names_every_environment():
    for entry in list_environments():
        variant = entry.name.removeprefix("grid/tabular").removeprefix("grid/random")
        assert f"`{entry.name}`" in TEXT or f"`{variant}`" in TEXT

"""Rows of discovery: what is averaged over agents, families and meta-steps, and what is kept apart."""

import numpy as np
import pytest

from rulax.commands.discover.rows import as_iteration, flatten, make_row
from rulax.records.rows import Recorder

ONE = {
    "episodes": np.array([2, 1]),
    "episode_return": np.array([3.0, 1.0]),
    "episode_length": np.array([9.0, 9.0]),
    "bad_rewards": np.array([0, 0]),
    "outer_loss": np.array([1.0, 3.0]),
    "meta_gradient_norm": np.array([4.0, np.nan]),
    "meta_gradient_norm_of_mean": np.array(4.0),
    "critic_loss": np.array([0.5, 1.5]),
}
OTHER = {
    **ONE,
    "outer_loss": np.array([10.0, 10.0]),
    "meta_gradient_norm": np.array([1.0, 2.0]),
    "meta_gradient_norm_of_mean": np.array(0.5),
    "critic_loss": np.array([3.0, 3.0]),
}
OPTIMISER = {
    "meta_gradient_norm_of_mean": np.float32(0.25),
    "meta_gradient_mean_of_norms": np.float32(2.0),
    "bad_agents": np.int32(1),
}


def test_families_are_kept_apart_where_it_matters():
    values = flatten({"a": ONE, "b": OTHER, "": OPTIMISER})
    assert {name: values[name] for name in values if "/" in name and "episode" not in name} == {
        "outer_loss/a": 2.0,
        "outer_loss/b": 10.0,
        "meta_gradient_mean_of_norms/a": 4.0,  # of the agent that has one
        "meta_gradient_mean_of_norms/b": 1.5,
        "critic_loss/a": 1.0,
        "critic_loss/b": 3.0,
        "meta_gradient_norm_of_mean/a": 4.0,
        "meta_gradient_norm_of_mean/b": 0.5,
    }
    assert values["outer_loss"] == 6.0
    assert values["critic_loss"] == 2.0
    assert values["meta_gradient_norm_of_mean"] == 0.25
    assert values["meta_gradient_mean_of_norms"] == 2.0
    assert not [name for name in values if name.split("/")[0] == "meta_gradient_norm"], (
        "which norm of which gradient would that be?"
    )


def test_a_row_is_a_mean_over_its_meta_steps():
    recorder = Recorder(window=2, steps_per_iteration=1, row_of=make_row)
    assert recorder.add(as_iteration({"a": ONE, "": OPTIMISER}), 1.0) == []
    (row,) = recorder.add(as_iteration({"a": OTHER, "": OPTIMISER}), 2.0)
    assert row["outer_loss/a"] == 6.0
    assert row["meta_gradient_mean_of_norms/a"] == pytest.approx(2.75)
    assert row["return/a"] == pytest.approx(8 / 6)
    assert row["bad_agents"] == 2

"""A checkpoint is exact, atomic, and says by name which tensor does not fit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.errors import UserError
from rulax.files import write_atomically
from rulax.records import checkpoint


def state() -> dict:
    return {
        "weights": jnp.arange(6.0).reshape(2, 3),
        "half": jnp.ones((2,), jnp.bfloat16) / 3,
        "flags": jnp.array([True, False]),
        "count": jnp.int32(7),
        "keys": jax.random.split(jax.random.key(3), 4),
        "empty": (),
    }


def skeleton() -> dict:
    return jax.eval_shape(state)


def test_round_trip_is_exact(tmp_path) -> None:
    checkpoint.save(tmp_path / "c", state(), {"loss": np.arange(3.0)}, {"step": 5})
    found = checkpoint.load(tmp_path / "c")
    assert found.facts["step"] == 5
    np.testing.assert_array_equal(found.pending["loss"], np.arange(3.0))
    restored = checkpoint.unpack(found, skeleton(), tmp_path / "c")
    assert jax.tree.structure(restored) == jax.tree.structure(state())
    for one, other in zip(jax.tree.leaves(restored), jax.tree.leaves(state()), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(checkpoint.to_numpy(one), checkpoint.to_numpy(other))
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensors: tensors.pop("state['weights']"), r"'state\['weights'\]' is missing"),
        (lambda tensors: tensors.update(extra=np.ones(1)), "unknown tensor 'extra'"),
        (
            lambda tensors: tensors.update({"state['weights']": np.ones((3, 2), np.float32)}),
            r"float32\[3, 2\].*float32\[2, 3\]",
        ),
        (lambda tensors: tensors.update({"state['count']": np.ones((), np.int64)}), r"'state\['count'\]' is int64"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, change, words: str) -> None:
    tensors = checkpoint.pack(state())
    change(tensors)
    with pytest.raises(UserError, match=words):
        checkpoint.unpack(checkpoint.Checkpoint(tensors, {}, {}), skeleton(), tmp_path / "c")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch) -> None:
    write_atomically(tmp_path / "f", "old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomically(tmp_path / "f", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_text() == "old"

"""Damaged files are refused in a sentence, or read as what they were; first the small version of benchmarks/fuzz_files.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.fuzz_files import make_targets, run
from rulax.commands.cli import main
from rulax.errors import UserError
from rulax.files import HOST, write_atomically
from rulax.files.reading import blamed, load_json, misfit, parse_json, parse_yaml, read_bytes
from rulax.files.tensors import Damaged, read_tensors, write_tensors
from rulax.records import checkpoint
from rulax.records.rows import BROKEN, RunLog, read_rows

ROW = {"seconds": 1.0, "episodes": 1, "return_per_seed": [1.0], "episodes_per_seed": [1]}


def test_a_few_hundred_damaged_files(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RULAX_CACHE", str(tmp_path / "cache"))
    found = run(make_targets(tmp_path, small=True), mutants=300, seed=1, seconds=20, keep=None, say=lambda text: None)
    assert found["samples"] == []
    assert found["files"] > 400
    assert min(found["accepted"], found["refused"]) > 100  # neither all nor nothing


def test_every_bit_of_a_sealed_file_counts(tmp_path) -> None:
    path = tmp_path / "f.safetensors"
    write_tensors(path, {"a": np.arange(3.0), "b": np.ones((), np.int32)}, {"about": "text"})
    whole = path.read_bytes()
    _, metadata = read_tensors(whole)
    assert metadata == {"about": "text"}
    for place in range(len(whole)):
        for bit in (0, 3, 7):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            try:
                found, _ = read_tensors(bytes(damaged))
            except Damaged:
                continue
            raise AssertionError(f"bit {bit} of byte {place} was accepted: {whole[place : place + 10]!r} {found}")
    for cut in (0, 7, 8, 20, len(whole) - 1):
        with pytest.raises(Damaged):
            read_tensors(whole[:cut])


def test_the_checkpoint_before_a_damaged_one_is_used(tmp_path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    for step in range(1, 5):
        checkpoint.save(path, {"x": jnp.float32(step)}, {}, {"step": step}, keep=3)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        f"checkpoint.{each}" for each in ("1.safetensors", "2.safetensors", "safetensors")
    ]
    flip(path)
    found = checkpoint.load(path)
    assert found.facts["step"] == 3
    assert "does not match its hash; using the one before it, of step 3" in found.note
    flip(path.with_name("checkpoint.1.safetensors"))
    assert checkpoint.load(path).facts["step"] == 2
    checkpoint.settle(checkpoint.load(path), path)
    assert checkpoint.read(path).facts["step"] == 2
    checkpoint.save(path, {"x": jnp.float32(5)}, {}, {"step": 5}, keep=1)
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint.safetensors"]
    flip(path)
    with pytest.raises(UserError, match="not a readable checkpoint"):
        checkpoint.load(path)


def test_a_checkpoint_that_cannot_be_written_costs_no_earlier_one(tmp_path, monkeypatch) -> None:
    path = tmp_path / "checkpoint.safetensors"
    for step in (1, 2):
        checkpoint.save(path, {"x": jnp.float32(step)}, {}, {"step": step})
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(path, {"x": jnp.float32(3)}, {}, {"step": 3})
    steps = [checkpoint.read(each).facts["step"] for each in (path, *checkpoint.earlier_ones(path))]
    assert steps == [2, 1]


def test_facts_may_say_that_a_score_could_not_be_measured(tmp_path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    checkpoint.save(path, {"x": jnp.float32(1)}, {}, {"step": 1, "best": {"returns": {"catch": float("nan")}}})
    assert np.isnan(checkpoint.load(path).facts["best"]["returns"]["catch"])


def test_parameters_that_are_not_finite_are_refused(tmp_path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    best = {"best": jnp.float32(-jnp.inf)}
    checkpoint.save(path, {"params": jnp.ones(2), **best}, {}, {"step": 1})
    checkpoint.load(path)  # only what is learned must be finite
    checkpoint.save(path, {"params": jnp.array([1.0, jnp.nan]), **best}, {}, {"step": 2})
    assert "'state['params']' holds numbers that are not finite" in checkpoint.load(path).note


def test_a_run_goes_on_from_the_checkpoint_before(fake, tmp_path, capsys) -> None:
    line = ["train", "catch", "--rule", "ppo", "--steps", "1000", "--seeds", "2", "--quiet"]
    assert main([*line, "--out", "here"]) == 0
    whole = read_rows(tmp_path / "here")
    flip(tmp_path / "here" / "checkpoint.safetensors")
    capsys.readouterr()
    assert main(["train", "--resume", "here"]) == 0
    error = capsys.readouterr().err
    assert "is not a readable checkpoint" in error
    assert "using the one before it, of step 0" in error
    again = read_rows(tmp_path / "here")
    assert [{**row, "seconds": 0} for row in again] == [{**row, "seconds": 0} for row in whole]
    assert checkpoint.load(tmp_path / "here" / "checkpoint.safetensors").note == ""


def test_damaged_rows_before_the_checkpoint_are_said_and_put_aside(tmp_path) -> None:
    log = RunLog(tmp_path, "train")
    log.write([{"step": step, **ROW} for step in (1, 2, 3)])
    log.sync()
    log.close()
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b'{"step": 2,', b'{"step" 2,') + b'{"step": 4, "sec')
    again = RunLog(tmp_path, "train", 3)
    again.close()
    assert "1 row of" in again.note
    assert BROKEN in again.note
    assert (tmp_path / BROKEN).read_bytes().startswith(b'{"step" 2,')
    assert [row["step"] for row in again.rows] == [1, 3]
    path.write_bytes(b'{"step": 1, "sec')  # cut off: a checkpoint knows how many there were
    cut = RunLog(tmp_path, "train", 3, kept=3)
    cut.close()
    assert "3 rows" in cut.note
    path.write_text("".join(json.dumps({"step": step, **ROW}) + "\n" for step in (1, 2, 3)) + '{"step": 4, "se')
    whole = RunLog(tmp_path, "train", 3, kept=3)
    whole.close()
    assert whole.note == ""  # a crash after the checkpoint is no news


def test_what_a_killed_writer_left_is_removed(tmp_path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = [tmp_path / f".a.json.{HOST}-{dead.pid}.tmp", tmp_path / f".b.json.{dead.pid}.tmp"]
    kept = [tmp_path / f".a.json.{HOST}-{os.getppid()}.tmp", tmp_path / f".a.json.elsewhere-{dead.pid}.tmp", tmp_path / ".mine.tmp"]
    for path in left + kept:
        path.write_text("half")
    write_atomically(tmp_path / "c.json", "{}")
    assert sorted(tmp_path.iterdir()) == sorted([*kept, tmp_path / "c.json"])


@pytest.mark.parametrize(
    "text",
    ["NaN", "[1e999]", "[" * 100_000, '{"a":' * 5000, "9" * 5000, str(2**65), '"\\ud800"', "", "\ufeffnull x", "{]"],
    ids=lambda text: text[:12],
)
def test_json_that_is_refused(text) -> None:
    with pytest.raises(ValueError, match="it "):
        parse_json(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    "text",
    [
        *("2020-01-01", "a: 2020-13-45", "{null: 1}", "[a]: 1", "{[a]: 1}", "a: &x [*x]", "!!python/object:os.x", "a: .nan"),
        *("[" * 1000, "a: " + "9" * 5000, "\x00"),
    ],
    ids=lambda text: text[:12],
)
def test_yaml_that_is_refused(text) -> None:
    with pytest.raises(ValueError, match=r"it|parsed|day|month|digits"):
        parse_yaml(text.encode())


def test_yaml_that_is_read() -> None:
    assert parse_yaml(b"\xef\xbb\xbfa: {1: x, rate: 1e-3}\nb: [null, true, 0.5]") == {
        "a": {"1": "x", "rate": "1e-3"},
        "b": [None, True, 0.5],
    }


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/urandom", "pipe", "folder", "loop", "huge", "gone", "with\0zero"])
def test_what_is_no_file(tmp_path, name) -> None:
    path = tmp_path / name
    if name == "pipe":
        os.mkfifo(path)
    elif name == "folder":
        path.mkdir()
    elif name == "loop":
        path.symlink_to(path)
    elif name == "huge":
        with path.open("wb") as file:
            file.truncate(2**40)
    with pytest.raises(UserError) as error:
        read_bytes(path)
    assert str(path).replace("\0", "\\x00") in str(error.value)


def test_messages_are_bounded_and_harmless() -> None:
    text = str(UserError("\x1b]0;x\x07" + "a" * 10**6 + "\u202e what to do"))
    assert len(text) < 2000
    assert text.startswith("\\x1b]0;x\\x07aaa")
    assert text.endswith("\\u202e what to do")
    assert str(UserError("größer")) == "größer"


def test_forms() -> None:
    form = dict[str, list[float | None]]
    assert misfit({"a": [1, None]}, form) == ""
    assert misfit({"a": [1, "x"]}, form) == "'a'[1] is not a number"
    assert misfit({"a": [True]}, form) == "'a'[0] is not a number"
    assert misfit([], form) == "it is not an object with names"


def test_blame(tmp_path) -> None:
    (tmp_path / "f.json").write_text('{"a": 1}')
    with (
        pytest.raises(UserError, match=r"f\.json does not hold what rulax writes there \(KeyError: 'b'\)"),
        blamed(tmp_path / "f.json"),
    ):
        load_json(tmp_path / "f.json")["b"]


def flip(path: Path) -> None:
    """One bit of the last number."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))

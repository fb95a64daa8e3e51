"""Run folders of the version before (commit 575e96d) go on, or are refused with a sentence that says why.

`earlier/train` was made by that version with 100 steps; `earlier/train_200_steps.jsonl` are its metrics after that version itself
had resumed it to 200. `earlier/discover` was interrupted before its first meta-step; `earlier/discover_2_steps.jsonl` are the rows
of the two meta-steps that version itself then made. `earlier/compare` was interrupted in its third cell, after 200 of 800 steps;
`earlier/compare_800_steps.jsonl` are the metrics of that cell after that version itself had resumed the comparison.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from rulax.commands.cli import main
from rulax.commands.compare.show import Comparison
from rulax.commands.discover.rows import as_iteration, make_row
from rulax.commands.discover.setup import fixed_part, prepare_discovery, saved_discovery
from rulax.commands.preset_files import load_preset
from rulax.commands.resume import read_record
from rulax.errors import UserError
from rulax.records import checkpoint, earlier
from rulax.records.rows import Recorder, read_rows
from rulax.settings import Network

EARLIER = Path(__file__).parent / "earlier"


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    return {name: np.array(value, float) for name, value in row.items() if name not in ("seconds", "kind")}


def test_a_training_run_goes_on_as_that_version_would_have(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(EARLIER / "train", folder)
    assert json.loads((folder / "config.json").read_text())["network"]["first_values"] == "zero"
    assert main(["train", "--resume", str(folder), "--steps", "200", "--quiet"]) == 0
    then = [json.loads(line) for line in (EARLIER / "train_200_steps.jsonl").read_text().splitlines()]
    now = read_rows(folder)
    assert [row["step"] for row in now] == [row["step"] for row in then] == [40, 80, 100, 140, 180, 200]
    for ours, theirs in zip(now, then, strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in numbers(ours).items():
            np.testing.assert_allclose(value, numbers(theirs)[name], rtol=1e-4, atol=1e-6, err_msg=f"{name} at {ours['step']}")
    record = json.loads((folder / "config.json").read_text())
    assert (record["kind"], record["network"]["value_init"]) == ("train", "zero")
    assert "first_values" not in record["network"]


def test_a_comparison_goes_on_as_that_version_would_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("rulax.report.plot.save_figure", lambda *arguments: None)  # it takes longer than the training
    folder = tmp_path / "comparison"
    shutil.copytree(EARLIER / "compare", folder)
    before = [(cell, read_rows(cell)) for cell in sorted(folder.glob("*/*")) if not cell.name.endswith("q_learning")]
    assert json.loads((folder / "config.json").read_text())["settings"]["first_values"] == "zero"
    assert main(["compare", "--resume", str(folder), "--quiet"]) == 0
    assert "note:" not in capsys.readouterr().err  # about a name that the user has not written
    assert [len(rows) > 0 and read_rows(cell) == rows for cell, rows in before] == [True, True]  # not trained again
    (unfinished,) = folder.glob("cells/*q_learning")
    then = [json.loads(line) for line in (EARLIER / "compare_800_steps.jsonl").read_text().splitlines()]
    now = read_rows(unfinished)
    assert [row["step"] for row in now] == [row["step"] for row in then]
    assert now[-1]["step"] == 800
    for ours, theirs in zip(now, then, strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in numbers(ours).items():
            np.testing.assert_allclose(value, numbers(theirs)[name], rtol=1e-4, atol=1e-6, err_msg=f"{name} at {ours['step']}")
    record = json.loads((folder / "config.json").read_text())
    assert record["settings"]["value_init"] == "zero"
    assert "first_values" not in record["settings"]
    found = Comparison.load(folder)
    assert found.finished
    assert {rule: returns.shape for rule, returns in found.returns.items()} == {"policy_gradient": (2, 1), "q_learning": (2, 1)}


def test_a_discovery_goes_on_as_that_version_would_have() -> None:
    record = read_record(EARLIER / "discover", "discover")
    found = checkpoint.load(EARLIER / "discover" / "checkpoint.safetensors")
    assert (found.format, found.facts["step"], found.facts["window"], found.facts["best"]["step"]) == (1, 0, 1, 0)
    prepared = prepare_discovery(saved_discovery(record, {}))
    state = checkpoint.unpack(found, prepared.discoverer.skeleton(), EARLIER / "discover" / "checkpoint.safetensors")
    assert jax.tree.structure(state) == jax.tree.structure(prepared.discoverer.skeleton())
    assert prepared.record["fingerprint"] == record["fingerprint"]
    shared = {name: value for name, value in fixed_part(prepared.record).items() if name in found.facts["fixed"]}
    assert shared == {name: found.facts["fixed"][name] for name in shared}
    recorder, rows = Recorder(1, 1, row_of=make_row), []
    for _ in range(2):
        state, metrics = prepared.discoverer.advance(state)
        rows += recorder.add(as_iteration(metrics), 0.0)
    for ours, line in zip(rows, (EARLIER / "discover_2_steps.jsonl").read_text().splitlines(), strict=True):
        theirs = json.loads(line)
        theirs["meta_gradient_mean_of_norms"] = theirs.pop("meta_gradient_norm")  # what it was
        for name, value in numbers(theirs).items():
            np.testing.assert_allclose(ours[name], value, rtol=1e-4, atol=1e-6, err_msg=f"{name} at {ours['step']}")


def test_a_discovery_whose_agents_did_not_learn_is_refused_with_the_reason(tmp_path: Path) -> None:
    """That version's schedules fell to zero within one update; today every agent has the horizon of its own life."""
    record = read_record(EARLIER / "discover", "discover")
    record["learning"]["schedule"] = "cosine"
    skeleton = prepare_discovery(saved_discovery(record, {})).discoverer.skeleton()
    forms = zip(checkpoint.leaf_names(skeleton), map(checkpoint.stored_form, jax.tree.leaves(skeleton)), strict=True)
    state = {name: np.zeros(form.shape, form.dtype) for name, form in forms if not name.endswith("['horizon']")}
    found = checkpoint.load(EARLIER / "discover" / "checkpoint.safetensors")._replace(state=state)
    sentence = "cannot be read by this one: in that version a schedule .* ended at an agent's first update, .*; discover anew"
    with pytest.raises(UserError, match=sentence):
        checkpoint.unpack(found, skeleton, tmp_path / "c")


class Newer(NamedTuple):
    iteration: jax.ShapeDtypeStruct
    new: jax.ShapeDtypeStruct


def test_what_this_version_cannot_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    found = checkpoint.load(EARLIER / "train" / "checkpoint.safetensors")
    found = found._replace(state={"state.iteration": found.state["state.iteration"]})
    number = jax.ShapeDtypeStruct((), np.int32)
    sentence = r"c was written by an earlier version of rulax and cannot be read by this one: the tensor 'state.new' is missing"
    with pytest.raises(UserError, match=sentence):
        checkpoint.unpack(found, Newer(number, number), tmp_path / "c")


def test_an_old_configuration_is_a_preset() -> None:
    values = load_preset(str(EARLIER / "train" / "config.json"))
    assert values["value_init"] == "zero"
    assert "first_values" not in values


def test_fingerprints_are_made_of_first_names() -> None:
    assert earlier.original({"hidden": [4], "value_init": "zero"}, Network) == {"hidden": [4], "first_values": "zero"}
    assert earlier.original({"hidden": [4], "value_init": "drawn"}, Network) == {"hidden": [4]}  # as before it existed


def test_the_unfinished_row_of_an_old_discovery_is_read() -> None:
    recorder = Recorder(3, 1, 7, {"meta-steps": np.asarray(2), "loss": np.asarray(5.0), "loss#": np.asarray(2.0)})
    assert recorder.count == 2
    rows = []
    recorder.row_of = lambda totals, step, seconds, carried: rows.append(totals) or {"step": step}
    assert recorder.add({"loss": np.array([1.0]), "new": np.array([4.0])}, 0.0) == [{"step": 8}]
    assert {name: float(total[0]) for name, total in rows[0].items()} == {"loss": 6.0, "new": 4.0, "loss#": 3.0, "new#": 1.0}

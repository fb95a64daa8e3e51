"""Damages files of every format that Rulax reads, and hands them to the readers that its commands use.

    python benchmarks/fuzz_files.py [--mutants 20000] [--seed 0] [--seconds 20] [--only NAME] [--json FILE]

Whole files are made first, by the code of the commands; only the training between their first and their last moment is left out.
Then every target gets its share of mutants: flipped bits, cuts, repetitions, foreign bytes, other encodings; in JSON and YAML other
types, names and depths; in tensor files another header, numbers that are not finite, a new seal; in archives other compression and
damaged entries; and what is no file at all. A reader may return what it read or refuse it in one sentence. Counted are

* tracebacks: any other exception, and sentences that are too long or hold what a terminal would obey;
* wrong hashes: mutants of sealed files that were accepted with another content than the original's;
* hangs: what took longer than `--seconds`.

The exit code is 1 if any of the three is not 0. `tests/commands/test_damaged_files.py` runs a small version.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import math
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rulax.errors import Interrupted, TrainingStopped, UserError
from rulax.files.tensors import write_tensors

MEMORY = 12 * 2**30  # bytes of addresses: a reader that takes more gets a MemoryError, and not the whole machine
LONGEST = 2000  # characters of a sentence
WORDS = ("env", "rule", "settings", "steps", "seed", "points", "catch", "", "x" * 300, "\x1b[2J", "é", "mine.py:Catch")
ODD = (
    None,
    True,
    -1,
    0,
    1.5,
    1e308,
    10**19,
    10**400,
    2**63,
    "",
    "text",
    [],
    {},
    [[]],
    {"": None},
    [None] * 3,
    "\x1b]0;x\x07",
    "\u202e",
)
RAW = (
    "NaN",
    "Infinity",
    "-0",
    "1e999",
    "2020-01-01",
    "[" * 5000,
    '{"a":' * 3000,
    '"\\ud800"',
    "9" * 6000,
    "!!python/object:x",
    "*a",
    "&a [*a]",
)


class Hang(BaseException):
    """A reader took too long; no `except Exception` may swallow that."""


class Target(NamedTuple):
    """A file, and what a command does with it."""

    name: str
    path: Path
    read: Callable[[], Any]  # from where the file is
    weight: float  # its share of the mutants
    sealed: bool = False  # whether what `read` returns is the content, which must be the original's if it is returned at all


# -- mutants -------------------------------------------------------------------------------------------------------------------


def mutant(data: bytes, ending: str, rng: random.Random) -> tuple[bytes, bool]:
    """A damaged version of a file, and whether it was sealed anew by whoever damaged it."""
    if ending in (".json", ".yaml") and rng.random() < 0.6:
        return of_text(data, ending, rng), False
    if ending == ".jsonl" and rng.random() < 0.6:
        lines = data.split(b"\n")
        place = rng.randrange(len(lines))
        lines[place] = of_text(lines[place] or b"{}", ".json", rng)
        return b"\n".join(lines), False
    if ending == ".safetensors" and rng.random() < 0.5:
        return of_tensors(data, rng)
    if ending == ".npz" and rng.random() < 0.6:
        return of_archive(data, rng), False
    return of_bytes(data, rng), False


def of_bytes(data: bytes, rng: random.Random) -> bytes:
    """Damage that knows nothing of the format; half of it in the first bytes, where headers are."""
    changed, size = bytearray(data), max(1, len(data))
    place = rng.randrange(min(size, 400) if rng.random() < 0.5 else size)
    length = 2 ** rng.randrange(12)
    kind = rng.randrange(9)
    if kind <= 2:  # the commonest
        for _ in range(1 + kind * rng.randrange(8)):
            if changed:
                changed[rng.randrange(len(changed)) if kind else min(place, len(changed) - 1)] ^= 1 << rng.randrange(8)
    elif kind == 3:
        del changed[place:]
    elif kind == 4:
        del changed[place : place + length]
    elif kind == 5:
        changed[place:place] = changed[place : place + length]
    elif kind == 6:
        changed[place : place + length] = bytes(min(length, len(changed) - place))
    elif kind == 7:
        changed[place:place] = rng.randbytes(length)
    else:
        text = data.decode("latin-1")
        codes = ("utf-16", "utf-32", "utf-8-sig", "utf-7", "cp037", "utf-8")
        changed = bytearray(text.encode(rng.choice(codes), "replace"))
    return bytes(changed)


def of_text(data: bytes, ending: str, rng: random.Random) -> bytes:
    """JSON or YAML with one or two values, names or types changed."""
    import yaml

    value = json.loads(data) if ending == ".json" else yaml.safe_load(data)
    marks: dict[str, str] = {}
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        value = changed_value(value, rng, marks)
    text = json.dumps(value, default=str) if ending == ".json" or rng.random() < 0.5 else yaml.safe_dump(jsonable(value))
    for mark, raw in marks.items():
        text = text.replace(f'"{mark}"', raw).replace(mark, raw)
    if ending == ".yaml" and rng.random() < 0.2:
        text += rng.choice(("\n? [a]\n: 1\n", "\nnull: 1\n", "\n~: ~\n", "\n1: 2\n", "\non: off\n", "\n<<: 3\n", "\n- 1", "\n\t"))
    return text.encode("utf-8", "surrogatepass")


def jsonable(value: Any) -> Any:
    """The same without what YAML's writer does not know."""
    return json.loads(json.dumps(value, default=str))


def changed_value(value: Any, rng: random.Random, marks: dict[str, str]) -> Any:
    """A copy with one change somewhere in it."""
    children = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if children and rng.random() < 0.8:
        copy, at = (dict(value) if isinstance(value, dict) else list(value)), rng.choice(children)
        kind = rng.random()
        if kind < 0.15:
            del copy[at]
        elif kind < 0.25 and isinstance(copy, dict):
            copy[rng.choice(WORDS)] = copy.pop(at)
        elif kind < 0.35:
            other = rng.choice(children)
            copy[at], copy[other] = copy[other], copy[at]
        else:
            copy[at] = changed_value(copy[at], rng, marks)
        return copy
    kind = rng.random()
    if kind < 0.2:
        marks[mark := f"MARK{len(marks)}"] = rng.choice(RAW)
        return mark
    if kind < 0.3 and isinstance(value, int | float):
        return rng.choice((-value, value + 1, value * 10**6, value / 3 if abs(value) < 1e300 else 0.1, str(value)))
    if kind < 0.4 and isinstance(value, str):
        return rng.choice((value[:-1], value * 3, f"{value}:", rng.choice(WORDS)))
    return rng.choice(ODD)


def of_tensors(data: bytes, rng: random.Random) -> tuple[bytes, bool]:
    """A safetensors file with another header or other numbers; sometimes with a seal that fits, as somebody could make it."""
    from rulax.files import safetensors_metadata
    from rulax.files.tensors import read_tensors

    if rng.random() < 0.4:
        length = int.from_bytes(data[:8], "little")
        header = of_text(data[8 : 8 + length].rstrip(), ".json", rng)
        return len(header).to_bytes(8, "little") + header + data[8 + length :], False
    tensors, metadata = dict(read_tensors(data)[0]), safetensors_metadata(data)
    name = rng.choice(list(tensors))
    array, kind = tensors[name], rng.randrange(6)
    if kind == 0:
        del tensors[name]
    elif kind == 1:
        tensors[rng.choice(WORDS)] = tensors.pop(name)
    elif kind == 2:
        tensors[name] = np.asarray(array, rng.choice((np.float64, np.int64, np.float16, np.uint8)))
    elif kind == 3:
        tensors[name] = np.zeros(rng.choice(((), (0,), (3, 1), (1, *array.shape))), array.dtype)
    elif kind == 4 and array.dtype.kind == "f":
        tensors[name] = np.full_like(array, rng.choice((np.nan, np.inf, -np.inf)))
    else:
        field = rng.choice(list(metadata))
        try:
            metadata[field] = of_text(metadata[field].encode(), ".json", rng).decode("utf-8", "replace")
        except ValueError:
            metadata[field] = rng.choice(WORDS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f"
        write_tensors(path, tensors, metadata)
        return path.read_bytes(), True


def of_archive(data: bytes, rng: random.Random) -> bytes:
    """An .npz whose entries are compressed otherwise, damaged, renamed or wrong."""
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    buffer, kind = io.BytesIO(), rng.randrange(6)
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w", rng.choice(methods)) as new:
        chosen = rng.choice(old.namelist())
        for name in old.namelist():
            content = old.read(name)
            if name == chosen:
                if kind == 0:
                    continue
                content = of_bytes(content, rng) if kind in (1, 2) else content
                if kind == 3:  # the text of the header, which is a Python literal
                    texts = (b"{'descr': '|O'", b"{'descr': ((((", b"{'shape': (1e9, -1)", b"{'fortran_order': 3,", b"\x00" * 10)
                    content = content[:10] + rng.choice(texts) + content[10 + rng.randrange(20) :]
                name = rng.choice(WORDS) or "-" if kind == 4 else name
            new.writestr(name, content)
    found = buffer.getvalue()
    return of_bytes(found, rng) if kind == 5 or rng.random() < 0.4 else found


# -- one mutant ----------------------------------------------------------------------------------------------------------------


def attempt(read: Callable[[], Any], seconds: float) -> tuple[str, Any]:
    """What becomes of one file: accepted with what it holds, refused with a sentence, or one of the failures."""

    def too_long(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return "accepted", read()
    except (UserError, TrainingStopped, Interrupted) as error:
        text = str(error)
        good = len(text) <= LONGEST and all(each.isprintable() or each in "\n\t" for each in text)
        return ("refused", text) if good else ("traceback", f"a sentence of {len(text)} characters: {text[:200]!r}")
    except Hang:
        return "hang", ""
    except BaseException:
        return "traceback", traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Result(NamedTuple):
    """What became of all mutants of one target."""

    counts: collections.Counter[str]
    samples: list[str]  # of failures, with what made them
    seconds: float


def attack(target: Target, number: int, seed: int, seconds: float, keep: Path | None = None) -> Result:
    """So many mutants of one file; the file is whole again afterwards."""
    rng, whole, began = random.Random(f"{seed} {target.name}"), target.path.read_bytes(), time.monotonic()
    counts: collections.Counter[str] = collections.Counter()
    samples: list[str] = []
    kind, original = attempt(target.read, 10 * seconds)
    if kind != "accepted":
        raise RuntimeError(f"{target.name}: the whole file is not accepted: {original}")
    try:
        for each in range(number):
            data, resealed = mutant(whole, target.path.suffix, rng)
            target.path.write_bytes(data)
            kind, found = attempt(target.read, seconds)
            if kind == "accepted" and target.sealed and not resealed and not same(found, original):
                kind = "wrong hash"
            counts[kind] += 1
            if kind not in ("accepted", "refused"):
                samples.append(f"{target.name} #{each}: {kind} {found if kind == 'traceback' else ''}")
                if keep is not None:
                    (keep / f"{target.name.replace(' ', '-')}-{each}{target.path.suffix}").write_bytes(data)
    finally:
        target.path.write_bytes(whole)
    return Result(counts, samples, time.monotonic() - began)


def no_files(target: Target, seconds: float) -> Result:
    """What is no file, or none that can be read: a device, a pipe, a folder, a loop, a terabyte of nothing."""
    counts: collections.Counter[str] = collections.Counter()
    samples: list[str] = []
    aside, began = target.path.with_name(f"{target.path.name}.aside"), time.monotonic()
    target.path.rename(aside)

    def huge() -> None:
        with target.path.open("wb") as file:
            file.truncate(2**40)

    makers: dict[str, Callable[[], object]] = {
        "zeros": lambda: target.path.symlink_to("/dev/zero"),
        "random": lambda: target.path.symlink_to("/dev/urandom"),
        "pipe": lambda: os.mkfifo(target.path),
        "folder": lambda: target.path.mkdir(),
        "loop": lambda: target.path.symlink_to(target.path),
        "gone": lambda: None,
        "empty": lambda: target.path.write_bytes(b""),
        "huge": huge,
    }
    try:
        for name, make in makers.items():
            make()
            kind, found = attempt(target.read, seconds)
            counts[kind] += 1
            if kind in ("hang", "traceback"):
                samples.append(f"{target.name}, {name}: {kind} {found}")
            with contextlib.suppress(FileNotFoundError):
                target.path.rmdir() if target.path.is_dir() and not target.path.is_symlink() else target.path.unlink()
    finally:
        aside.rename(target.path)
    return Result(counts, samples, time.monotonic() - began)


def same(one: Any, other: Any) -> bool:
    """Whether two readings hold the same."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "dtype") or hasattr(other, "dtype"):
        return np.array_equal(np.asarray(one), np.asarray(other), equal_nan=np.asarray(one).dtype.kind == "f")
    return bool(one == other)


# -- whole files, and what reads them --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def without_training(new: bool = False) -> Iterator[None]:
    """Runs end at once: new ones with rows to their end, those that go on before their first step."""
    from rulax.commands.discover import run as discover
    from rulax.commands.train import run as train

    def drive(job: Any, *_: Any) -> Any:
        try:
            if not new or not isinstance(job, train.TrainJob):
                return None
            seeds, steps = job.config.seeds, job.config.steps
            for step in range(steps // 4, steps + 1, steps // 4):
                returns, episodes = [0.5] * seeds, [2] * seeds
                row = {"step": step, "seconds": 1.0, "episodes": 2 * seeds, "episode_return": 0.5, "episode_length": 4.0}
                job.log.write([{**row, "return_per_seed": returns, "episodes_per_seed": episodes, "loss": 0.1}])
            job.recorder.step = steps
            job.save()
            return None
        finally:
            job.close()

    before = train.drive, discover.drive
    train.drive = discover.drive = drive  # type: ignore[assignment]
    try:
        yield
    finally:
        train.drive, discover.drive = before  # type: ignore[assignment]


def make_targets(root: Path, small: bool = False) -> list[Target]:
    """All files and their readers; `small`: those that are made and read in an instant."""
    import jax

    import rulax
    from rulax.commands.build import registered_recipe
    from rulax.commands.listing.setup import list_runs
    from rulax.commands.listing.show import show_runs
    from rulax.commands.preset_files import load_preset
    from rulax.commands.study.plan import read_plan
    from rulax.commands.train import run as train
    from rulax.commands.train.settings import build_train, check_train
    from rulax.metanet.sizes import Sizes
    from rulax.records import agent_file, checkpoint, population
    from rulax.records import folder as folders
    from rulax.records.rows import read_rows
    from rulax.report.train import write_train_page
    from rulax.rules import pretrained
    from rulax.rules.registry import make_rule

    targets: list[Target] = []
    tiny = {"streams": 2, "unroll": 4, "hidden": (4,), "steps": 64, "seeds": 2, "env": "catch", "rule": "actor_critic"}
    (root / "presets").mkdir()
    preset = root / "presets" / "preset.yaml"
    preset.write_text(
        "# A preset\nenv: catch\nenv_options: {rows: 5}\nrule: ppo\nlearning_rate: 1e-3\nhidden: [8, 8]\nsteps: 1e4\n"
    )
    study = root / "presets" / "study.yaml"
    study.write_text(
        "settings: {suite: grids, steps: 16}\nheld_out: [catch]\n"
        "points:\n  whole: {x: 1}\n  less: {label: less, x: 2, settings: {agents: 2}}\n"
        "questions:\n  - {title: What, points: [whole, less], axis: sizes, paper: nothing}\n"
    )

    def as_preset(path: Path) -> Any:
        return check_train(build_train({"preset": str(path)}))

    targets.append(Target("preset", preset, lambda: as_preset(preset), 3))
    targets.append(Target("study file", study, lambda: read_plan(str(study)), 2))
    schedule = root / "presets" / "schedule.json"
    population.write_schedule(schedule, [{"step": 0, "learning_rate": 1e-3}, {"step": 10, "learning_rate": 1e-4}], {"env": "catch"})
    targets.append(Target("schedule", schedule, lambda: population.read_schedule(schedule), 1))
    turns = root / folders.TURNS
    turn = {"scores": [1.0, None], "parents": [0, 0], "hyperparameters": {"learning_rate": [1e-3, 1e-4]}}
    population.write_turns(root, [{"step": step, **turn} for step in (0, 10, 20)])
    targets.append(Target("turns", turns, lambda: population.schedule_of(population.read_turns(root), 1), 1))

    # Rules: ours and the reference's format.
    sizes = Sizes(prediction_size=4, hidden=4, embedding=2, lifetime_hidden=4, lifetime_embedding=2)
    params = make_rule("disco", prediction_size=4, hidden=4, embedding=2, lifetime_hidden=4, lifetime_embedding=2).rule.init(
        jax.random.key(0)
    )
    about = {"found": "here", "settings": '{"learning": {"streams": 2}}', "trained_on": '["catch"]', "spent": '{"seconds": 1}'}
    for ending in (".safetensors", ".npz"):
        path = root / f"rule{ending}"
        pretrained.save_rule(path, params, sizes, about)

        def rule(path: Path = path) -> Any:
            registered_recipe(str(path), {})  # as `--rule FILE` does
            found = pretrained.load_rule(path)
            return pretrained.take_apart(found.params), {name: value for name, value in found.about.items() if name in about}

        targets.append(Target(f"rule {ending}", path, rule, 3, sealed=ending == ".safetensors"))

    # A training run, with an agent of it.
    folder = root / "runs" / "train"
    with without_training(new=True):
        train.start(build_train({**tiny, "out": str(folder), "quiet": True}))
    for each in checkpoint.earlier_ones(folder / folders.CHECKPOINT):
        each.unlink()  # a damaged one would be read instead

    def resumed() -> Any:
        with without_training():
            return train.resume({"resume": str(folder), "steps": 128, "quiet": True})

    def listed() -> Any:
        return show_runs(list_runs(root / "runs"))

    def shown(folder: Path = folder, write: Any = write_train_page) -> Any:
        return write(folder)

    config, saved, rows = (folder / name for name in (folders.CONFIG, folders.CHECKPOINT, folders.METRICS))
    summary = folder / folders.SUMMARY
    summary.write_text(json.dumps(rulax.load(folder).summary()))

    def contents() -> Any:
        found = checkpoint.load(saved, train.Facts)
        return found.state, found.pending, found.facts

    targets.append(Target("checkpoint", saved, contents, 4, sealed=True))
    targets.append(Target("metrics", rows, lambda: read_rows(folder, 2), 2))
    targets.append(Target("metrics, page", rows, shown, 1))
    targets.append(Target("config, page", config, shown, 1))
    targets.append(Target("summary, page", summary, shown, 1))
    targets.append(Target("config, runs", config, listed, 2))
    targets.append(Target("metrics, runs", rows, listed, 1))
    targets.append(Target("summary, runs", summary, listed, 1))
    targets.append(Target("config as a preset", config, lambda: load_preset(str(config)), 2))
    targets.append(Target("config, load", config, lambda: rulax.load(folder).summary(), 2))
    targets.append(Target("metrics, load", rows, lambda: rulax.load(folder).summary(), 1))
    if small:
        return targets
    agent = root / "agent.safetensors"
    rulax.load(folder).agents[0].save(agent)

    def playing() -> Any:
        found = rulax.load_agent(agent)
        return checkpoint.pack(found.params), [found.description.env, found.description.steps]

    targets.append(Target("agent file", agent, lambda: agent_file.read(agent), 2, sealed=True))
    targets.append(Target("agent, play", agent, playing, 0.5, sealed=True))
    targets.append(Target("checkpoint, resume", saved, resumed, 0.3))
    targets.append(Target("checkpoint, evaluate", saved, lambda: rulax.load(folder).agents and None, 0.3))
    targets.append(Target("config, resume", config, resumed, 0.6))
    targets.append(Target("metrics, resume", rows, resumed, 0.3))
    targets.append(Target("config, evaluate", config, lambda: rulax.load(folder).agents and None, 0.3))
    return targets + more_targets(root, tiny, listed, shown)


def more_targets(root: Path, tiny: dict[str, Any], listed: Callable[[], Any], shown: Callable[..., Any]) -> list[Target]:
    """Discoveries, comparisons, sweeps, experiments of methods and explanations."""
    import jax

    from rulax.commands.compare import run as compare
    from rulax.commands.compare.show import Comparison
    from rulax.commands.discover import run as discover
    from rulax.commands.discover.settings import build_discover
    from rulax.commands.method import record as method
    from rulax.commands.search_space import Range
    from rulax.commands.tune.study import Study
    from rulax.methods.base import Reference
    from rulax.records import checkpoint
    from rulax.records import folder as folders
    from rulax.report.compare import write_compare_page
    from rulax.report.discover import write_discover_page
    from tests.commands.fake_discovery import TINY

    targets: list[Target] = []

    # A discovery.
    folder = root / "runs" / "discover"
    small = {
        "streams": 2,
        "batch": 2,
        "replay": 0,
        "unroll": 4,
        "hidden": (4,),
        "agents": 1,
        "window": 2,
        "lifetimes": (4,),
        "evaluation_updates": 8,
        "action_hidden": (4,),
    }
    values = {"suite": "catch:rows=5,columns=3", "steps": 8, "rule_options": TINY, "evaluation_seeds": 1, "quiet": True, **small}
    with without_training():
        discover.start(build_discover({**values, "out": str(folder)}))
    (folder / folders.BASELINES).write_text(json.dumps({"catch:rows=5,columns=3": {"untrained": -1.0, "actor_critic": 0.5}}))
    families = {"catch:rows=5,columns=3": 0.1}
    row = {"kind": "meta", "step": 1, "seconds": 1.0, "bad_agents": 0, "meta_gradient_norm_of_mean": 0.1}
    scores = {"kind": "evaluation", "step": 1, "seconds": 2.0, "training_score": 0.1, "validation_score": None}
    (folder / folders.METRICS).write_text(json.dumps(row) + "\n" + json.dumps(scores) + "\n")
    best = {"step": 1, "returns": families, "scores": families, "training_score": 0.1, "validation_score": None}
    known = {"finished": False, "meta_steps": 1, "seconds": 2.0, "cpu_seconds": 2.0, "best": best, "first": best, "last": best}
    (folder / folders.SUMMARY).write_text(json.dumps(known))

    def resumed() -> Any:
        with without_training():
            return discover.resume({"resume": str(folder), "steps": 16, "quiet": True})

    def contents() -> Any:
        found = checkpoint.load(folder / folders.CHECKPOINT, discover.Facts)
        return found.state, found.pending, found.facts

    page = lambda: shown(folder, write_discover_page)  # noqa: E731
    targets.append(Target("discovery, checkpoint", folder / folders.CHECKPOINT, contents, 2, sealed=True))
    for name in (folders.CONFIG, folders.METRICS, folders.SUMMARY, folders.BASELINES):
        targets.append(Target(f"discovery, {name}, page", folder / name, page, 1))
    targets.append(Target("discovery, config, runs", folder / folders.CONFIG, listed, 1))
    targets.append(Target("discovery, summary, runs", folder / folders.SUMMARY, listed, 1))
    targets.append(Target("discovery, config, resume", folder / folders.CONFIG, resumed, 0.2))
    targets.append(Target("discovery, checkpoint, resume", folder / folders.CHECKPOINT, resumed, 0.2))

    # Two comparisons.
    parts = [root / "runs" / f"compare-{number}" for number in (1, 2)]
    for part, rule in zip(parts, ("actor_critic", "policy_gradient"), strict=True):
        with without_training(new=True):
            given = {
                "envs": ("catch",),
                "rules": (rule,),
                "steps": 512,
                "seeds": 1,
                "eval_episodes": 0,
                "quiet": True,
                "out": str(part),
            }
            compare.compare_from(given | {name: tiny[name] for name in ("streams", "unroll", "hidden")})

    def merged() -> Any:
        with tempfile.TemporaryDirectory() as out:
            return compare.merge_from({"merge": tuple(map(str, parts)), "out": f"{out}/m", "quiet": True}).results["kind"]

    def again() -> Any:
        with without_training():
            return compare.compare_from({"resume": str(parts[0]), "quiet": True})

    cell = next((parts[0] / "cells").iterdir())
    page_of = lambda: shown(parts[0], write_compare_page)  # noqa: E731
    results = parts[0] / folders.COMPARISON
    targets.append(Target("compare.json, page", results, page_of, 1))
    targets.append(Target("compare.json, table", results, lambda: Comparison.load(parts[0]).table, 1))
    targets.append(Target("compare.json, runs", results, listed, 1))
    targets.append(Target("comparison, config, page", parts[0] / folders.CONFIG, page_of, 1))
    targets.append(Target("comparison, config, merge", parts[0] / folders.CONFIG, merged, 0.3))
    for name in (folders.CONFIG, folders.METRICS, "cost.json"):
        targets.append(Target(f"cell, {name}, merge", cell / name, merged, 0.3))
    targets.append(Target("cell, config, resume", cell / folders.CONFIG, again, 0.2))
    targets.append(Target("comparison, config, resume", parts[0] / folders.CONFIG, again, 0.2))

    # A sweep's journal, and the record of a method's experiment.
    (root / "sweep").mkdir()
    space = {"learning_rate": Range(1e-4, 1e-2, True, False)}
    study = Study(root / "sweep", space, 0)
    for number in range(3):
        study.ask({})
        study.tell(number, 0.5)
    journal = root / "sweep" / "trials.jsonl"
    targets.append(Target("sweep, journal", journal, lambda: Study(root / "sweep", space, 0).trials(), 0.5))
    seed = method.Seed(0, 1.0, 0.1, 3, 0.0, Reference("exact", 1.0, "exact"), {}, {}, 5, 100, 1.0, True, [(1, 0.5)])
    record = root / "sweep" / "rl2.bandit.json"
    facts = {"id": "rl2.bandit", "value": 1.0, "ci95": 0.1, "goal": None, "pass": True, "score": 1.0, "env_steps": 5, "wall_s": 1.0}
    record.write_text(json.dumps({**facts, "per_seed": [seed._asdict() | {"reference": seed.reference._asdict()}]}))
    targets.append(Target("method record", record, lambda: method.seeds_of(method.read_experiment(record)), 1))
    jax.clear_caches()
    return targets


# -- all of it -------------------------------------------------------------------------------------------------------------------

KINDS = ("accepted", "refused", "traceback", "wrong hash", "hang")


def run(
    targets: list[Target], mutants: int, seed: int, seconds: float, keep: Path | None, say: Callable[[str], object]
) -> dict[str, Any]:
    """Every target with its share of the mutants; the counts, in all and by target, and samples of what failed."""
    whole, total, samples = sum(target.weight for target in targets), collections.Counter[str](), []
    table: dict[str, dict[str, float]] = {}
    say(f"{'target':<34} {'files':>6} {' '.join(f'{kind:>10}' for kind in KINDS)} {'seconds':>8}")
    for target in targets:
        share = math.ceil(mutants * target.weight / whole)
        parts = attack(target, share, seed, seconds, keep), no_files(target, seconds)
        counts = parts[0].counts + parts[1].counts
        total += counts
        samples += parts[0].samples + parts[1].samples
        table[target.name] = {**counts, "seconds": round(parts[0].seconds + parts[1].seconds, 1)}
        numbers = " ".join(f"{counts[kind]:>10}" for kind in KINDS)
        say(f"{target.name:<34} {counts.total():>6} {numbers} {table[target.name]['seconds']:>8}")
        for sample in parts[0].samples[:2] + parts[1].samples[:2]:
            say(sample)
    return {"files": total.total(), **{kind: total[kind] for kind in KINDS}, "targets": table, "samples": samples}


def main() -> int:
    """The whole of it, from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mutants", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20.0, help="limit for one file")
    parser.add_argument("--only", default="", help="targets whose name contains this")
    parser.add_argument("--small", action="store_true", help="only what is made and read in an instant")
    parser.add_argument("--keep", default="", help="folder for the mutants that failed")
    parser.add_argument("--json", default="", help="file for the counts")
    given = parser.parse_args()
    keep = Path(given.keep) if given.keep else None
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RULAX_CACHE"] = f"{folder}/cache"
        targets = [each for each in make_targets(Path(folder), given.small) if given.only in each.name]
        found = run(targets, given.mutants, given.seed, given.seconds, keep, lambda text: print(text, flush=True))
    print({name: value for name, value in found.items() if name not in ("targets", "samples")})
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1))
    return int(bool(found["traceback"] or found["wrong hash"] or found["hang"]))


if __name__ == "__main__":
    sys.exit(main())

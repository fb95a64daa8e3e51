"""Kills runs at every write and at random moments, resumes them, and compares what they come to with runs that nobody disturbed.

    python benchmarks/kill_points.py --out build/kills [--points 200] [--seed 0] [--only train poet] [--json FILE]

A process that has imported everything is forked for each part of a run; the part has `os.replace`, `os.fsync` and the appending
of files replaced by ones that end it by SIGKILL at the n-th call (an append is torn in half), or it is sent SIGKILL, SIGTERM or
SIGINT at a random moment. So the package itself knows nothing of it. Every folder is first killed at one write (of all that an
undisturbed run makes, in turns), then, as it goes on, at a random write and by a random signal; then it goes on to its end. What
it comes to must be the same bit by bit: tensors, rows, records, tables of numbers; only times may differ.

It also measures what checkpoints cost: seconds of one, as a share of the time between two at the default interval.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from rulax.commands import cli
from rulax.commands.cells import COST
from rulax.commands.compare import run as _compare  # noqa: F401, imported once, for all forks
from rulax.commands.discover import run as _discover  # noqa: F401
from rulax.commands.discover.memory import MEMORY
from rulax.commands.method import run as method_run
from rulax.commands.method import setup as method_setup
from rulax.commands.train import run as train_run
from rulax.files import read_json
from rulax.methods.base import Experiment
from rulax.methods.diayn import SkillWorld
from rulax.methods.experiments.diayn import GridRun
from rulax.methods.experiments.meta_gradient_mrp import SIGNAL_THEN_NOISE, ProcessRun
from rulax.methods.experiments.poet import PoetRun, PoetSetup
from rulax.methods.meta_gradient_mrp import TabularMetaGradient
from rulax.methods.poet import Poet
from rulax.methods.poet_agents import Evolving
from rulax.records import checkpoint
from rulax.records import folder as folders
from rulax.records.rows import read_rows

# Of time, and of what depends on it: how the curve of a method's seed is cut into chunks of a second, and what started a run.
VARY = {"seconds", "cpu_seconds", "wall_s", "curve", "command", "began", "since", "cost", "core_hours", "created"}
TENSORS = (folders.CHECKPOINT, folders.RULE, folders.LAST)
NO_RESULTS = (folders.CONFIG, COST, MEMORY)  # what a run was made with, what it cost, and what memory was free
FINISHED = "is finished"
PATIENCE = 1200  # seconds for one part of a run, before it counts as hanging; much, because other work may go on beside it

AGENT = ["--streams", "2", "--unroll", "5", "--hidden", "4"]
SIZES = {"prediction_size": 4, "bins": 7, "largest_value": 3, "hidden": 4, "lifetime_hidden": 4, "embedding": 4}
OPTIONS = [f"{name}={value}" for name, value in SIZES.items()] + ["value=false", "next_policy=false", "lifetime=false"]
OFTEN = ["--checkpoint-minutes", "1e-6"]  # after every chunk, so that there is something to go on from
TRAIN = ["train", "catch:rows=3,columns=3", "--rule", "actor_critic", "--steps", "900", "--no-animation", *AGENT, *OFTEN]
CASES = {
    "train": [*TRAIN, "--seeds", "2", "--log-every", "100"],
    "PBT": [*TRAIN, "--population", "3", "--tune", "learning_rate", "entropy_cost", "--exploit-every", "200", "--log-every", "100"],
    "discover": [
        *("discover", "catch:rows=3,columns=3", "--steps", "6", "--window", "2", "--agents", "2", "--validation-unroll", "4"),
        *("--lifetimes", "3", "--streams", "4", "--unroll", "4", "--batch", "6", "--replay", "0.5", "--capacity", "8"),
        *("--hidden", "8", "--action-model", "8", "--action-hidden", "8", "--critic-hidden", "8", "--evaluate-every", "2"),
        *("--evaluation-seeds", "2", "--evaluation-updates", "6", *OFTEN, "--rule-options", *OPTIONS),
    ],
    "compare": [
        *("compare", "catch:rows=3,columns=3", "--rules", "actor_critic", "policy_gradient", "--steps", "600", "--seeds", "2"),
        *("--eval-episodes", "4", *AGENT, *OFTEN),
    ],
    "method": ["method", "tiny", "--seeds", "2"],
    "POET": ["method", "poet", "--seeds", "1"],
}

TINY_POET = PoetSetup(
    Poet(capacity=3, children=2, reproduce_every=2, transfer_every=2),
    Evolving(pairs=2, rollouts=2),
    iterations=5,
    ablation=False,
    tested=1,
    test_episodes=2,
    direct_factor=0,
)


def tiny_experiments(name: str) -> tuple[Experiment, ...]:
    """Experiments of seconds, in the place of those of `rulax method`."""
    if name == "poet":
        poet = {"quick": TINY_POET, "full": TINY_POET}
        return (Experiment("poet", "tiny", "POET", "worlds", None, None, functools.partial(PoetRun, poet)),)
    sizes: dict[Any, Any] = {"quick": 2000, "full": 2000}
    learners = {suite: TabularMetaGradient(SIGNAL_THEN_NOISE, episodes=episodes) for suite, episodes in sizes.items()}
    return (
        Experiment("tiny", "skills", "exact skills", "nats", None, None, functools.partial(GridRun, SkillWorld(skills=2), sizes)),
        Experiment("tiny", "process", "a learned constant", "share", None, None, functools.partial(ProcessRun, learners)),
    )


# -- one part of a run ------------------------------------------------------------------------------------------------------------


class Kill(NamedTuple):
    """How a part of a run is ended: at its n-th write, or by a signal after so many seconds; or not at all."""

    write: int = 0
    signal: int = 0
    after: float = 0.0


class Writes:
    """Counts what is about to be written, and ends the process at one of them."""

    def __init__(self, last: int):
        self.made, self.last = 0, last

    def step(self) -> None:
        self.made += 1
        if self.made == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        replace, fsync, opened = os.replace, os.fsync, Path.open

        def replaced(source: Any, target: Any, **others: Any) -> None:
            self.step()
            replace(source, target, **others)
            self.step()

        def synced(descriptor: int) -> None:
            self.step()
            fsync(descriptor)

        def appended(path: Path, mode: str = "r", *others: Any, **more: Any) -> Any:
            file = opened(path, mode, *others, **more)
            if mode.startswith("a"):
                self.step()
                if self.made + 1 == self.last:  # half of a line, or of an event
                    file.write(b"\x18\0" if "b" in mode else '{"step": 1')
                    file.flush()
                self.step()
            return file

        os.replace, os.fsync, Path.open = replaced, synced, appended  # type: ignore[assignment, method-assign]


class Part(NamedTuple):
    """What became of one part."""

    code: int  # minus the signal, where one ended it
    seconds: float
    said: str
    writes: int


def run_part(line: list[str], kill: Kill, place: Path) -> Part:
    """Run one command in a fork, and end it as told."""
    began, log, counted = time.monotonic(), place / "log", place / "writes"
    log.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        output = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        writes = Writes(kill.write)
        writes.install()
        code = cli.main(line)
        sys.stdout.flush()
        sys.stderr.flush()
        counted.write_text(str(writes.made))
        os._exit(code)
    sent = False
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        spent = time.monotonic() - began
        if kill.signal and not sent and spent > kill.after:
            os.kill(child, kill.signal)
            sent = True
        if spent > PATIENCE:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return Part(-999, spent, "hangs", 0)
        time.sleep(0.01)
    said = log.read_text(errors="replace") if log.exists() else ""
    code = os.waitstatus_to_exitcode(ended[1])
    return Part(code, time.monotonic() - began, said, int(counted.read_text()) if counted.exists() else 0)


def go_on(line: list[str], folder: Path, kill: Kill, place: Path) -> Part:
    """The command that a user would type now."""
    begun = (folder / folders.CONFIG).exists()
    return run_part(
        [line[0], "--resume", str(folder), "--quiet"] if begun else [*line, "--out", str(folder), "--quiet"], kill, place
    )


# -- what a run came to ----------------------------------------------------------------------------------------------------------


def without_time(value: Any) -> Any:
    """JSON without what may differ."""
    if isinstance(value, dict):
        return {name: without_time(each) for name, each in value.items() if name not in VARY}
    return [without_time(each) for each in value] if isinstance(value, list) else value


def came_to(folder: Path) -> dict[str, Any]:
    """All results of a run, by file."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.name == folders.METRICS:
            found[name] = [without_time(row) for row in read_rows(path.parent)]
        elif path.name == folders.TURNS:
            found[name] = path.read_text()
        elif path.suffix == ".json" and path.name not in NO_RESULTS:
            found[name] = without_time(read_json(path))
        elif path.name == folders.CHECKPOINT:
            held = checkpoint.load(path)
            found[name] = {key: (str(each.dtype), each.tobytes()) for key, each in (held.state | held.pending).items()}
        elif path.name in TENSORS:
            found[name] = {
                key: (str(each.dtype), each.tobytes()) for key, each in checkpoint.read_tensors(path.read_bytes()).items()
            }
        elif path.suffix in (".html", ".png", ".md", ".lock"):
            found[name] = "there"
    return found


def differences(whole: dict[str, Any], parts: dict[str, Any]) -> list[str]:
    """The files that are not the same, or missing, or too many."""
    return sorted(name for name in whole.keys() | parts.keys() if whole.get(name) != parts.get(name))


# -- all of them -----------------------------------------------------------------------------------------------------------------


class Tally:
    """What came of one case."""

    def __init__(self, name: str, out: Path):
        self.name, self.line, self.out = name, CASES[name], out / name
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        self.kills: dict[str, int] = {"write": 0, "SIGKILL": 0, "SIGTERM": 0, "SIGINT": 0}
        self.faults: list[str] = []
        self.again: list[float] = []  # seconds of the last part of each folder, which ended it
        warm = go_on(self.line, self.out / "warm", Kill(), self.out)  # fills the compile cache, so that the next one is timed well
        whole = go_on(self.line, self.out / "whole", Kill(), self.out)
        assert whole.code == warm.code in (0, 1), warm.said + whole.said  # 1: a method's goal was missed
        self.code, self.seconds, self.writes = whole.code, whole.seconds, whole.writes
        self.whole = came_to(self.out / "whole")
        if different := differences(self.whole, came_to(self.out / "warm")):
            self.faults.append(f"two undisturbed runs differ in {different}")

    @property
    def points(self) -> int:
        """Kills that hit."""
        return sum(self.kills.values())

    def folder(self, number: int, kills: Iterator[Kill]) -> None:
        """One folder, from its beginning through some kills to its end."""
        folder, history = self.out / f"{number:03d}", []
        for kill in [*kills, Kill()]:
            part = go_on(self.line, folder, kill, self.out)
            history.append((*kill, part.code))
            if "Traceback" in part.said or part.code == -999:
                self.faults.append(f"{folder.name} {history}: {part.said[-600:]}")
                return
            if part.code == self.code or (part.code == 2 and FINISHED in part.said):
                break
            if part.code not in (-signal.SIGKILL, -signal.SIGTERM, 130):
                self.faults.append(f"{folder.name} {history}: {part.said[-600:]}")
                return
            self.kills["write" if kill.write else signal.Signals(kill.signal).name] += 1
        self.again.append(part.seconds)
        if different := differences(self.whole, came_to(folder)):
            self.faults.append(f"{folder.name} {history}: different {different}")
            return
        shutil.rmtree(folder)

    def report(self) -> dict[str, Any]:
        """In numbers."""
        return {
            "case": self.name,
            "kill_points": self.points,
            **self.kills,
            "folders": len(self.again),
            "writes_of_a_run": self.writes,
            "seconds_of_a_run": round(self.seconds, 2),
            "seconds_of_the_last_part": round(float(np.median(self.again)), 2) if self.again else None,
            "faults": self.faults,
        }


def kills_of(write: int, tally: Tally, draw: random.Random) -> Iterator[Kill]:
    """A given write, then a random one, then a random moment."""
    yield Kill(write=write)
    yield Kill(write=draw.randint(1, tally.writes))
    yield Kill(signal=draw.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]), after=draw.uniform(0.05, tally.seconds))


def measure(names: list[str], points: int, seed: int, out: Path, tell: Callable[[list[Tally]], None]) -> list[Tally]:
    """Kill until each case has its share of the points; case by case in turns, so that a part of it all says something of each."""
    draw, share, turn = random.Random(seed), -(-points // len(names)), 0
    tallies, orders = [], []
    for name in names:
        tallies.append(Tally(name, out))
        # In a random order, so that also where not all writes are reached they are from all parts of a run.
        orders.append(draw.sample(range(1, tallies[-1].writes + 1), tallies[-1].writes))
    while any(tally.points < share for tally in tallies) and turn < 10 * points:
        for tally, order in zip(tallies, orders, strict=True):
            if tally.points < share:
                tally.folder(turn, kills_of(order[turn % len(order)], tally, draw))
                tell(tallies)
        turn += 1
    return tallies


def summary(tallies: list[Tally]) -> dict[str, Any]:
    """All cases in numbers."""
    points, faults = sum(tally.points for tally in tallies), sum(len(tally.faults) for tally in tallies)
    return {"kill_points": points, "faults": faults, "cases": [tally.report() for tally in tallies]}


# -- what checkpoints cost -------------------------------------------------------------------------------------------------------


def overhead(out: Path) -> list[dict[str, Any]]:
    """Seconds of a checkpoint on disk, as a share of the default time between two."""
    from rulax.commands.train.settings import build_train

    found = []
    shapes = {"ppo": {}, "disco103 shapes, its own replay": {"rule": "disco", "hidden": (512, 512), "capacity": 1024}}
    for name, more in shapes.items():
        config = build_train({"env": "catch", "rule": "ppo", "out": str(out / "overhead" / name), "quiet": True} | more)
        prepared = train_run.prepare(config)
        state = prepared.trainer.init(jax.random.key(0))
        path, times = out / "checkpoint.safetensors", []
        for _ in range(5):
            began = time.perf_counter()
            checkpoint.save(path, state, {}, {"step": 0})
            times.append(time.perf_counter() - began)
        share = float(np.median(times)) / (60 * config.checkpoint_minutes)
        size = checkpoint.size_of(state) / 2**20
        found.append({"state": name, "megabytes": round(size, 1), "seconds": round(float(np.median(times)), 4), "share": share})
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "rulax-kills")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--overhead", action="store_true", help="measure what checkpoints cost, and kill nothing")
    given = parser.parse_args()
    out = given.out.resolve()
    os.environ.setdefault("RULAX_CACHE", str(out / "cache"))
    # Settings alone: JAX starts in the forked processes only, since a fork of it would share its threads' locks. All programs are
    # kept, also those that compile quickly, because every part of a run is a process of its own.
    jax.config.update("jax_compilation_cache_dir", str(out / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    out.mkdir(parents=True, exist_ok=True)
    method_setup.METHODS = {"tiny": "tiny", "poet": "tiny"}  # type: ignore[misc]
    method_run.MethodJob.checkpoint_minutes = 1e-6
    method_setup.experiments_of = tiny_experiments  # type: ignore[assignment]
    if given.overhead:
        print(json.dumps(overhead(out), indent=2))
        return 0

    def tell(tallies: list[Tally]) -> None:
        if given.json:  # after every folder: it may take hours
            given.json.write_text(json.dumps(summary(tallies), indent=2) + "\n")

    found = summary(measure(given.only, given.points, given.seed, out, tell))
    for case in found["cases"]:
        print(json.dumps(case))
    print(f"{found['kill_points']} kill points, {found['faults']} faults")
    return 1 if found["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""`processes=` on environments made of copies: the same streams bit by bit, failures that cost what they must, nothing left
over."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from rulax.envs import make
from rulax.envs.adapters.workers import WorkerStreams
from rulax.envs.catalogue import adapter_families
from tests.envs.adapters import host

pytest.importorskip("gymnasium")

import gymnasium

from ..failing import FRAGILE, HERE, Plain

STREAMS = 3


def need(name):
    pytest.importorskip(adapter_families()[name.split("/")[0]].package)


def assert_equal(one, other):
    def equal(x, y):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)

    jax.tree.map(equal, one, other)


@pytest.mark.parametrize(
    ("name", "options", "steps"),
    [
        ("crafter/reward", {"area": (16, 16), "length": 9}, 12),  # longer episodes are not determined by a seed, see test_hosts.py
        ("minigrid/MiniGrid-Empty-Random-5x5-v0", {"max_steps": 30}, 200),
        ("gymnasium/tests.envs.adapters.test_stacking:RulaxSlides-v0", {"stack": 3}, 12),  # a dictionary, and stacks around it
    ],
)
def test_timesteps_do_not_depend_on_the_number_of_processes(name, options, steps):
    need(name)
    here, there = (make(name, processes=processes, **options) for processes in (0, 2))
    assert (there.num_actions, there.action_dimensions, there.frames) == (here.num_actions, 0, options.get("stack", 1))
    actions = np.random.default_rng(0).integers(0, here.num_actions, (steps, STREAMS))
    timesteps = host.live(there, actions)
    assert timesteps.episode.ended.any()
    assert_equal(timesteps, host.live(here, actions))
    host.assert_declared(there, timesteps)
    assert multiprocessing.active_children() == []


def test_a_copy_that_raises_costs_its_stream_wherever_it_is():
    """What raises, its words, and what the new copies show are the same in this process and in two, in a wrapper without a spec."""
    lived = []
    for processes in (0, 2):
        streams = make(HERE + FRAGILE, processes=processes, wrappers=(Plain,)).open(STREAMS)
        timesteps, failed = [streams.start(3)], []
        for _ in range(30):
            timesteps.append(streams.step(np.zeros(STREAMS, int)))
            failed.append(dict(streams.failed))
        streams.close()
        lived.append((jax.tree.map(lambda *parts: np.stack(parts), *timesteps), failed))
    (here, failed), (there, failed_there) = lived
    assert isinstance(streams, WorkerStreams)
    assert_equal(there, here)
    assert failed_there == failed
    assert {stream for each in failed for stream in each} == {0, 1, 2}
    assert max(len(each) for each in failed) < STREAMS
    words = next(text for each in failed for text in each.values())
    assert words.startswith("OSError: broke at 0.")
    assert "(failing.py, line " in words
    first = next(step for step, each in enumerate(failed, 1) if each)
    np.testing.assert_array_equal(there.valid[first], [stream not in failed[first - 1] for stream in range(STREAMS)])


def test_a_killed_process_is_noticed_and_none_is_left():
    streams = make("CartPole-v1", processes=2).open(STREAMS)
    one, other = (worker.process.pid for worker in streams.workers)
    for process in (one, other):
        os.kill(process, signal.SIGINT)  # Ctrl-C reaches all processes of a terminal, and is for the parent alone
        os.kill(process, signal.SIGTERM)  # as a scheduler's does
    streams.start(0)
    with pytest.raises(ValueError, match="an action must be 3 numbers from 0 to 1"):
        streams.step(np.full(STREAMS, 2))
    streams.step(np.zeros(STREAMS, int))
    os.kill(other, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"^the process of streams 1 to 2 died with exit code -9$"):
        streams.step(np.zeros(STREAMS, int))
    assert multiprocessing.active_children() == []
    assert not alive(one)
    with pytest.raises(ValueError, match="these streams are closed"):
        streams.start(0)
    streams.close()


def test_a_process_that_raises_says_so_here():
    streams = make("CartPole-v1", processes=1).open(2)
    with pytest.raises(
        RuntimeError, match=r"^AttributeError: .*'dance'.* \(workers.py, line \d+\), in the process of streams 0 to 1$"
    ):
        streams._ask_all("dance", np.zeros(2, int))
    assert streams.closed
    assert multiprocessing.active_children() == []


def test_what_a_process_cannot_know_is_said_when_it_is_opened():
    gymnasium.register("RulaxOnlyHere-v0", "tests.envs.failing:Fragile")
    environment = make("RulaxOnlyHere-v0", processes=2)
    with pytest.raises(ValueError, match=r"^'RulaxOnlyHere-v0' cannot be opened in a process .*unknown environment .* 'module:Id'"):
        environment.open(1)
    assert multiprocessing.active_children() == []


ORPHAN = """
import os
from rulax.envs import make

if __name__ == "__main__":
    streams = make("CartPole-v1", processes=1).open(1)
    print(streams.workers[0].process.pid, flush=True)
"""


@pytest.mark.parametrize("end", ["os._exit(0)", "streams.start(0)"], ids=["at once", "without closing"])
def test_a_process_ends_with_its_parent(tmp_path, end):
    script = tmp_path / "orphan.py"
    script.write_text(f"{ORPHAN}    {end}\n")
    root = str(Path(__file__).resolve().parents[3])
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, cwd=root, env={**os.environ, "PYTHONPATH": root}, timeout=60
    )
    process, until = int(done.stdout), time.monotonic() + 20
    while alive(process) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(process)


HANGING = """
import sys
from rulax.envs import make
import numpy as np

if __name__ == "__main__":
    streams = make("tests.envs.misbehaving:RulaxMisbehaving-v0", processes=2, what=sys.argv[1], when=1, tell=sys.argv[2]).open(2)
    streams.start(0)
    print(*(worker.process.pid for worker in streams.workers), flush=True)
    streams.step(np.zeros(2, int))
"""


@pytest.mark.parametrize("what", ["hold", "deadlock"])
def test_a_process_that_hangs_ends_with_a_parent_that_is_killed(tmp_path, what):
    script, told, root = tmp_path / "hanging.py", tmp_path / "told", str(Path(__file__).resolve().parents[3])
    script.write_text(HANGING)
    parent = subprocess.Popen(
        [sys.executable, script, what, told], stdout=subprocess.PIPE, text=True, cwd=root, env={**os.environ, "PYTHONPATH": root}
    )
    try:
        processes = [int(each) for each in parent.stdout.readline().split()]
        until = time.monotonic() + 60
        while not told.exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert len(processes) == 2
        assert all(map(alive, processes))
    finally:
        parent.kill()
        parent.communicate()
    until = time.monotonic() + 20
    while any(map(alive, processes)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, processes))


def alive(process):
    """Whether a process runs; one that nobody fetches (a container's first process may not) has ended, too."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("CartPole-v1", {"processes": True}, "processes must be the number of processes that share the streams, .*, not True"),
        ("CartPole-v1", {"processes": "many"}, "processes must be the number .*, not 'many'"),
        ("CartPole-v1", {"processes": -1}, "processes must be the number .*, not -1"),
        ("CartPole-v1", {"processes": 2, "autoreset": "next_step"}, "autoreset asks for .* leave one of the two out"),
        ("CartPole-v1", {"processes": 2, "wrappers": (lambda one: one,)}, "has options that cannot be sent to a process: "),
        ("catch", {"processes": 2}, "runs inside of JAX; processes are for environments that run on the host"),
        ("atari/Pong", {"processes": 2}, "it has threads of its own, see its option threads"),
        ("envpool/Pong-v5", {"processes": 2}, "it has threads of its own, see its option num_threads"),
    ],
)
def test_what_cannot_be_shared_out(name, options, sentence):
    if "/" in name:
        need(name)
    with pytest.raises(ValueError, match=f"^'{name}'.*{sentence}"):
        make(name, **options)


def test_no_processes_are_this_one():
    assert not hasattr(make("CartPole-v1", processes=0), "processes")
    assert make("catch", processes=0) == make("catch")

"""Full disks, folders that move, two runs in one folder, and kills at every write: one sentence each, and nothing lost."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rulax.commands.cli import main
from rulax.errors import InUse
from rulax.records import checkpoint, lock, stages
from rulax.records.tensorboard import TensorBoard
from tests.commands.fake_discovery import install
from tests.commands.test_discover import LINE as DISCOVER
from tests.commands.test_discover import assert_same_run as assert_same_discovery
from tests.commands.test_train import assert_same_run

TRAIN = ["train", "catch", "--steps", "600", "--seeds", "2", "--quiet"]


class Killed(BaseException):
    """As if the process were gone."""


def killed_at(write: int, line: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a command until the move into place of its so many-th file: the name of that file, or nothing if it came to its end."""
    real, names = os.replace, []

    def replace(source, target):
        names.append(Path(target).name)
        if len(names) >= write:
            raise Killed
        real(source, target)

    with monkeypatch.context() as patched, contextlib.suppress(Killed):
        patched.setattr(os, "replace", replace)
        assert main(line) == 0
        return ""
    return names[write - 1]


def complete(folder: Path, wanted: tuple[str, ...], step: int) -> bool:
    return stages.missing(folder, wanted, step) == [] and (folder / "curve.png").exists() and (folder / "report.html").exists()


# -- disks and folders -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", disk], check=True)


@pytest.mark.parametrize(
    ("harm", "heal", "words"),
    [
        (fill, lambda disk: (disk / "filler").unlink(), "there is no space left on the disk"),
        (lambda disk: remount(disk, "ro"), lambda disk: remount(disk, "rw"), "it is read-only"),
    ],
)
def test_a_disk_that_refuses_ends_the_run_in_a_sentence(fake, tmp_path, small_disk, capsys, harm, heal, words) -> None:
    folder = small_disk / "here"
    main([*TRAIN, "--out", "whole"])
    capsys.readouterr()
    fake.on_chunk = lambda count: harm(small_disk) if count == 8 else None
    assert main([*TRAIN, "--out", str(folder)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert f"{folder} cannot be written: {words}" in said
    assert f"rulax train --resume {folder} goes on" in said
    assert checkpoint.load(folder / "checkpoint.safetensors").facts["step"] == 0
    fake.on_chunk = None
    assert main(["train", "--resume", str(folder), "--quiet"]) == 2, "and so does one that goes on before it is mended"
    heal(small_disk)
    assert main(["train", "--resume", str(folder), "--quiet"]) == 0
    assert_same_run(tmp_path / "whole", folder)


def test_a_folder_that_is_moved_ends_the_run_in_a_sentence(fake, tmp_path, capsys) -> None:
    fake.on_chunk = lambda count: Path("here").rename("there") if count == 8 else None
    assert main([*TRAIN, "--out", "here"]) == 2
    assert "error: here is gone: it was moved or removed while the run went on" in capsys.readouterr().err
    fake.on_chunk = None
    assert (tmp_path / "there" / lock.LOCK).exists()  # which that run could not remove
    assert main(["train", "--resume", "there", "--quiet"]) == 0
    assert not Path("here").exists()


def test_a_limit_of_file_sizes_ends_the_run_in_a_sentence(fake, capsys) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    fake.on_chunk = lambda count: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1])) if count == 8 else None
    try:
        code = main([*TRAIN, "--out", "here"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 2
    assert "ulimit -f" in capsys.readouterr().err


def test_a_discovery_says_so_as_well(small_disk, monkeypatch, capsys) -> None:
    monkeypatch.setattr("rulax.commands.build.start_jax", lambda *arguments: None)
    fake = install(monkeypatch.setattr)
    fake.on_step = lambda step: fill(small_disk) if step == 5 else None
    folder = small_disk / "here"
    assert main([*DISCOVER, "--out", str(folder)]) == 2
    assert f"no space left on the disk; what was saved before is whole; once this is mended, rulax discover --resume {folder}" in (
        " ".join(capsys.readouterr().err.split())
    )


def test_events_on_a_full_disk_are_an_error_at_once(tmp_path: Path) -> None:
    events = TensorBoard(tmp_path / "tensorboard")
    events.write({"return": 1.0}, 10)
    events.path = Path("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        events.write({"return": 2.0}, 20)
    events.close()


def test_tensorboard_reads_the_events(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = TensorBoard(tmp_path)
    for step in (10, 20, 30):
        first.write({"train/return": float(step), "train/loss": 0.5}, step)
    TensorBoard(tmp_path, 20).write({"train/return": 21.0}, 21)
    found = EventAccumulator(str(tmp_path)).Reload()
    assert [(each.step, each.value) for each in found.Scalars("train/return")] == [(10, 10.0), (21, 21.0)]


def test_other_errors_of_files_are_sentences(fake, tmp_path, capsys) -> None:
    main([*TRAIN, "--out", "here"])
    assert main(["runs", ".", "--csv", str(tmp_path / "nowhere" / "runs.csv")]) == 2
    assert capsys.readouterr().err.startswith("error: ")


# -- locks -----------------------------------------------------------------------------------------------------------------------


def test_a_second_run_is_refused_with_the_first_ones_process(fake, capsys) -> None:
    codes = []

    def second(count: int) -> None:
        if count == 3:
            fake.on_chunk = None
            codes.extend([main([*TRAIN, "--out", "here"]), main(["train", "--resume", "here", "--steps", "900", "--quiet"])])

    fake.on_chunk = second
    assert main([*TRAIN, "--out", "here"]) == 0
    assert codes == [2, 2]
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert all(f"here is in use by process {os.getpid()} on this host ({socket.gethostname()})" in line for line in said)
    assert not (Path("here") / lock.LOCK).exists()


def holder_of(folder: Path, **changes) -> dict:
    with lock.held(folder):
        found = json.loads((folder / lock.LOCK).read_text())
    return found | changes


def test_a_lock_is_stale_once_its_process_is_gone(tmp_path: Path) -> None:
    code = "import sys, pathlib; from rulax.records import lock\n"
    code += "with lock.held(pathlib.Path(sys.argv[1])): print(1, flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    with pytest.raises(InUse, match=f"process {process.pid} on this host"), lock.held(tmp_path):
        pass
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # killed, but still in the list of processes
    with lock.held(tmp_path):
        assert json.loads((tmp_path / lock.LOCK).read_text())["process"] == os.getpid()
    process.communicate()


def test_a_recycled_number_fools_nobody_and_other_hosts_are_left_to_the_user(tmp_path: Path) -> None:
    mine = holder_of(tmp_path)
    path = tmp_path / lock.LOCK
    path.write_text(json.dumps(mine))
    with lock.held(tmp_path):  # of this process, which does not work there
        pass
    path.write_text(json.dumps(mine | {"began": "another boot 17"}))
    with lock.held(tmp_path):
        pass
    path.write_text(json.dumps(mine | {"host": "elsewhere", "process": 7}))
    with pytest.raises(InUse, match=r"process 7 on host elsewhere since .* remove .*run\.lock and try again"), lock.held(tmp_path):
        pass


# -- kills -----------------------------------------------------------------------------------------------------------------------


def test_a_training_that_is_killed_at_any_write_is_repaired(fake, tmp_path, monkeypatch) -> None:
    main([*TRAIN, "--out", "whole"])
    seen, write = [], 1
    while name := killed_at(write, [*TRAIN, "--out", f"at-{write}"], monkeypatch):
        seen.append(name)
        folder = tmp_path / f"at-{write}"
        again = (
            ["train", "--resume", str(folder), "--quiet"] if (folder / "config.json").exists() else [*TRAIN, "--out", str(folder)]
        )
        assert main(again) == 0, f"killed before {name}"
        assert_same_run(tmp_path / "whole", folder)
        assert complete(folder, stages.OF_TRAINING, 600)
        write += 1
    assert {"config.json", "checkpoint.safetensors", "summary.json", "curve.png", "report.html", "stages.json"} <= set(seen)


@pytest.mark.parametrize("write", [4, 5, 10, 17, 18, 19, 20, 22, 24, 25])
def test_a_discovery_that_is_killed_at_a_write_is_repaired(tmp_path, monkeypatch, write) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rulax.commands.build.start_jax", lambda *arguments: None)
    install(monkeypatch.setattr)
    line = [*DISCOVER, "--steps", "12"]
    assert main([*line, "--out", "whole"]) == 0
    assert killed_at(write, [*line, "--out", "parts"], monkeypatch)
    assert main(["discover", "--resume", "parts"]) == 0
    assert_same_discovery(tmp_path / "whole", tmp_path / "parts")
    assert complete(tmp_path / "parts", stages.OF_DISCOVERY, 12)
    assert main(["discover", "--resume", "parts"]) == 2, "now it is finished"


def test_ctrl_c_in_the_last_evaluation_leaves_it_to_be_made(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rulax.commands.build.start_jax", lambda *arguments: None)
    install(monkeypatch.setattr)
    assert main([*DISCOVER, "--out", "whole"]) == 0
    real = sys.modules["rulax.commands.discover.evaluations"].Evaluator.evaluate
    with monkeypatch.context() as patched:
        evaluate = lambda self, rule, step, *rest: None if step == 25 else real(self, rule, step, *rest)  # noqa: E731
        patched.setattr("rulax.commands.discover.evaluations.Evaluator.evaluate", evaluate)
        assert main([*DISCOVER, "--out", "parts"]) == 130
    assert "stopped at meta-step 25 of 25" in capsys.readouterr().err
    assert main(["discover", "--resume", "parts"]) == 0
    assert_same_discovery(tmp_path / "whole", tmp_path / "parts")


def test_before_its_first_checkpoint_a_run_begins_again(fake, tmp_path, monkeypatch, capsys) -> None:
    line = [*TRAIN[:-1], "--log-every", "50"]
    main([*line, "--out", "whole"])
    assert killed_at(5, [*line, "--out", "parts"], monkeypatch) == "checkpoint.safetensors"
    assert main([*line, "--out", "parts"]) == 2
    assert "--resume parts" in capsys.readouterr().err
    assert main(["train", "--resume", "parts"]) == 0
    assert "parts holds no checkpoint yet; it begins again, with its own settings" in capsys.readouterr().err
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_a_finished_run_without_a_page_gets_one(fake, tmp_path, capsys) -> None:
    main([*TRAIN[:-1], "--out", "here"])
    stages.begin(tmp_path / "here")
    stages.record(tmp_path / "here", stages.TRAINED, 600)
    (tmp_path / "here" / "report.html").unlink()
    assert main(["train", "--resume", "here"]) == 0
    assert "nothing is left to train; what is still to be made: summary, curve, page" in capsys.readouterr().err
    assert complete(tmp_path / "here", stages.OF_TRAINING, 600)
    assert main(["train", "--resume", "here"]) == 2


def test_a_lock_does_not_outlive_an_interrupted_run(fake, tmp_path) -> None:
    fake.on_chunk = lambda count: os.kill(os.getpid(), signal.SIGINT) if count == 3 else None
    assert main([*TRAIN, "--out", "here"]) == 130
    assert not (tmp_path / "here" / lock.LOCK).exists()

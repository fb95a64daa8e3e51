"""`rulax watch` without a browser: what it serves, to whom, what it refuses, and which run it takes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rulax
from rulax.commands.cli import main
from rulax.commands.watch.run import Watch
from rulax.commands.watch.setup import find_run
from rulax.commands.watch.show import make
from rulax.report.train import write_train_page
from tests.report.folders import comparison, discover_folder, train_folder, train_row, write


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watch]:
    with rulax.watch(train_folder(tmp_path / "run", finished=False)) as page:
        yield page


def ask(page: Watch, path: str = "/", method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    """One request, with the path exactly as it stands here."""
    connection = http.client.HTTPConnection("127.0.0.1", page.server.server_address[1], timeout=20)
    connection.putrequest(method, path, skip_host=True)
    for name, value in ({"Host": "localhost:1"} | headers).items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    return connection.getresponse()


def later(path: Path, seconds: float) -> None:
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime + seconds))


# -- what is served ------------------------------------------------------------------------------------------------------------


def test_the_page_follows_the_folder(watching: Watch) -> None:
    first = ask(watching)
    assert first.status == 200
    assert "1,000 environment steps each" in first.read().decode()
    tag = first.headers["ETag"]
    same = ask(watching, If_None_Match=tag)
    assert (same.status, same.read()) == (304, b"")
    with (watching.folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(train_row(1100, [1.0, 2.0, 3.0])) + "\n")
    new = ask(watching, If_None_Match=tag)
    assert new.status == 200
    assert new.headers["ETag"] != tag
    assert "1,100 environment steps each" in new.read().decode()


def test_how_a_run_stands(tmp_path: Path) -> None:
    folder = train_folder(tmp_path / "run", finished=False)
    (folder / "summary.json").unlink()
    assert '<p id="live" class="running"' in make(folder)
    assert "This run is not finished" not in make(folder)  # advice for one that was stopped
    assert "--resume" not in make(folder)
    assert "rulax train --preset" in make(folder)
    write_train_page(folder)
    later(folder / "report.html", 5)
    assert '<p id="live" class="stopped"' in make(folder)
    assert "goes on from there" in make(folder)
    assert "--resume" in make(folder)
    later(folder / "config.json", 10)  # it was resumed
    assert '<p id="live" class="running"' in make(folder)
    (folder / "metrics.jsonl").write_text("")
    assert '<p id="live" class="waiting"' in make(folder)
    (folder / "metrics.jsonl").unlink()
    assert '<p id="live" class="waiting"' in make(folder)
    assert '<p id="live" class="finished"' in make(train_folder(tmp_path / "done"))


def test_a_finished_run_that_goes_on_is_no_longer_finished(tmp_path: Path) -> None:
    folder = train_folder(tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    (folder / "summary.json").write_text(json.dumps({"finished": True, "steps": 1000, "seconds": 10.0}))
    assert '<p id="live" class="finished"' in make(folder)
    config["settings"]["steps"] = 2000
    (folder / "config.json").write_text(json.dumps(config))
    assert '<p id="live" class="running"' in make(folder)


def test_a_discovery_is_scored_before_it_has_a_summary(tmp_path: Path) -> None:
    folder = discover_folder(tmp_path / "run", finished=False)
    (folder / "summary.json").unlink()
    page = make(folder)
    assert '<p id="live" class="running"' in page
    assert "<dt>best rule</dt><dd>meta-step 40</dd>" in page
    assert "<dt>validation score</dt><dd>0.500</dd>" in page


def test_a_comparison_shows_the_cell_that_is_being_trained(tmp_path: Path) -> None:
    found = comparison({"ppo": 0.5, "disco": 0.25}, {"catch": "held out"}, finished=False)
    folder = compare_folder(tmp_path / "run", found)
    assert '<p id="live" class="waiting"' in make(folder)
    write(folder / "score" / "catch-ppo", {}, [train_row(700, [0.5, 1.5, 2.5, 3.5, 4.5])], None)
    page = make(folder)
    assert '<p id="live" class="running"' in page
    assert '"x":[700],"mean":[2.5]' in page


@pytest.mark.parametrize("outside", ["../other", "/absolute", "link"])
def test_a_comparison_reads_nothing_outside_of_its_folder(tmp_path: Path, outside: str) -> None:
    other = write(tmp_path / "other", {}, [train_row(777, [0.5] * 5)], None)
    found = comparison({"ppo": 0.5, "disco": 0.25}, {"catch": "held out"}, finished=False)
    folder = compare_folder(tmp_path / "run", found)
    (folder / "link").symlink_to(other)
    found["cells"][0]["folder"] = str(other) if outside == "/absolute" else outside
    compare_folder(folder, found)
    assert "777" not in make(folder)


def compare_folder(folder: Path, found: dict) -> Path:
    write(folder, {"kind": "compare", "settings": {}}, [], None)
    (folder / "metrics.jsonl").unlink()
    (folder / "compare.json").write_text(json.dumps(found))
    return folder


def test_a_folder_that_is_damaged_while_it_is_watched(watching: Watch) -> None:
    (watching.folder / "config.json").write_text("{")
    answer = ask(watching)
    assert answer.status == 200
    assert "There is no page yet" in answer.read().decode()


# -- what is refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/config.json",
        "/metrics.jsonl",
        "/../run/config.json",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/etc/passwd",
        "http://evil.example/",
        "/link",
        "/?",
        "/\\..\\",
        "*",
    ],
)
def test_there_is_one_page_and_no_file(watching: Watch, path: str) -> None:
    (watching.folder / "link").symlink_to("/etc/passwd")
    answer = ask(watching, path)
    assert answer.status == 404
    assert b"root:" not in answer.read()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8300", "127.0.0.1.evil.example:80", "localhost@evil:80", "", ":80"])
def test_a_foreign_name_is_refused(watching: Watch, host: str) -> None:
    assert ask(watching, Host=host).status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(watching: Watch, method: str) -> None:
    before = sorted((path.name, path.read_bytes()) for path in watching.folder.iterdir())
    assert ask(watching, method=method).status == 501
    assert sorted((path.name, path.read_bytes()) for path in watching.folder.iterdir()) == before


def test_only_its_head(watching: Watch) -> None:
    answer = ask(watching, method="HEAD")
    assert (answer.status, answer.read()) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 1000
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_only_this_machine_can_ask(watching: Watch) -> None:
    assert watching.server.socket.getsockname()[0] == "127.0.0.1"


# -- which run, which port -----------------------------------------------------------------------------------------------------


def test_without_a_name_the_run_that_was_written_to_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for age, name in enumerate(["new", "old", "older"]):
        folder = train_folder(tmp_path / "runs" / name)
        for path in folder.iterdir():
            later(path, -100 * age)
    assert find_run() == Path("runs/new")
    assert find_run("old") == Path("runs/old")
    later(tmp_path / "runs" / "older" / "metrics.jsonl", 1000)
    assert find_run() == Path("runs/older")


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("", "no run in runs/ to watch"),
        ("runs/nothing", "there is no run folder runs/nothing"),
        ("empty", "empty holds no run"),
        ("many", "many holds several runs; watch one of them: many/one"),
        ("told", "told holds an explanation"),
        ("method", "has no page to watch"),
    ],
)
def test_what_cannot_be_watched(tmp_path: Path, monkeypatch, capsys, run: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    train_folder(tmp_path / "many" / "one")
    (tmp_path / "told").mkdir()
    (tmp_path / "told" / "explain.json").write_text("{}")
    write(tmp_path / "method", {"kind": "method", "settings": {}}, [], None)
    assert main(["watch", *([run] if run else []), "--no-open"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_busy_port(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = train_folder(tmp_path / "run")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["watch", str(folder), "--port", str(port), "--no-open"]) == 2
        assert capsys.readouterr().err == f"error: port {port} is in use; choose another --port, or leave it out\n"
    with rulax.watch(folder) as one, rulax.watch(folder) as two:  # without a port there is always a next one
        assert one.url != two.url
        assert ask(two).status == 200


def test_closing_ends_it(tmp_path: Path) -> None:
    page = rulax.watch(train_folder(tmp_path / "run"))
    page.close()
    page.close()
    with pytest.raises(ConnectionRefusedError):
        ask(page)


def test_ctrl_c_ends_the_command_cleanly(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "rulax", "watch", str(train_folder(tmp_path / "run")), "--no-open"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    shown = [process.stdout.readline() for _ in range(3)]
    assert "http://127.0.0.1:" in shown[1]
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest, errors) == (0, "\nno longer watching\n", "")


def test_a_run_in_memory_cannot_be_watched() -> None:
    from rulax.commands.train.result import Run
    from rulax.commands.train.settings import TrainConfig

    with pytest.raises(rulax.UserError, match="held in memory only"):
        rulax.watch(Run(TrainConfig(), None, [], True, 0.0))

"""Code that only a file names is not imported without the user's consent."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

import rulax
from rulax.commands.cli import main
from rulax.errors import UserError
from rulax.own import consent

EVIL = "from pathlib import Path\nPath('imported').touch()\nfrom rulax.envs.catch import Catch\n"
SMALL = [
    "--minibatches",
    "1",
    "--epochs",
    "1",
    "--streams",
    "2",
    "--unroll",
    "4",
    "--steps",
    "16",
    "--hidden",
    "4",
    "--no-animation",
]
IMPORTED = Path("imported")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder with a module in it that leaves a mark when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RULAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "evil.py").write_text(EVIL)
    (tmp_path / "evil_module.py").write_text(EVIL)
    yield tmp_path
    consent.begin()
    for name in [name for name in sys.modules if name == "evil_module" or name.startswith("_own_evil")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "line",
    [
        "env: evil.py:Catch",
        "env: evil_module:Catch",
        "env: evil.py",
        "env: 'evil.py:Catch:rows=5'",
        "env: gymnasium/evil_module:Some-v0",
        "env: evil_module:some/Id-v0",
        "env: dm_env/evil_module:Catch",
        "env: gymnasium/evil.py:Some-v0",
        "{env: catch, rule: 'evil.py:Catch'}",
        "{env: catch, torso: 'evil_module:Catch'}",
        "{env: catch, core: 'evil.py:Catch'}",
    ],
)
@pytest.mark.parametrize("record", [False, True])
def test_a_preset_imports_nothing_by_itself(here, capsys, line, record) -> None:
    preset = here / ("preset.json" if record else "preset.yaml")
    if record:
        import yaml

        line = json.dumps({"versions": {}, "settings": yaml.safe_load(line)})
    preset.write_text(line)
    assert main(["train", "--preset", preset.name, *SMALL]) == 2
    assert "--trust" in capsys.readouterr().err
    assert not IMPORTED.exists()
    with pytest.raises(UserError, match=r"rulax\.trust"):
        rulax.train(preset=preset.name)
    assert not IMPORTED.exists()


@pytest.mark.parametrize("words", [["--trust"], ["evil.py:Catch"], ["./evil.py:Catch:rows=5"]])
def test_consent_is_given_on_the_command_line(here, capsys, words) -> None:
    (here / "preset.yaml").write_text("{env: 'evil.py:Catch'}")
    # Refused as well, but only after the environment is made.
    assert main(["train", "--preset", "preset.yaml", *SMALL, "--steps", "4", *words]) == 2
    assert "less than one iteration" in capsys.readouterr().err
    assert IMPORTED.exists()


def test_consent_in_python(here) -> None:
    (here / "preset.yaml").write_text("{env: 'evil.py:Catch'}")
    rulax.trust("evil.py")
    with pytest.raises(UserError, match="less than one iteration"):
        rulax.train(preset="preset.yaml", minibatches=1, streams=2, unroll=4, steps=4)
    assert IMPORTED.exists()


def test_a_file_cannot_give_consent(here, capsys) -> None:
    (here / "preset.yaml").write_text("{env: 'evil.py:Catch', trust: true}")
    assert main(["train", "--preset", "preset.yaml"]) == 2
    assert "unknown setting 'trust'" in capsys.readouterr().err


def test_a_word_that_is_no_code_is_no_consent(here, capsys) -> None:
    (here / "preset.yaml").write_text("{env: 'evil_module:Catch'}")
    assert main(["train", "--preset", "preset.yaml", "--out", "evil_module"]) == 2
    assert not IMPORTED.exists()


def test_a_run_of_ones_own_goes_on_and_a_strangers_does_not(here, capsys, monkeypatch) -> None:
    assert main(["train", "evil.py:Catch", *SMALL, "--out", "run", "--quiet"]) == 0
    forget()
    assert main(["train", "--resume", "run", "--steps", "32", "--quiet"]) == 0  # signed by us, in this folder
    record = json.loads((here / "run" / "config.json").read_text())
    for name, changed in {
        "unsigned": {**record, "consent": ""},
        "other code": {**record, "settings": {**record["settings"], "env": "evil_module:Catch"}},
        "forged": {**record, "consent": record["consent"][:-1] + ("0" if record["consent"][-1] != "0" else "1")},
    }.items():
        forget()
        shutil.copytree("run", name)
        (here / name / "config.json").write_text(json.dumps(changed))
        for line in (["train", "--resume", name, "--steps", "48"], ["evaluate", name], ["play", name]):
            assert main(line) == 2, name
            assert "names code to import" in capsys.readouterr().err
        with pytest.raises(UserError, match="names code to import"):
            _ = rulax.load(name).agents
        assert not IMPORTED.exists()
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    shutil.copy(here / "evil.py", ".")
    assert main(["train", "--resume", "../run", "--steps", "48"]) == 2
    assert not IMPORTED.exists()


def forget() -> None:
    IMPORTED.unlink(missing_ok=True)
    for name in [name for name in sys.modules if name.startswith("_own_evil")]:
        del sys.modules[name]

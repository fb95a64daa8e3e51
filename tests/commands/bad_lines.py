"""What every command owes to a line it cannot run."""

from pathlib import Path
from typing import Any

from rulax.commands.cli import main


def refused_in_one_sentence(line: str, words: str, folder: Path, capsys: Any) -> None:
    """Exit code 2, one line on stderr that says what is wrong, and nothing in the current folder."""
    assert main(line.split()) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: ")
    assert output.err.count("\n") == 1
    assert words in output.err
    assert list(folder.iterdir()) == []

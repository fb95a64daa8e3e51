"""Work in a run folder: no second process does any there meanwhile, and what the disk refuses is one sentence."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from rulax.errors import FolderFailed
from rulax.records.folder import check_free
from rulax.records.lock import held

FULL = "there is no space left on the disk"
REASONS = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: "the user's share of the disk is used up",
    errno.EROFS: "it is read-only",
    errno.EACCES: "it may not be written",
    errno.EPERM: "it may not be written",
    errno.EFBIG: "a file would be larger than this process may write (ulimit -f)",
}


@contextlib.contextmanager
def at_work(folder: Path | None, command: str, fresh: bool = False) -> Iterator[None]:
    """Around all that is written to a run folder, if there is one.

    Args:
        folder: of the run.
        command: which `rulax COMMAND --resume` goes on.
        fresh: whether the run begins now; then the folder may hold none.
    """
    if folder is None:
        yield
        return
    try:
        with held(folder):
            if fresh:  # looked at again, now that nobody else can begin there
                check_free(str(folder), ours=True)
            yield
    except BrokenPipeError:  # of a terminal, which says nothing about the folder
        raise
    except FolderFailed as error:  # of a part, such as one cell of a comparison: the whole is what goes on
        raise failed(error.reason, folder, command) from error
    except OSError as error:
        raise failed(reason_of(error, folder), folder, command) from error


def failed(reason: str, folder: Path, command: str) -> FolderFailed:
    """The whole sentence."""
    return FolderFailed(reason, f"what was saved before is whole; once this is mended, rulax {command} --resume {folder} goes on")


def reason_of(error: OSError, folder: Path) -> str:
    """Why a folder cannot be written."""
    if not folder.is_dir():
        return f"{folder} is gone: it was moved or removed while the run went on"
    known = REASONS.get(error.errno or 0)
    return f"{folder} cannot be written: {known}" if known else f"{folder} cannot be written: {error}"

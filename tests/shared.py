"""Where tests and the parity command find the reference's recorded data: `RULAX_GOLDEN`, else `../shared/golden` beside the clone.

pytest is imported only where a test is skipped: `python -m tests.parity` must run without it.
"""

import os
from pathlib import Path
from typing import NoReturn

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "parity" / "data"  # the small part of the recorded data that comes with the repository
NO_GOLDEN = "no recorded reference data: set RULAX_GOLDEN to the folder that holds it"
NO_WEIGHTS = "Disco103's weights are not here: run `rulax rules get disco103`"


def golden_folder() -> Path:
    """The folder of recorded arrays, whether it exists or not."""
    return Path(os.environ.get("RULAX_GOLDEN", ROOT.parent / "shared" / "golden"))


def golden(name: str) -> dict[str, np.ndarray]:
    """One recorded file; the test is skipped where it is missing."""
    path = golden_folder() / name
    if not path.exists():
        skip(NO_GOLDEN)
    with np.load(path, allow_pickle=False) as data:
        return dict(data)


def weights_path() -> Path | None:
    """The published weights of Disco103: `../shared/weights` beside the clone, else where the package would look."""
    from rulax.rules.pretrained import FILE_NAME, find_disco103

    beside = ROOT.parent / "shared" / "weights" / FILE_NAME
    return beside if beside.exists() else find_disco103()


def weights() -> Path:
    """The same for a test, which is skipped where they are missing."""
    return weights_path() or skip(NO_WEIGHTS)


def skip(reason: str) -> NoReturn:
    """Skip the test that called."""
    import pytest

    pytest.skip(reason)

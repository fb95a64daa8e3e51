"""Where tests find the recorded data of the reference: `RULAX_GOLDEN`, else `../shared/golden` beside the clone."""

import os
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent


def golden_folder() -> Path:
    return Path(os.environ.get("RULAX_GOLDEN", ROOT.parent / "shared" / "golden"))


def golden(name: str) -> dict[str, np.ndarray]:
    """One recorded file; the test is skipped where it is not there."""
    path = golden_folder() / name
    if not path.exists():
        pytest.skip(f"no recorded reference data at {path.name}: set RULAX_GOLDEN to the folder that holds it")
    with np.load(path, allow_pickle=False) as data:
        return dict(data)


def weights_path() -> Path | None:
    """The published weights of Disco103: `../shared/weights` beside the clone, else where the package would look."""
    from rulax.rules.pretrained import FILE_NAME, find_disco103

    beside = ROOT.parent / "shared" / "weights" / FILE_NAME
    return beside if beside.exists() else find_disco103()


def weights() -> Path:
    """The same for a test, which is skipped where they are not."""
    path = weights_path()
    if path is None:
        pytest.skip("Disco103's weights are not here: run `rulax rules get disco103`")
    return path

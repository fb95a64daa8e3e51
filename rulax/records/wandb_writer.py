"""Weights & Biases, for those who ask for it (`--wandb PROJECT`): a writer like TensorBoard's."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from rulax.errors import UserError
from rulax.files import load_json, write_json

IDENTITY = "wandb.json"  # in the run folder, so that a resumed run goes on in the same place


class Identity(TypedDict):
    """The form of that file."""

    id: str


def check_wandb(project: str) -> None:
    """Refuse before anything starts if the package is not there."""
    # Found but not imported, which takes seconds and would delay every other error.
    if project and importlib.util.find_spec("wandb") is None:
        raise UserError("--wandb needs Weights & Biases, which is not installed: pip install 'rulax[wandb]'")


class WandbWriter:
    """One run at Weights & Biases."""

    def __init__(self, project: str, folder: Path | None, record: dict[str, Any]):
        import wandb

        place = {} if folder is None else {"name": folder.name, "dir": str(folder)}
        # `allow` serves both cases: a new identity starts a run, a remembered one goes on with it.
        self.run: Any = wandb.init(project=project, id=identity(folder), resume="allow", config=record, **place)

    def write(self, numbers: Mapping[str, float], step: int) -> None:
        """The numbers of one step; those of several rows of it become one line there."""
        self.run.log(dict(numbers), step=step)

    def close(self) -> None:
        """Send what is left."""
        self.run.finish()


def identity(folder: Path | None) -> str:
    """The run's name for the server: a new one, or the one that the folder remembers."""
    if folder is not None and (folder / IDENTITY).exists():
        return load_json(folder / IDENTITY, form=Identity)["id"]
    name = uuid.uuid4().hex[:12]
    if folder is not None:
        write_json(folder / IDENTITY, {"id": name})
    return name

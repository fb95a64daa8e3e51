"""What can go wrong for a user, as exceptions whose text is the one sentence that the command line prints."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

# Words of other libraries that are too far from ours for a spelling match.
SYNONYMS = {
    "lr": "learning_rate",
    "num_envs": "streams",
    "envs": "streams",
    "num_steps": "unroll",
    "timesteps": "steps",
    "total_timesteps": "steps",
    "total_steps": "steps",
    "num_seeds": "seeds",
    "buffer_size": "capacity",
    "update_epochs": "epochs",
    "max_grad_norm": "clip_gradient",
    "output": "out",
    "environment": "env",
    "algo": "rule",
}


class UserError(ValueError):
    """The input cannot be used; nothing has been changed on disk."""


class TrainingStopped(RuntimeError):
    """Training cannot go on (a reward or a parameter is no longer a number); the last good state has been kept."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM, after everything was saved. `run` holds what was learned so far."""

    def __init__(self, message: str, run: Any = None):
        super().__init__(message)
        self.run = run


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that the user most likely meant, if any is close."""
    known = list(known)
    plain = name.lower().strip("-").replace("-", "_")
    if SYNONYMS.get(plain) in known:
        return SYNONYMS[plain]
    matches = difflib.get_close_matches(plain, known, n=1, cutoff=0.45)
    return matches[0] if matches else None


def suggestion(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """The tail of an error sentence: `; did you mean 'x'?`, or what to read if nothing is close."""
    match = nearest(name, known)
    if match is not None:
        return f"; did you mean '{match}'?"
    return f"; {otherwise}" if otherwise else ""

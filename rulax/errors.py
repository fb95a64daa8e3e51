"""What can go wrong for a user, as exceptions whose text is the one sentence that the command line prints."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
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
    "norm_obs": "normalise_observations",
    "norm_reward": "normalise_rewards",
    "output": "out",
    "environment": "env",
    "algo": "rule",
}


LONGEST = 1500  # characters of a message


class UserError(ValueError):
    """The input cannot be used; nothing has been changed on disk."""

    def __str__(self) -> str:
        return readable(super().__str__(), LONGEST)


class TrainingStopped(RuntimeError):
    """Training cannot go on: a reward or a parameter is no longer finite, or an environment fails. The last good state is kept
    if there is a run folder."""


class InUse(UserError):
    """Another run works in the folder."""


class FolderFailed(RuntimeError):
    """A run folder can no longer be written: the disk is full, or the folder is gone. What was saved before is whole.

    Args:
        reason: what went wrong.
        advice: the rest of the sentence, about going on.
    """

    def __init__(self, reason: str, advice: str = ""):
        super().__init__(f"{reason}; {advice}" if advice else reason)
        self.reason = reason


# A KeyboardInterrupt, so that no `except Exception` of a caller swallows Ctrl-C.
class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM, after everything was saved. `run` holds what was learned so far."""

    def __init__(self, message: str, run: Any = None):
        super().__init__(message)
        self.run = run


def readable(text: str, most: int) -> str:
    """Text that may quote a file, for a terminal: at most so many characters, and nothing in it that a terminal would obey."""
    # Cut first: to escape a gigabyte takes minutes. Of the end some is kept, because there stands what to do.
    if len(text) > most:
        text = f"{text[: most - most // 3]} … {text[-(most // 3) :]}"
    return "".join(each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text)


def matches(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known names that a user who wrote `word` may have meant, the nearest first.

    Upper and lower case, and dashes and underscores, count as the same; a name such as `grid/delayed` is also found by `delayed`.
    """
    known = list(known)
    synonym = SYNONYMS.get(_folded(word))
    if synonym in known:
        return [synonym]
    # Whole names on the right of the union: where a short form is also somebody's whole name, the latter is meant.
    folded = {_folded(name.partition("/")[2]): name for name in known if "/" in name} | {_folded(name): name for name in known}
    return list(dict.fromkeys(folded[each] for each in difflib.get_close_matches(_folded(word), folded, most, cutoff=0.5)))


def _folded(name: str) -> str:
    return name.casefold().strip("-").replace("-", "_")


def suggestion(word: str, known: Iterable[str], otherwise: str = "", most: int = 1, shown: Callable[[str], str] = repr) -> str:
    """The tail of an error sentence: `; did you mean 'x'?`, or `otherwise` if nothing is close; `shown` writes a name."""
    return did_you_mean(*map(shown, matches(word, known, most))) or (f"; {otherwise}" if otherwise else "")


def did_you_mean(*names: str) -> str:
    """That tail for names which are found already, as they are to be written; empty for none."""
    return f"; did you mean {' or '.join(names)}?" if names else ""

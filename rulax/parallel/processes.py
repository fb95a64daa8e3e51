"""Several processes that compute together, on one host or on many: how they meet, agree, and end.

All of them run the same program on the same settings and ask for the same computations in the same order, so that each holds its
share of every array. What depends on a clock or a signal is agreed upon. Only the first one is seen: it writes, prints and draws.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from rulax.errors import UserError
from rulax.parallel.watch import LOST_SECONDS, Watch, runtime

MEET_SECONDS = 300  # for all processes to be there
END_SECONDS = 30  # for all of them to have ended
TEXTS, COPIED = "rulax/texts/", "rulax/copied"  # where words are left for others, and what they wait for

_watch: Watch | None = None  # while there are others
_asked = False  # whether somebody has called `join` in earnest
_texts = 0  # that were agreed upon


def join(hosts: str = "none", coordinator: str = "", process_id: int = 0, num_processes: int = 1) -> None:
    """Become one of several processes; before JAX computes anything. A process that is alone stays as it is.

    Args:
        hosts: "auto" where SLURM, Open MPI or a TPU pod has started all of them, and JAX can ask it for the rest.
        coordinator: else the address of the first process, host:port.
        process_id: else which one this is.
        num_processes: else how many there are.
    """
    global _watch, _asked
    if _watch or (hosts == "none" and not coordinator):
        return
    import jax

    _asked = True

    options: dict[str, Any] = {}
    if coordinator:
        options = {"coordinator_address": coordinator, "num_processes": num_processes, "process_id": process_id}
        if is_loopback(coordinator):  # else the first process would listen to the whole network
            options["coordinator_bind_address"] = coordinator
    try:
        jax.distributed.initialize(
            **options,
            initialization_timeout=MEET_SECONDS,
            heartbeat_timeout_seconds=int(4 * LOST_SECONDS),  # JAX ends a process without a word, so our own watch comes first
            shutdown_timeout_seconds=END_SECONDS,
        )
    except (RuntimeError, ValueError) as error:
        where = f"at {coordinator}" if coordinator else "by what started them (give --coordinator, --process-id, --num-processes)"
        raise UserError(f"the processes could not find each other {where}: {error}") from None
    if runtime().num_processes > 1:
        _watch = Watch(runtime().process_id, runtime().num_processes)


def check_address(coordinator: str, process_id: int, num_processes: int) -> None:
    """Refuse what would wait for processes that cannot come."""
    if not coordinator:
        if process_id or num_processes > 1:
            raise UserError("several processes need the address of the first of them: give --coordinator HOST:PORT to all")
        return
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"coordinator expects HOST:PORT, for example 10.0.0.1:9911, not '{coordinator}'")
    if process_id >= num_processes:
        raise UserError(f"process_id ({process_id}) must be less than num_processes ({num_processes}): they count from 0")


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return socket.gethostbyname(address.rpartition(":")[0]).startswith("127.")
    except OSError:
        return False


def leave() -> None:
    """End together: each waits for all others."""
    global _watch
    if _watch is None:
        return
    import jax

    agreed(0)
    _watch.close()
    _watch = None
    jax.distributed.shutdown()


def fail(reason: str, understood: bool) -> None:
    """End after an error: say so to the others; where the error is not understood, it may be that one of them was lost.

    Args:
        reason: the sentence that the others print.
        understood: whether it is this process's own error. Else the watch gets the time to find out whose it is.
    """
    if _watch is None:
        return
    if not understood:
        time.sleep(LOST_SECONDS + 5)  # the watch ends this process, if another one is gone
    _watch.tell(reason)


# -- who is who, and what they agree upon ----------------------------------------------------------------------------------------


def first() -> bool:
    """Whether this is the process that is seen."""
    return _watch is None or _watch.own == 0


def asked() -> bool:
    """Whether this process was told of others, even if there are none."""
    return _asked


def number() -> int:
    """How many processes there are."""
    return _watch.number if _watch else 1


def any_of(*flags: bool) -> tuple[bool, ...]:
    """Whether each is true in some process; all of them have to ask."""
    if _watch is None:
        return flags
    return tuple(bool(each) for each in agreed([int(flag) for flag in flags]).max(0))


def from_first(value: int) -> int:
    """A whole number as the first process has it."""
    return int(text_from_first(str(value)))


def text_from_first(text: str) -> str:
    """A text as the first process has it; without JAX's devices, so that it can be asked before a platform is chosen."""
    global _texts
    if _watch is None:
        return text
    _texts += 1
    if first():
        _watch.client.key_value_set(f"{TEXTS}{_texts}", text)
        return text
    return _watch.client.blocking_key_value_get(f"{TEXTS}{_texts}", 1000 * MEET_SECONDS)


def wait_for_all() -> None:
    """Go on when all have come here, before anything is computed."""
    text_from_first("")
    if _watch is not None:
        _watch.client.wait_at_barrier(f"{COPIED}{_texts}", 1000 * MEET_SECONDS)


def agreed(value: Any) -> Any:
    """What every process has given, [processes, ...]: here each waits for all others."""
    import numpy as np
    from jax.experimental import multihost_utils

    assert _watch is not None
    _watch.arrive()
    found = np.asarray(multihost_utils.process_allgather(np.asarray(value, np.int32)))
    _watch.went_on()
    return found

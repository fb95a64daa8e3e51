"""Starts programs in several processes that meet on loopback, and ends those that it started."""

import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# As `python -m rulax`, with other seconds until a process counts as lost.
IMPATIENT = (
    "import sys; from rulax.parallel import watch; watch.LOST_SECONDS = 8.0; from rulax.commands.cli import main; sys.exit(main())"
)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def environment(devices: int = 1) -> dict[str, str]:
    """Variables for a process with so many virtual devices, which finds these tests from any folder."""
    quick = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"  # what these programs do is compile
    flags = f"--xla_force_host_platform_device_count={devices} {quick}"
    return os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}


def run(*arguments: str, devices: int = 1) -> None:
    """One process, to its end."""
    found = subprocess.run([sys.executable, *arguments], env=environment(devices), capture_output=True, text=True, timeout=500)
    assert found.returncode == 0, found.stderr


@contextmanager
def several(number: int, arguments: list[str], meet: bool = True):
    """So many processes of one program; `meet` says by flags where."""
    address, started = f"127.0.0.1:{free_port()}", []
    try:
        for process in range(number):
            flags = ["--coordinator", address, "--process-id", str(process), "--num-processes", str(number)]
            own = [*arguments, *(flags if meet else [address, str(process), str(number)])]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            started.append(subprocess.Popen([sys.executable, *own], env=environment(), **pipes))
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()

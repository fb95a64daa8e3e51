"""Test-wide settings, made before JAX is imported."""

import gc
import os
from pathlib import Path

import pytest

# Compiling is most of what the tests do, and what they compile runs once: the cheapest code is the fastest here. Tests that
# learn are in a session of their own (`make test`), with the compiler's full effort.
if os.environ.get("RULAX_TEST_COMPILE", "fast") == "fast":
    flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()

# Each worker of pytest-xdist has a core of its own. Small programs whose threads compete for the same cores take several times
# as long as on one.
worker, cores = os.environ.get("PYTEST_XDIST_WORKER", ""), sorted(getattr(os, "sched_getaffinity", lambda pid: set())(0))
if worker and len(cores) > 1:
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


@pytest.fixture(autouse=True, scope="module")
def few_mappings():
    """Every compiled program maps memory, and Linux ends a process that asks for more than 65,530 mappings: forget some in time."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 25_000:
        import jax

        jax.clear_caches()
        gc.collect()


def pytest_terminal_summary(terminalreporter):
    """Say in so many words what a green run does not show on this machine."""
    from tests.shared import golden_folder

    if not golden_folder().is_dir():
        terminalreporter.section("equality with the DiscoRL reference", yellow=True, bold=True)
        terminalreporter.line(
            "The recorded reference data is NOT here: of its cases only the small set in tests/parity/data was compared "
            "(docs/conformance.md says what that shows). Set RULAX_GOLDEN to the folder that holds all of it."
        )

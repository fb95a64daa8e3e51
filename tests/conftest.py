"""Test-wide settings, made before JAX is imported."""

import os

# Compiling is most of what the tests do, and what they compile runs once: the cheapest code is the fastest here. Tests that
# learn are in a session of their own (`make test`), with the compiler's full effort.
if os.environ.get("RULAX_TEST_COMPILE", "fast") == "fast":
    flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()

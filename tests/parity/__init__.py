"""Are we equal to the reference? `python -m tests.parity DIR` says so with numbers; see docs/conformance.md."""

"""Are we equal to the reference? `python -m tests.parity DIR` runs our functions on recorded arrays; see docs/conformance.md."""

"""`python -m tests.parity DIR [--weights FILE]`: one line per case, in float32 and then float64; exit code 1 if any fails."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

CASES = ("1", "2", "3", "4", "5", "6", "7", "7w")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of recorded arrays (golden data)")
    parser.add_argument("--weights", type=Path, help="disco_103.npz [default: ../shared/weights, then the cache]")
    parser.add_argument("--no-weights", action="store_true", help="judge only what can be judged without them")
    parser.add_argument("--precision", choices=("float32", "float64"), help="only this one, in this process")
    parser.add_argument("--cases", nargs="+", choices=CASES, help="only these, for example 1 6 7w")
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        parser.error(f"there is no folder {arguments.folder}")
    if arguments.precision is None:
        # One process each: whether JAX computes in 64 bits is decided once per process.
        codes = [
            subprocess.run([*command(arguments), "--precision", one], check=False).returncode for one in ("float32", "float64")
        ]
        return max(codes)
    os.environ["JAX_ENABLE_X64"] = str(arguments.precision == "float64").lower()
    from tests.parity.run import run
    from tests.shared import weights_path

    weights = None if arguments.no_weights else arguments.weights or weights_path()
    return 0 if run(arguments.folder, weights, arguments.precision, arguments.cases) else 1


def command(arguments: argparse.Namespace) -> list[str]:
    weights = ["--weights", str(arguments.weights)] if arguments.weights else []
    weights += ["--no-weights"] if arguments.no_weights else []
    cases = ["--cases", *arguments.cases] if arguments.cases else []
    return [sys.executable, "-m", "tests.parity", str(arguments.folder), *weights, *cases]


if __name__ == "__main__":
    sys.exit(main())

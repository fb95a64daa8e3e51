#!/usr/bin/env bash
# Builds the wheel, installs it without extras into a clean environment, and trains, discovers and compares with it, in a folder
# outside of the clone, where no file of the sources can be imported by accident. Usage: tools/try_wheel.sh [PYTHON]
set -euo pipefail
clone=$(cd "$(dirname "$0")/.." && pwd)
python=${1:-python3}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$python" -m venv "$place/venv"
"$place/venv/bin/pip" wheel --quiet --no-deps --wheel-dir "$place" "$clone"
"$place/venv/bin/pip" install --quiet --constraint "$clone/constraints.txt" "$place"/rulax-*.whl
cd "$place"
export JAX_PLATFORMS=cpu PATH="$place/venv/bin:$PATH"
unset PYTHONPATH
python -c "import pathlib, rulax; assert pathlib.Path(rulax.__file__).is_relative_to('$place/venv'), rulax.__file__"
small=(--streams 4 --unroll 4 --hidden 8)
rulax train catch "${small[@]}" --minibatches 2 --steps 2k --quiet --out trained
rulax compare catch --rules ppo actor_critic "${small[@]}" --minibatches 2 --steps 1k --seeds 2 --quiet --out compared
# An example that discovers a rule and trains with it; it runs here instead of in the tests, where it would be compiled once more.
python "$clone/examples/07_discover.py" 2
# What is not installed is named with the line that installs it.
! rulax train CartPole-v1 2> missing || exit 1
grep -q "pip install 'rulax\[gymnasium\]'" missing || { cat missing; exit 1; }
test -s trained/report.html && test -s compared/report.html && test -s runs/discover-*/report.html
echo "the wheel trains, compares and discovers"

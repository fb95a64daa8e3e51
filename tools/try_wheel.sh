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
rulax discover catch:rows=3,columns=3 "${small[@]}" --batch 4 --capacity 16 --steps 2 --agents 1 --window 2 --validation-unroll 4 \
    --evaluation-seeds 1 --evaluation-updates 8 --action-model 8 --action-hidden 8 --critic-hidden 8 --quiet --out discovered \
    --rule-options prediction_size=4 bins=7 largest_value=3 hidden=4 lifetime_hidden=4 embedding=4
rulax train catch --rule discovered/rule.safetensors --steps 500 --quiet --out used
# What is not installed is named with the line that installs it.
! rulax train CartPole-v1 2> missing || exit 1
grep -q "pip install 'rulax\[gymnasium\]'" missing || { cat missing; exit 1; }
test -s trained/report.html && test -s compared/report.html && test -s discovered/report.html && test -s used/report.html
echo "the wheel trains, compares and discovers"

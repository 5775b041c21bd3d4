#!/usr/bin/env bash
# Every table of docs/speed.md, about an hour on two quiet cores: benches/all.sh [--quick]
set -uo pipefail
cd "$(dirname "$0")/.."
export OMP_WAIT_POLICY=passive PYTHONPATH=src
out=docs/measured
run() { echo "== $*"; timeout 1800 .venv/bin/python "$@" || echo "a limit is missed: $*"; }
run benches/memory.py "$@" --json $out/pass.json
[ $# -gt 0 ] || run benches/memory.py --rows 60000 --json $out/pass-60000.json
run benches/speed.py "$@" --json $out/kernels.json
run benches/decode.py --json $out/decode.json
run benches/growth.py "$@" --out $out/growth.json
run benches/rivals.py "$@" --out docs/speed.json
run scripts/draw_speed.py

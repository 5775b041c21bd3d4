#!/usr/bin/env bash
# Test what needs no torch in environments without it, on Python 3.11 to 3.13, where this machine has them.
set -euo pipefail
cd "$(dirname "$0")/.."
tests=(tests/test_light.py tests/core tests/metrics tests/images --ignore tests/images/test_scrambled.py)
for version in 3.11 3.12 3.13; do
  python=""
  for each in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version"*/bin/python; do
    if "$each" -c "" 2>/dev/null; then python=$each; break; fi
  done
  if [ -z "$python" ]; then echo "Python $version is not on this machine: not tested"; continue; fi
  venv=".venv-$version"
  test -x "$venv/bin/python" || "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary=:all: \
    '.[serve,parquet]' pytest pytest-timeout hypothesis httpx
  echo "Python $version, without torch: $(du -sh "$venv" | cut -f1)"
  PYTHONPATH="$PWD/src" "$venv/bin/python" -m pytest -p no:cacheprovider "${tests[@]}"
done

#!/usr/bin/env bash
# Test the modules that need no torch on Python 3.12 and 3.13, where this machine has them.
set -euo pipefail
cd "$(dirname "$0")/.."
tests=(tests/core tests/metrics tests/images --ignore tests/images/test_scrambled.py)
for version in 3.12 3.13; do
  python=""
  for each in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version"*/bin/python; do
    if "$each" -c "" 2>/dev/null; then python=$each; break; fi
  done
  if [ -z "$python" ]; then echo "Python $version is not on this machine: not tested"; continue; fi
  venv=".venv-$version"
  test -x "$venv/bin/python" || "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary=:all: \
    numpy scipy pillow safetensors typer rich filelock pyarrow pytest pytest-timeout hypothesis
  echo "Python $version, without torch:"
  PYTHONPATH="$PWD/src" "$venv/bin/python" -m pytest -p no:cacheprovider "${tests[@]}"
done

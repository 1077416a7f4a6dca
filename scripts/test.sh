#!/usr/bin/env bash
# Everything that needs no training run: ruff, mypy, then the unit, contract and sanity tests.
#
# Hardware:     2 cores, 4 GB of memory, no GPU.
# Time:         2 to 5 minutes (the first run also makes .venv and mypy's cache).
# You will see: one line for ruff, one for mypy, pytest's summary last.
#
# Usage: bash scripts/test.sh [pytest arguments]     e.g. -k doctor, -x, -m e2e tests/e2e
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=${VENV:-.venv}
LINT=${LINT:-1}          # 0: pytest only

bash scripts/setup.sh
if [[ $LINT == 1 ]]; then
  "$VENV/bin/ruff" check .
  "$VENV/bin/mypy"
fi
"$VENV/bin/python" -m pytest -m "not e2e and not nightly" "$@"

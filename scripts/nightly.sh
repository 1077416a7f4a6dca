#!/usr/bin/env bash
# The long checks, resumable: a stage that passed leaves a stamp and is not run again for the same date.
#
# Hardware:     2 cores, 24 GB of memory, no GPU.
# Time:         not measured as one piece; stages measured alone come to about 165 minutes. Each prints what to expect.
# You will see: one line a stage; its output goes to runs/nightly/<date>/<stage>.log.
#
# Usage: bash scripts/nightly.sh [Hydra overrides for the smoke run and the controls]
#        DATE=2026-11-30 bash scripts/nightly.sh      go on where that night stopped
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

DATE=${DATE:-$(date +%F)}
OUT=${OUT:-runs/nightly/$DATE}
VENV=${VENV:-.venv}

mkdir -p "$OUT"
failed=()

# stage NAME EXPECTED COMMAND...: a failing stage does not keep the next ones from running.
stage() {
  local name=$1 expected=$2; shift 2
  if [[ -e $OUT/$name.done ]]; then echo "[$name] done before ($(cat "$OUT/$name.done"))"; return; fi
  echo "[$name] expected: $expected; log: $OUT/$name.log"
  SECONDS=0
  if "$@" >"$OUT/$name.log" 2>&1; then
    echo "$(date +%H:%M:%S), ${SECONDS} s" >"$OUT/$name.done"
    echo "[$name] passed in ${SECONDS} s"
  else
    failed+=("$name")
    echo "[$name] FAILED after ${SECONDS} s; the end of its log:" >&2
    tail -n 15 "$OUT/$name.log" >&2
  fi
}

stage setup      "5 minutes, none when .venv is up to date" bash scripts/setup.sh
stage tests      "35 minutes" "$VENV/bin/python" -m pytest -m "e2e or nightly or not e2e" --timeout=3600
stage properties "15 minutes" env HYPOTHESIS_PROFILE=nightly "$VENV/bin/python" -m pytest -m "not e2e" tests/unit
stage smoke      "30 minutes" bash scripts/smoke.sh "$@"
stage controls   "90 minutes" bash scripts/run_controls.sh "$@"

if (( ${#failed[@]} )); then
  echo "nightly: failed: ${failed[*]}. Run this script again with DATE=$DATE to repeat only those." >&2
  exit 1
fi
echo "nightly: every stage of $DATE passed; logs are in $OUT"

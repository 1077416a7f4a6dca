#!/usr/bin/env bash
# What      Go on with a stopped run from its last checkpoint, in the same folder and with the same experiment.
# Hardware  What the run was started on.
# Time      Start-up (about a minute on a CPU) plus the steps that are left.
# You see   The same progress bar; records and metrics are appended, never overwritten.
# Usage     bash scripts/resume.sh RUN [hydra overrides...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

RUN=${1:?usage: bash scripts/resume.sh RUN [hydra overrides...]}
shift

bash scripts/setup.sh
.venv/bin/agent-contracts resume "$RUN" "$@"

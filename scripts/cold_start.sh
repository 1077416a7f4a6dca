#!/usr/bin/env bash
# Trains the policy that reinforcement learning starts from, from nothing, and caches it.
#
# Hardware:     2 cores, 3 GB of memory, no GPU.
# Time:         8 to 9 minutes (660 CPU-seconds); seconds when the cache holds it.
# You will see: a progress bar with the loss, held-out success at temperature 1 and greedy with counts, and last the
#               folder (model/, tokenizer/, report.json) and the digest of the checkpoint.
#
# Usage: bash scripts/cold_start.sh [--imitation-steps 1800]
#        AGENT_CONTRACTS_CACHE=/data/cache bash scripts/cold_start.sh      another cache than .cache
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=${VENV:-.venv}
export AGENT_CONTRACTS_CACHE=${AGENT_CONTRACTS_CACHE:-.cache}
# Beside any other load, two threads that spin at barriers wait for each other: ten times slower.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE}

exec "$VENV/bin/python" -m recipe.agent_contracts.cold_start.fixture "$@"

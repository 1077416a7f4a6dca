#!/usr/bin/env bash
# The evidence that the rewards did it: normal RLOO beside its controls, from one cold start, on the same held-out tasks.
#
#   normal              RLOO, as in smoke.sh
#   shuffled_<seed>     the null update: returns permuted within each group, for SHORT_STEPS steps
#   frozen              no update: the cold start evaluated as it is; the baseline of every gain
#   frozen_again        the same with another engine seed: what the method finds where nothing differs
#   sft_only            imitation of demonstrations on as many action tokens as the normal arm trained
#
# Hardware:     2 cores, 8 GiB free memory, no GPU.
# Time:         at most 90 minutes once environment and cold start are there; each arm prints what to expect.
# You will see: a progress bar an arm, then a table of gains over frozen with intervals, and the verdict in words. Each
#               arm is a run folder in OUT; the comparison is in OUT/normal/audits/controls.json, where gate G19 reads it.
#
# Usage: bash scripts/run_controls.sh [Hydra overrides for every arm]
#        DATE=2026-12-07 bash scripts/run_controls.sh      go on where that day stopped: finished arms are skipped
#        SMALL=1 bash scripts/run_controls.sh              the same script on few steps and tasks; measures nothing
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=${VENV:-.venv}
SMALL=${SMALL:-0}
DATE=${DATE:-$(date +%F)}
SEED=${SEED:-1}
TASKS=${TASKS:-smoke}
ENGINE_SEED=${ENGINE_SEED:-42}
OTHER_ENGINE_SEED=${OTHER_ENGINE_SEED:-43}
CACHE=${AGENT_CONTRACTS_CACHE:-.cache}
DATA=${DATA:-$CACHE/data/$TASKS-seed$SEED}
OVERRIDES=("$@")
if [[ $SMALL == 1 ]]; then
  STEPS=${STEPS:-2} SHORT_STEPS=${SHORT_STEPS:-2} SHUFFLE_SEEDS=${SHUFFLE_SEEDS:-1} COLD_START_STEPS=${COLD_START_STEPS:-900}
  OVERRIDES=(data.val_max_samples=40 "${OVERRIDES[@]}")
  OUT=${OUT:-runs/controls/$DATE-small}
fi
STEPS=${STEPS:-40}
SHORT_STEPS=${SHORT_STEPS:-20}
SHUFFLE_SEEDS=${SHUFFLE_SEEDS:-1 2 3}
COLD_START_STEPS=${COLD_START_STEPS:-1800}
OUT=${OUT:-runs/controls/$DATE}

# arm NAME EXPECTED OVERRIDES...: a run folder of that name, unless it is there and finished.
arm() {
  local run=$OUT/$1 expected=$2; shift 2
  if [[ -e $run.done ]]; then echo "[$run] done before ($(cat "$run.done"))"; return; fi
  if [[ -e $run ]]; then
    mkdir -p "$OUT/unfinished"
    mv "$run" "$OUT/unfinished/$(basename "$run")-$(date +%s)"
  fi
  echo "[$run] expected: $expected"
  SECONDS=0
  "$VENV/bin/agent-contracts" train --run "$run" "${common[@]}" "$@" "${OVERRIDES[@]}"
  echo "$(date +%H:%M:%S), ${SECONDS} s" >"$run.done"
}

bash scripts/setup.sh
"$VENV/bin/python" data_preprocess/terminal_tasks.py --tasks "$TASKS" --seed "$SEED" --out "$DATA"
bash scripts/cold_start.sh --imitation-steps "$COLD_START_STEPS"
POLICY=$("$VENV/bin/agent-contracts" policy --imitation-steps "$COLD_START_STEPS")

common=(
    contract.run.experiment=controls
    actor_rollout_ref.model.path="$POLICY/model"
    actor_rollout_ref.model.tokenizer_path="$POLICY/tokenizer"
    actor_rollout_ref.rollout.seed="$ENGINE_SEED"
    data.train_files="$PWD/$DATA/train.parquet"
    data.val_files="$PWD/$DATA/heldout.parquet"
    trainer.total_training_steps="$STEPS"
    trainer.save_freq="$STEPS"
    actor_rollout_ref.rollout.trace.max_samples_per_step_per_worker=1
    "+contract.evaluation.gates_not_applicable.G12=every arm trains synchronously"
)
mkdir -p "$OUT"
arm frozen "3 minutes" contract.evaluation.control=frozen
arm frozen_again "3 minutes" contract.evaluation.control=frozen actor_rollout_ref.rollout.seed="$OTHER_ENGINE_SEED"
arm normal "12 minutes"
for seed in $SHUFFLE_SEEDS; do
  arm "shuffled_$seed" "6 minutes" contract.evaluation.control=shuffled_rewards contract.evaluation.shuffle_seed="$seed" \
    trainer.total_training_steps="$SHORT_STEPS" trainer.save_freq="$SHORT_STEPS" trainer.val_before_train=false
done
if [[ ! -e $OUT/policies/sft_only ]]; then
  "$VENV/bin/agent-contracts" sft-only "$OUT/normal" "$OUT/policies/sft_only" --seed "$SEED"
fi
arm sft_only "3 minutes" contract.evaluation.control=sft_only \
  actor_rollout_ref.model.path="$(realpath "$OUT/policies/sft_only/model")"
"$VENV/bin/agent-contracts" controls "$OUT"

#!/usr/bin/env bash
# The article's smoke experiment on a GPU: Qwen2.5-1.5B-Instruct, LoRA, 48 train and 16 held-out terminal tasks.
#
# Hardware:     one NVIDIA GPU with 40 GB or more (NUM_GPUS for several on one machine), Python 3.11 with
#               pip install -e '.[gpu-vllm]', and the model in the hub's cache or a hub within reach.
# Time:         not measured: this script has only been composed and checked, on a machine without a GPU.
# You will see: the two data files, then verl's own log with one block of metrics a step; the rest is in runs/.
#
# Usage: bash scripts/run_qwen2_5_1_5b_lora_vllm.sh [Hydra overrides]
#        DRY_RUN=1 bash scripts/run_qwen2_5_1_5b_lora_vllm.sh      stop once the configuration is composed and checked
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-python3}
DRY_RUN=${DRY_RUN:-0}
MODEL_PATH=${MODEL_PATH:-Qwen/Qwen2.5-1.5B-Instruct}
DATA=${DATA:-.cache/terminal_article}      # train.parquet and heldout.parquet; written when missing
NUM_GPUS=${NUM_GPUS:-1}
NUM_NODES=${NUM_NODES:-1}
LORA_RANK=${LORA_RANK:-32}
LORA_ALPHA=${LORA_ALPHA:-32}
LEARNING_RATE=${LEARNING_RATE:-1e-5}
KL_BETA=${KL_BETA:-0.02}
GROUP_SIZE=${GROUP_SIZE:-8}
TASKS_PER_BATCH=${TASKS_PER_BATCH:-16}
STEP_BUDGET=${STEP_BUDGET:-8}              # model turns of an episode
TOKEN_BUDGET=${TOKEN_BUDGET:-2048}         # policy and observation tokens of an episode
MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-1024}
TRAINING_STEPS=${TRAINING_STEPS:-40}
GPU_MEMORY_UTILIZATION=${GPU_MEMORY_UTILIZATION:-0.5}
MICRO_BATCH=${MICRO_BATCH:-4}

EXPERIMENT=(
  contract.run.experiment=qwen2_5_1_5b_lora
  contract.policy.trainable=lora
  contract.environment.train_tasks=48
  contract.environment.heldout_tasks=16
  contract.environment.step_budget="$STEP_BUDGET"
  contract.environment.token_budget="$TOKEN_BUDGET"
  contract.rollout.group_size="$GROUP_SIZE"
  contract.rollout.temperature=1.0
  contract.rollout.top_p=1.0
  contract.rollout.top_k=null
  contract.credit.estimator=rloo
  contract.credit.reduction=episode_sum
  contract.credit.group_reward_scale=none
  contract.update.objective=reinforce_with_kl
  contract.update.kl_beta="$KL_BETA"
  contract.update.optimizer_steps_per_fresh_batch=1
  contract.update.tasks_per_batch="$TASKS_PER_BATCH"
  contract.evaluation.attempts_per_task=3
)

DATASET=(
  data.train_files="$DATA/train.parquet"
  data.val_files="$DATA/heldout.parquet"
  data.max_prompt_length="$MAX_PROMPT_LENGTH"
)

MODEL=(
  actor_rollout_ref.model.path="$MODEL_PATH"
  actor_rollout_ref.model.lora_rank="$LORA_RANK"
  actor_rollout_ref.model.lora_alpha="$LORA_ALPHA"
  actor_rollout_ref.model.target_modules=all-linear
  actor_rollout_ref.model.enable_gradient_checkpointing=true
)

ACTOR=(
  actor_rollout_ref.actor.optim.lr="$LEARNING_RATE"
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu="$MICRO_BATCH"
  actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu="$MICRO_BATCH"
)

ROLLOUT=(
  actor_rollout_ref.rollout.name=vllm
  actor_rollout_ref.rollout.tensor_model_parallel_size=1
  actor_rollout_ref.rollout.gpu_memory_utilization="$GPU_MEMORY_UTILIZATION"
  actor_rollout_ref.rollout.max_model_len=$((MAX_PROMPT_LENGTH + TOKEN_BUDGET))
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu="$MICRO_BATCH"
  actor_rollout_ref.rollout.load_format=safetensors    # the engine reads the base model itself; only the adapter is sent
)

TRAINER=(
  trainer.nnodes="$NUM_NODES"
  trainer.n_gpus_per_node="$NUM_GPUS"
  trainer.total_training_steps="$TRAINING_STEPS"
)

LAUNCH=("$PYTHON" -m verl_ext.launch)
if [[ $DRY_RUN == 1 ]]; then
  LAUNCH+=(--dry-run)
elif [[ ! -e $DATA/train.parquet || ! -e $DATA/heldout.parquet ]]; then
  # The budgets are part of each task and shown to the policy, so the files are made for these.
  "$PYTHON" data_preprocess/terminal_tasks.py --tasks article --out "$DATA" \
    --step-budget "$STEP_BUDGET" --token-budget "$TOKEN_BUDGET"
fi

exec "${LAUNCH[@]}" platform=gpu \
  "${EXPERIMENT[@]}" \
  "${DATASET[@]}" \
  "${MODEL[@]}" \
  "${ACTOR[@]}" \
  "${ROLLOUT[@]}" \
  "${TRAINER[@]}" \
  "$@"

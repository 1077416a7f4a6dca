"""Any Hugging Face model in the cold start's place: a pretrained Llama-architecture model with a tied output head."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from recipe.agent_contracts.transition.envs.terminal.dataset import Budgets, DatasetSize, write_dataset
from recipe.agent_contracts.transition.trajectory import episodes
from tests.e2e.conftest import REPOSITORY, read_tail, run_limited, train_command

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(3600)]

NUM_STEPS = 2
TASKS_PER_BATCH, GROUP_SIZE = 2, 2


@pytest.fixture(scope="module")
def pretrained_run(logs: Path) -> Path:
    """Two tiny steps: what is tested is that the served weights are the trained ones."""
    model, log = REPOSITORY / ".cache" / "smollm2", logs / "pretrained.log"
    fetched = run_limited([sys.executable, "data_preprocess/smollm2.py", "--out", str(model)], 600, log)
    assert fetched == 0, read_tail(log)
    budgets = Budgets(step_budget=2, token_budget=160)
    train, heldout = write_dataset(logs, DatasetSize(num_train=8, num_heldout=2), seed=1, budgets=budgets)
    run = REPOSITORY / "runs" / "e2e" / f"{logs.parent.name}-pretrained"
    command = [*train_command(run, model, model, train, heldout), "data.max_prompt_length=512"]
    command += ["contract.environment.step_budget=2", "contract.environment.token_budget=160"]
    command += [f"contract.update.tasks_per_batch={TASKS_PER_BATCH}", f"contract.rollout.group_size={GROUP_SIZE}"]
    command += ["actor_rollout_ref.rollout.max_model_len=704", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2"]
    command += ["actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=2"]
    command += ["actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2"]
    # A bucket holds the largest tensor: the embedding is 113 MB in float32.
    command += ["actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=256"]
    command += [f"trainer.total_training_steps={NUM_STEPS}", "trainer.save_freq=-1"]
    command += ["actor_rollout_ref.actor.optim.lr=1e-5"]
    print(f"\nlogs: {log} and {run}/train.log")
    assert run_limited(command, 1800, log) == 0, read_tail(log)
    return run


def test_the_served_model_is_the_trained_one(pretrained_run):
    """Trap: an engine that skips the tied head serves random words, and only this figure says so."""
    metrics = [json.loads(line)["data"] for line in (pretrained_run / "metrics.jsonl").read_text().splitlines()]
    gaps = [entry["training/rollout_probs_diff_max"] for entry in metrics if "training/rollout_probs_diff_max" in entry]
    assert len(gaps) == NUM_STEPS
    assert max(gaps) < 1e-3


def test_every_episode_of_a_model_that_knows_no_tool_ends_with_a_code(pretrained_run):
    played = list(episodes(pretrained_run))
    assert len(played) >= NUM_STEPS * TASKS_PER_BATCH * GROUP_SIZE
    assert all(turns[-1].termination_reason is not None for turns in played)

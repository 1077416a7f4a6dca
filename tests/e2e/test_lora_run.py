"""LoRA in a real run: the adapter is what is trained, served and exported, and the base model stays as it was."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from safetensors.torch import load_file

from recipe.agent_contracts.transition.trajectory import read_run
from tests.e2e.conftest import REPOSITORY, read_tail, run_limited, train_like

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

NUM_STEPS = 2
TASKS_PER_BATCH = 4


@pytest.fixture(scope="module")
def lora_run(smoke_run: Path, logs: Path) -> Path:
    """Two small steps: the second one samples with the adapter that the first one made."""
    if finished := os.environ.get("AGENT_CONTRACTS_E2E_LORA_RUN"):
        return Path(finished).absolute()
    run = smoke_run.parent / f"{smoke_run.name}-lora"
    command = train_like(smoke_run, run)
    command += ["contract.policy.trainable=lora", "actor_rollout_ref.model.lora_rank=8"]
    command += ["actor_rollout_ref.model.lora_alpha=16", f"contract.update.tasks_per_batch={TASKS_PER_BATCH}"]
    command += [f"trainer.total_training_steps={NUM_STEPS}", "trainer.save_freq=1"]
    command += ["actor_rollout_ref.actor.optim.lr=1e-3"]
    log = logs / "lora.log"
    print(f"\nlogs: {log} and {run}/train.log")
    code = run_limited(command, 600, log)
    assert code == 0, f"exit code {code}:\n{read_tail(log)}"
    return run


@pytest.mark.parametrize("words", [[], ["--merge"]], ids=["adapter", "merged"])
def test_the_exported_adapter_is_what_the_second_step_sampled_with(lora_run, tmp_path, words):
    assert {record.behavior_policy_version for record in read_run(lora_run)} == {0, 1}
    out = tmp_path / "exported"
    command = [str(REPOSITORY / ".venv/bin/agent-contracts"), "export", str(lora_run), str(out), "--step", "1", *words]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "reloaded log probabilities equal the served ones" in shown.stdout
    if not words:
        adapter = load_file(out / "adapter_model.safetensors")
        assert max(float(weight.abs().max()) for name, weight in adapter.items() if "lora_B" in name) > 0

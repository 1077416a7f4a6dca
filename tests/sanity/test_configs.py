"""Every shipped configuration composes and passes the checks, and what is said of verl's keys holds at this verl."""

from __future__ import annotations

import importlib.util
import os
import re
import stat
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from recipe.agent_contracts.config import bindings, renamed
from recipe.agent_contracts.config.contradictions import COUNTS
from recipe.agent_contracts.config.keys import lookup
from recipe.agent_contracts.policy.manifest import Sampler

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "recipe" / "agent_contracts" / "config"
VERL = Path(importlib.util.find_spec("verl").submodule_search_locations[0])
SCRIPTS = sorted((ROOT / "scripts").glob("*.sh"))
GPU_SCRIPT = ROOT / "scripts" / "run_qwen2_5_1_5b_lora_vllm.sh"
PLATFORMS = sorted(path.stem for path in (CONFIG / "platform").glob("*.yaml"))
REQUIRED = (
    "data.train_files=train.parquet",
    "data.val_files=heldout.parquet",
    "actor_rollout_ref.model.path=model",
    "actor_rollout_ref.model.tokenizer_path=tokenizer",
)
OVERRIDE = re.compile(r"(?:^|[\s\"'(])(\+{0,2})([a-z]\w*(?:\.\w+)+)=", re.MULTILINE)
COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)

CONTRACT_KEYS = {
    "run": "experiment root folder",
    "policy": "trainable require_manifest lock_scaffold_across_checkpoints parser",
    "environment": "domain train_tasks heldout_tasks step_budget token_budget tool_timeout_seconds "
    "max_observation_chars observation_keeps reset_each_episode snapshot_backend base_snapshot_per_task branching",
    "verification": "timeout_seconds processes require_guarantees judge objective",
    "records": "compression",
    "rollout": "mode group_size temperature top_p top_k pin_policy_for_full_episode max_version_lag "
    "require_one_behavior_version_per_group in_flight_policy partial_episode_policy require_termination_reason "
    "context_compaction max_failed_groups_per_step",
    "admission": "group_deadline_seconds max_age_seconds max_censored_share zero_variance",
    "consistency": "audit_frozen_checkpoint tolerance_source max_abs_p95 max_abs_max max_k3",
    "weight_sync": "transport publish require_all_worker_checksums kv_cache_on_update",
    "credit": "estimator reduction group_reward_scale",
    "update": "objective behavior_policy proximal_policy clip_low clip_high off_policy_weight off_policy_threshold "
    "reference_policy kl_beta optimizer_steps_per_fresh_batch tasks_per_batch",
    "evaluation": "control shuffle_seed attempts_per_task seeds retain_suites temporal_cutoff template_disjoint "
    "environment_family_disjoint repository_overlap_audit dedup_rule_version gates_not_applicable",
}
"""Public: an experiment.yaml that was written once must stay readable. Add keys; do not rename or drop them."""


@cache
def composed(*overrides: str) -> dict[str, Any]:
    with initialize_config_module("recipe.agent_contracts.config", version_base=None):
        return OmegaConf.to_container(compose("agent_contracts", overrides=list(overrides)), resolve=True)


@cache
def verl_defaults() -> dict[str, Any]:
    return yaml.safe_load((VERL / "trainer/config/_generated_ppo_trainer.yaml").read_text())


def exists(config: dict[str, Any], key: str) -> bool:
    missing = object()
    return lookup(config, key, missing) is not missing


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_default_configuration_composes_and_passes(platform: str) -> None:
    experiment = bindings.check(composed(f"platform={platform}", *REQUIRED))
    rollout = experiment.rollout
    assert Sampler(rollout.temperature, rollout.top_p, rollout.top_k).is_model_distribution


def test_no_yaml_is_left_out() -> None:
    files = {str(path.relative_to(CONFIG)) for path in CONFIG.rglob("*.yaml")}
    assert files == {"agent_contracts.yaml", *(f"platform/{name}.yaml" for name in PLATFORMS)}, "compose it here too"


def test_the_contract_keys_are_frozen() -> None:
    contract = composed("platform=cpu", *REQUIRED)["contract"]
    assert {section: " ".join(node) for section, node in contract.items()} == CONTRACT_KEYS


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_every_override_of_a_script_exists(path: Path) -> None:
    found = OVERRIDE.findall(COMMENT.sub("", path.read_text()))
    unknown = [key for plus, key in found if not plus and not exists(composed("platform=gpu", *REQUIRED), key)]
    assert not unknown, f"{path.name} overrides keys that do not exist: {unknown}"
    renamed.check_overrides([f"{key}=?" for _, key in found])


@pytest.fixture
def gpu_overrides(tmp_path: Path) -> list[str]:
    """What the GPU script gives to the launcher, read from a stand-in for python."""
    stub = tmp_path / "python"
    stub.write_text("#!/usr/bin/env bash\nprintf '%s\\n' \"$@\"\n")
    stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
    env = {"PATH": os.environ["PATH"], "PYTHON": str(stub), "DRY_RUN": "1"}
    done = subprocess.run(["bash", str(GPU_SCRIPT), "trainer.nnodes=2"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("-m\nverl_ext.launch\n--dry-run\n")
    return done.stdout.splitlines()[3:]


def test_the_gpu_script_composes_and_passes(gpu_overrides: list[str]) -> None:
    renamed.check_overrides(gpu_overrides)
    config = composed(*gpu_overrides)
    experiment = bindings.check(config)
    assert config["trainer"]["nnodes"] == 2, "overrides after the script's own must win"
    assert config["trainer"]["device"] == "cuda"
    assert experiment.policy.trainable == "lora"
    assert (experiment.environment.train_tasks, experiment.environment.heldout_tasks) == (48, 16)
    assert (experiment.environment.step_budget, experiment.rollout.group_size) == (8, 8)
    assert (experiment.credit.estimator, experiment.credit.reduction) == ("rloo", "episode_sum")
    assert (experiment.update.kl_beta, experiment.update.optimizer_steps_per_fresh_batch) == (0.02, 1)
    assert experiment.evaluation.attempts_per_task == 3


@pytest.mark.parametrize("entry", [entry for entry in renamed.RENAMED if entry.new], ids=lambda entry: entry.old)
def test_every_successor_exists_in_verl(entry: renamed.Renamed) -> None:
    assert exists(verl_defaults(), entry.new), f"verl has no {entry.new}"


@pytest.mark.parametrize("key", renamed.UNREAD)
def test_what_nothing_reads_is_still_read_by_nothing(key: str) -> None:
    """The dataclasses that hold the keys, the legacy trainer, and a module that nothing imports do not count."""
    assert exists(verl_defaults(), key)
    holders = {
        "workers/config/rollout.py",
        "workers/rollout/schemas.py",
        "trainer/config/algorithm.py",
        "trainer/ppo/ray_trainer.py",
    }
    word = re.compile(rf"\b{key.rsplit('.', 1)[-1]}\b")
    readers = {str(path.relative_to(VERL)) for path, text in verl_sources().items() if word.search(text)} - holders
    assert not readers
    assert not [path for path, text in verl_sources().items() if "rollout.schemas import" in text]


def test_no_code_of_verl_reads_the_actors_grad_clip() -> None:
    readers = [path for path, text in verl_sources().items() if re.search(r"actor(_config)?\.grad_clip", text)]
    assert not readers


@pytest.mark.parametrize("key", [*{binding.verl_key for binding in bindings.BINDINGS}, *COUNTS])
def test_every_bound_key_is_in_the_configuration(key: str) -> None:
    assert exists(composed("platform=gpu", *REQUIRED), key)


@cache
def verl_sources() -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(VERL.rglob("*.py"))}

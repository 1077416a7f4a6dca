"""The `contract:` node: which keys and values exist, and how everything else is refused."""

from __future__ import annotations

import dataclasses

import pytest

from recipe.agent_contracts.config.experiment import load_experiment
from recipe.agent_contracts.errors import ConfigContradiction


def refusal(config) -> str:
    with pytest.raises(ConfigContradiction) as caught:
        load_experiment(config["contract"])
    return str(caught.value)


def test_the_shipped_experiment_loads(composed):
    experiment = load_experiment(composed["contract"])
    assert experiment.rollout.group_size == 8
    assert experiment.rollout.top_k is None
    assert experiment.update.kl_beta == 0.02
    assert experiment.evaluation.retain_suites is None


def test_an_experiment_cannot_be_changed(composed):
    experiment = load_experiment(composed["contract"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        experiment.rollout.group_size = 4


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("contract.rollout.groupsize", "group_size"),
        ("contract.rolout", "rollout"),
        ("contract.update.kl_bta", "kl_beta"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(changed, key, nearest):
    message = refusal(changed({key: 1}))
    assert f"{key} is not a key" in message
    assert f"Did you mean {nearest}?" in message


def test_an_unknown_key_like_no_other_is_refused_with_all_of_them(changed):
    assert "Its keys are experiment, root, folder" in refusal(changed({"contract.run.zzzzzz": 1}))


def test_a_missing_key_is_named(changed):
    config = changed({})
    del config["contract"]["credit"]["estimator"]
    del config["contract"]["evaluation"]
    message = refusal(config)
    assert "contract.credit.estimator is missing" in message
    assert "contract.evaluation is missing" in message


def test_a_section_must_be_a_section(changed):
    assert "contract.credit=rloo: expected a section" in refusal(changed({"contract.credit": "rloo"}))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("contract.rollout.group_size", 1, ">= 2"),
        ("contract.rollout.group_size", 8.5, "`int`"),
        ("contract.rollout.group_size", "8", "`int`"),
        ("contract.rollout.group_size", True, "`int`"),
        ("contract.rollout.temperature", 0, "> 0"),
        ("contract.rollout.temperature", float("nan"), "finite"),
        ("contract.rollout.top_p", 1.5, "<= 1"),
        ("contract.rollout.top_k", 0, ">= 1"),
        ("contract.rollout.max_failed_groups_per_step", -1, ">= 0"),
        ("contract.update.kl_beta", -0.1, ">= 0"),
        ("contract.update.kl_beta", float("inf"), "finite"),
        ("contract.update.tasks_per_batch", 0, ">= 1"),
        ("contract.update.optimizer_steps_per_fresh_batch", 0, ">= 1"),
        ("contract.update.clip_low", 1.5, "<= 1"),
        ("contract.consistency.max_abs_p95", 0, "> 0"),
        ("contract.environment.step_budget", 0, ">= 1"),
        ("contract.environment.token_budget", None, "`int`"),
        ("contract.environment.tool_timeout_seconds", 0, "> 0"),
        ("contract.environment.domain", "browser", "known: terminal"),
        ("contract.environment.train_tasks", 0, ">= 1"),
        ("contract.environment.max_observation_chars", 0, ">= 1"),
        ("contract.policy.parser", "hermes", "known: hermes-strict-v1, qwen3_coder-strict-v1"),
        ("contract.verification.processes", 0, ">= 1"),
        ("contract.evaluation.attempts_per_task", 0, ">= 1"),
        ("contract.run.experiment", "", "length >= 1"),
    ],
)
def test_a_wrong_value_is_refused_by_name(changed, key, value, expected):
    message = refusal(changed({key: value}))
    assert key in message
    assert expected in message


@pytest.mark.parametrize(
    ("key", "value", "supported"),
    [
        ("contract.policy.trainable", "prefix", "full or lora"),
        ("contract.policy.require_manifest", False, "true"),
        ("contract.environment.branching", True, "false"),
        ("contract.environment.snapshot_backend", "overlay", "canonical_state or workspace or record_replay"),
        ("contract.environment.observation_keeps", "middle", "start or end"),
        ("contract.records.compression", "gzip", "none or zstd"),
        ("contract.rollout.mode", "asynchronous", "synchronous"),
        ("contract.rollout.max_version_lag", 1, "0"),
        ("contract.rollout.max_version_lag", False, "0"),
        ("contract.rollout.in_flight_policy", "mixed", "finish_old"),
        ("contract.rollout.context_compaction", True, "false"),
        ("contract.consistency.audit_frozen_checkpoint", True, "false"),
        ("contract.consistency.tolerance_source", "bf16_same_engine_baseline", "null"),
        ("contract.weight_sync.require_all_worker_checksums", False, "true"),
        ("contract.weight_sync.publish", "atomic_at_episode_boundary", "between_steps"),
        ("contract.credit.estimator", "gae", "rloo or grpo or dr_grpo or gigpo"),
        ("contract.credit.reduction", "mean", "episode_sum or length_normalized or token_mean or turn_mass_conserving"),
        ("contract.credit.group_reward_scale", "mad", "none or std"),
        ("contract.update.objective", "vanilla", "reinforce_with_kl or ppo_clip or dapo or gspo or turn_normalized"),
        ("contract.update.proximal_policy", "old_policy", "behavior_policy or step_start"),
        ("contract.update.off_policy_weight", "turn", "token or sequence or null"),
        ("contract.evaluation.seeds", [11, 22, 33], "null"),
        ("contract.evaluation.retain_suites", ["safety"], "null"),
    ],
)
def test_what_is_not_implemented_is_refused_with_what_is(changed, key, value, supported):
    message = refusal(changed({key: value}))
    assert key in message
    assert f"supports only {supported}" in message


def test_all_problems_are_in_one_error(changed):
    message = refusal(changed({"contract.rollout.group_size": 1, "contract.credit.estimator": "gae", "contract.x": 1}))
    assert "3 problems" in message
    assert all(key in message for key in ("contract.rollout.group_size", "contract.credit.estimator", "contract.x"))

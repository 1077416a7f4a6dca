"""Overrides from older guides are refused with what to write instead."""

from __future__ import annotations

import pytest

from recipe.agent_contracts.config.renamed import RENAMED, UNREAD, check_overrides
from recipe.agent_contracts.errors import ConfigContradiction

ROLLOUT = "actor_rollout_ref.rollout"


def refusal(*overrides: str) -> str:
    with pytest.raises(ConfigContradiction) as caught:
        check_overrides(list(overrides))
    return str(caught.value)


@pytest.mark.parametrize(
    ("override", "successor"),
    [
        (f"{ROLLOUT}.tool_kwargs.tools_config_file=t.yaml", f"{ROLLOUT}.multi_turn.tool_config_path=t.yaml"),
        (f"+{ROLLOUT}.multi_turn.max_turns=5", f"{ROLLOUT}.multi_turn.max_assistant_turns=5"),
        ("custom_reward_function.path=r.py", "reward.custom_reward_function.path=r.py"),
        ("reward_model.reward_manager=dapo", "reward.reward_manager.name=dapo"),
        ("reward_model.enable=True", "reward.reward_model.enable=True"),
        ("reward_model.rollout.name=vllm", "reward.reward_model.rollout.name=vllm"),
        ("sandbox_fusion.url=http://x", "reward.sandbox_fusion.url=http://x"),
        ("++ray_init.num_cpus=8", "ray_kwargs.ray_init.num_cpus=8"),
        ("actor_rollout_ref.actor.grad_clip=0.5", "actor_rollout_ref.actor.optim.clip_grad=0.5"),
        ("critic.model.fsdp_config.param_offload=True", "critic.fsdp.param_offload=True"),
        ("algorithm.rollout_is_threshold=2", "algorithm.rollout_correction.rollout_is_threshold=2"),
    ],
)
def test_a_renamed_key_is_refused_with_its_successor(override, successor):
    message = refusal(override)
    assert override in message
    assert f"Write {successor}" in message


@pytest.mark.parametrize("key", UNREAD)
def test_a_key_that_nothing_reads_is_refused(key):
    assert "no code reads it" in refusal(f"{key}=1")


@pytest.mark.parametrize(
    "override", [f"{ROLLOUT}.multi_turn=True", f"{ROLLOUT}.multi_turn=false", f"{ROLLOUT}.mode=sync"]
)
def test_a_value_of_older_verl_is_explained(override):
    assert override in refusal(override)


def test_a_key_without_successor_says_so():
    assert "Remove it" in refusal("reward_model.launch_reward_fn_async=True")


def test_all_are_reported_at_once():
    message = refusal("ray_init.num_cpus=8", "data.train_files=x", f"{ROLLOUT}.mode=sync")
    assert "2 problems" in message
    assert "data.train_files" not in message


def test_keys_of_today_pass():
    check_overrides(
        [
            "platform=cpu",
            f"{ROLLOUT}.mode=async",
            f"{ROLLOUT}.multi_turn.max_assistant_turns=8",
            f"{ROLLOUT}.multi_turn.enable=True",
            f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=8",
            f"+{ROLLOUT}.engine_kwargs.vllm.max_loras=1",
            "reward.reward_model.enable=False",
            "algorithm.rollout_correction.bypass_mode=true",
            "~data.seed",
        ]
    )


def test_longer_keys_come_before_the_sections_that_hold_them():
    for index, entry in enumerate(RENAMED):
        hidden = [later.old for later in RENAMED[index + 1 :] if later.old.startswith(f"{entry.old}.")]
        assert not hidden, f"{entry.old} hides {hidden}"

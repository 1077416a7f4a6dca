"""Overrides for keys that verl 0.9.1 renamed, moved or no longer reads, each with what to write instead.

Hydra refuses a key that does not exist, but says nothing of its successor; and a key that is still in verl's YAML
while no code reads it is accepted and lost. Both are refused here, before composing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from recipe.agent_contracts.config.keys import ACTOR, REF, ROLLOUT, refuse


@dataclass(frozen=True)
class Renamed:
    """A key of older verl, or a whole section (then the rest of the key carries over)."""

    old: str
    new: str | None
    """The successor in verl 0.9.1. None: there is none."""
    note: str = ""


_TURNS = f"{ROLLOUT}.multi_turn"
_REWARD_MODEL = "reward.reward_model"
_NSYS = "global_profiler.global_tool_config.nsys"
_CORRECTION = "algorithm.rollout_correction"
_NOT_MOVED = "verl's V1 trainer does not carry the old section over"

RENAMED = (
    # What verl's guides to agentic RL still show.
    Renamed(f"{ROLLOUT}.tool_kwargs.tools_config_file", f"{_TURNS}.tool_config_path"),
    Renamed(f"{ROLLOUT}.tool_kwargs", _TURNS),
    Renamed(f"{_TURNS}.max_turns", f"{_TURNS}.max_assistant_turns", "the task's own limit is step_budget"),
    Renamed(f"{_TURNS}.completion_callback", f"{ROLLOUT}.agent.default_agent_loop"),
    Renamed(f"{_TURNS}.interaction_config_path", None, "interactions are gone: an agent loop plays the user's part"),
    Renamed(f"{ROLLOUT}.chat_scheduler", f"{ROLLOUT}.agent.default_agent_loop"),
    # Rewards. Longest first: the first match wins.
    Renamed("custom_reward_function", "reward.custom_reward_function", _NOT_MOVED),
    Renamed("sandbox_fusion", "reward.sandbox_fusion", _NOT_MOVED),
    Renamed("reward_model.sandbox_fusion", "reward.sandbox_fusion"),
    Renamed("reward_model.num_workers", "reward.num_workers", _NOT_MOVED),
    Renamed("reward_model.reward_manager", "reward.reward_manager.name", _NOT_MOVED),
    Renamed("reward_model.reward_loop_source", "reward.reward_manager.source", _NOT_MOVED),
    Renamed("reward_model.reward_loop_module_path", "reward.reward_manager.module.path", _NOT_MOVED),
    Renamed("reward_model.reward_loop_class_name", "reward.reward_manager.module.name", _NOT_MOVED),
    Renamed("reward_model.launch_reward_fn_async", None, "rewards are always computed while other episodes run"),
    Renamed("reward_model.reward_kwargs", None, "a reward manager reads the whole configuration"),
    Renamed("reward_model.model.path", f"{_REWARD_MODEL}.model_path", _NOT_MOVED),
    Renamed("reward_model", _REWARD_MODEL, _NOT_MOVED),
    # Batches.
    Renamed(f"{ACTOR}.ppo_micro_batch_size", f"{ACTOR}.ppo_micro_batch_size_per_gpu"),
    Renamed(f"{REF}.log_prob_micro_batch_size", f"{REF}.log_prob_micro_batch_size_per_gpu"),
    Renamed(f"{ROLLOUT}.log_prob_micro_batch_size", f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu"),
    Renamed(f"{ROLLOUT}.micro_batch_size", f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu"),
    # Optimizer.
    Renamed(f"{ACTOR}.grad_clip", f"{ACTOR}.optim.clip_grad", "still in the YAML, and no code reads it"),
    Renamed(f"{ACTOR}.optim.grad_clip", f"{ACTOR}.optim.clip_grad"),
    Renamed(f"{ACTOR}.optim.warmup_style", f"{ACTOR}.optim.lr_scheduler_type"),
    Renamed("critic.model.fsdp_config", "critic.fsdp"),
    # Off-policy correction and asynchrony.
    Renamed(f"{ACTOR}.tis_imp_ratio_cap", f"{_CORRECTION}.rollout_is_threshold"),
    Renamed("algorithm.rollout_is", f"{_CORRECTION}.rollout_is"),
    Renamed("algorithm.rollout_is_threshold", f"{_CORRECTION}.rollout_is_threshold"),
    Renamed("algorithm.rollout_rs", f"{_CORRECTION}.rollout_rs"),
    Renamed("algorithm.rollout_rs_threshold", f"{_CORRECTION}.rollout_rs_threshold"),
    Renamed(
        "async_training.staleness_threshold",
        "trainer.v1.sampler.max_off_policy_threshold",
        "that was a proportion; the bound in policy versions is contract.rollout.max_version_lag",
    ),
    # Machinery.
    Renamed(
        f"{ROLLOUT}.update_weights_bucket_megabytes", f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"
    ),
    Renamed("ray_init", "ray_kwargs.ray_init"),
    Renamed("trainer.remove_previous_ckpt_in_save", "trainer.max_actor_ckpt_to_keep"),
    Renamed("trainer.val_generations_to_log_to_wandb", "trainer.log_val_generations"),
    Renamed("trainer.profile_steps", "global_profiler.steps"),
    Renamed("trainer.worker_nsight_options", f"{_NSYS}.worker_nsight_options"),
    Renamed("trainer.controller_nsight_options", f"{_NSYS}.controller_nsight_options"),
)

UNREAD = {
    f"{_TURNS}.tokenization_sanity_check_mode": (
        "the check that the guide describes does not run; our agent loop never tokenizes a turn again"
    ),
    f"{_TURNS}.use_inference_chat_template": "the rollout always uses the tokenizer's chat template",
    f"{_TURNS}.num_repeat_rollouts": "the group size is contract.rollout.group_size",
    f"{ROLLOUT}.over_sample_rate": "no request is aborted early",
    "data.return_raw_input_ids": "an agent loop starts from the messages",
    "algorithm.use_pf_ppo": "only the legacy trainer reads it",
    "algorithm.pf_ppo": "only the legacy trainer reads it",
}
"""Keys of verl 0.9.1's YAML that no code of its V1 trainer reads, with what holds instead."""

VALUES = {
    (_TURNS, "true"): "multi_turn is a section now. Leave it out: an episode has as many turns as its step_budget",
    (_TURNS, "false"): "multi_turn is a section now. For one turn set contract.environment.step_budget=1",
    (f"{ROLLOUT}.mode", "sync"): "verl removed the synchronous engine. Set it to async: training stays synchronous",
}
"""Values that older verl took for keys that still exist."""


def check_overrides(overrides: list[str]) -> None:
    """Refuse overrides whose key or value verl 0.9.1 renamed, removed or does not read.

    Raises:
        ConfigContradiction: listing each with its successor.
    """
    refuse([problem for override in overrides for problem in _problems(override)])


def _problems(override: str) -> Iterator[str]:
    name, _, value = override.lstrip("+~").partition("=")
    key = name.partition("@")[0]
    if (key, value.lower()) in VALUES:
        yield f"{override}: {VALUES[key, value.lower()]}."
    for unread, instead in UNREAD.items():
        if _covers(unread, key):
            yield f"{override}: verl 0.9.1 accepts {key} and no code reads it: {instead}. Remove it."
    renamed = next((entry for entry in RENAMED if _covers(entry.old, key)), None)
    if renamed is not None:
        yield _explained(override, key, value, renamed)


def _covers(section: str, key: str) -> bool:
    return key == section or key.startswith(f"{section}.")


def _explained(override: str, key: str, value: str, renamed: Renamed) -> str:
    note = f" ({renamed.note})" if renamed.note else ""
    if renamed.new is None:
        return f"{override}: verl 0.9.1 has no {key}{note}. Remove it."
    return f"{override}: verl 0.9.1 has {key} elsewhere{note}. Write {renamed.new + key[len(renamed.old) :]}={value}"

"""Turn records for tests."""

from typing import Any

import msgspec

from recipe.agent_contracts.transition.trajectory import EpisodeIdentity, TurnRecord


def identity(trajectory_id: str = "g_0", **changes: Any) -> EpisodeIdentity:
    base = EpisodeIdentity(
        run_id="run",
        trajectory_id=trajectory_id,
        group_id=trajectory_id.split("_")[0],
        partition="train",
        trainer_step=1,
        task_id="t",
        family="f",
        template="w",
        data_source="terminal/train",
        decoding="temperature_1",
        seed=1,
        env_version="v",
        task_hash="sha256:0",
        grader_hash="sha256:0",
    )
    return msgspec.structs.replace(base, **changes)


def turn_record(trajectory_id: str = "g_0", *, episode: EpisodeIdentity | None = None, **changes: Any) -> TurnRecord:
    values: dict[str, Any] = {
        "episode": episode or identity(trajectory_id),
        "behavior_policy_version": 0,
        "behavior_policy_version_end": 0,
        "policy_manifest_hash": None,
        "behavior_weight_checksum": None,
        "generator_build": "test",
        "rollout_started_at": 0.0,
        "rollout_finished_at": 1.0,
        "turn": 0,
        "base_snapshot_id": "s",
        "snapshot_before": "s",
        "state_before": "s",
        "state_after": "s",
        "context_parent_hash": None,
        "context_new_token_ids": [1],
        "action_token_ids": [2, 3],
        "sampler_config": {"temperature": 1.0, "top_p": 1.0, "top_k": None},
        "behavior_logprobs": [-0.1, -0.2],
        "raw_model_logprobs": [-0.1, -0.2],
        "action_mask": [1, 1],
        "action_kind": "tool",
        "tool_name": "read_file",
        "tool_args": {"path": "a"},
        "invalid_reason": None,
        "action_text": "x",
        "calls_ignored_in_thinking": 0,
        "observation": "y",
        "observation_ref": None,
        "observation_cut": None,
    }
    return TurnRecord(**{**values, **changes})

"""A turn of an episode as a record: the one place that says which of its values becomes which field.

What the episode does not know (who sampled it, with what, where a long observation is kept) is given by the caller.
"""

from __future__ import annotations

from typing import Any

from recipe.agent_contracts.transition.episode import Turn
from recipe.agent_contracts.transition.trajectory.context import ContextLink
from recipe.agent_contracts.transition.trajectory.record import EpisodeIdentity, TurnRecord


def record_of(
    turn: Turn,
    index: int,
    link: ContextLink,
    identity: EpisodeIdentity,
    *,
    base_state: str,
    policy_manifest_hash: str | None,
    behavior_weight_checksum: str | None,
    generator_build: str,
    sampler_config: dict[str, Any],
    raw_model_logprobs: list[float] | None,
    observation_ref: str | None = None,
) -> TurnRecord:
    """The record of the turn number `index`; the fields are described in `TurnRecord`.

    Args:
        link: How the turn's context hangs on the turn before it.
        base_state: `Episode.base_state`.
        observation_ref: Blob of the raw observation, which then is not in the record itself.
    """
    action = turn.action
    return TurnRecord(
        episode=identity,
        behavior_policy_version=turn.policy_version,
        behavior_policy_version_end=turn.policy_version_end,
        policy_manifest_hash=policy_manifest_hash,
        behavior_weight_checksum=behavior_weight_checksum,
        generator_build=generator_build,
        rollout_started_at=turn.started_at,
        rollout_finished_at=turn.finished_at,
        turn=index,
        base_snapshot_id=base_state,
        snapshot_before=turn.state_before,
        state_before=turn.state_before,
        state_after=turn.state_after,
        context_parent_hash=link.parent_hash,
        context_new_token_ids=link.new_token_ids,
        action_token_ids=turn.token_ids,
        sampler_config=sampler_config,
        behavior_logprobs=turn.logprobs,
        raw_model_logprobs=raw_model_logprobs,
        action_mask=[1] * len(turn.token_ids),
        action_kind="cut" if action is None else action.kind,
        tool_name=None if action is None else action.name,
        tool_args=None if action is None else action.args,
        invalid_reason=None if action is None else action.invalid_reason,
        calls_ignored_in_thinking=0 if action is None else action.ignored_in_thinking,
        action_text=turn.text,
        observation=turn.observation if observation_ref is None else None,
        observation_ref=observation_ref,
        observation_cut=turn.observation_cut,
        tool_reward=turn.tool_reward,
    )

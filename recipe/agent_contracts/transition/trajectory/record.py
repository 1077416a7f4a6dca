"""The schema of a turn record: enough to replay the episode and to reconstruct its gradient.

Field names follow the field's own words; a null always says in its docstring what it means. A change of a field is a
new `SCHEMA_VERSION`, and a line of another version is refused by name, never guessed at.
"""

from __future__ import annotations

from typing import Any

import msgspec

from recipe.agent_contracts.transition.observations import ObservationCut
from recipe.agent_contracts.transition.termination import Termination

SCHEMA_VERSION = "turn-v4"
FIRST_LINE = "sha256:" + "0" * 64
"""The `previous_hash` of a part's first line."""


class EpisodeIdentity(msgspec.Struct, frozen=True):
    """Who this episode is: the part of a turn record that no turn changes."""

    run_id: str
    trajectory_id: str
    """`<group_id>_<session>`, unique in the run."""
    group_id: str
    """All siblings of one prompt share it (verl's uid)."""
    partition: str
    """`train` or `val`."""
    trainer_step: int
    """verl's global step when the prompt was submitted."""
    task_id: str
    family: str
    template: str
    data_source: str
    decoding: str
    """`temperature_1` or `greedy`: how a held-out task is sampled. Train rows are `temperature_1`."""
    seed: int
    env_version: str
    task_hash: str
    """Blob of the task as the environment read it."""
    grader_hash: str
    """Blob of the hidden part of the task, for re-scoring."""


class TurnRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One turn. `context.contexts` gives back what each turn of an episode was sampled from."""

    schema_version: str = SCHEMA_VERSION
    previous_hash: str = FIRST_LINE
    """`sha256:` of the exact bytes of the line before this one in the same part."""
    episode: EpisodeIdentity
    behavior_policy_version: int | None
    """The engine's own label of the weights when this turn began. Null: no token was sampled."""
    behavior_policy_version_end: int | None
    """The label when it ended: another one after a switch inside the turn. Null: no token was sampled."""
    policy_manifest_hash: str | None
    """Null: no token was sampled."""
    behavior_weight_checksum: str | None
    """Fingerprint of the weights as the trainer sent them and every inference rank acknowledged them. Null: no token
    was sampled."""
    generator_build: str
    rollout_started_at: float
    """Unix seconds, UTC."""
    rollout_finished_at: float
    parent_run_id: str | None = None
    """Null: not a continuation of another run (branching is not implemented yet)."""
    branch_point_turn: int | None = None
    """Null: not a branch (branching is not implemented yet)."""
    turn: int
    """Counts from 0."""
    base_snapshot_id: str
    """State hash of the task's initial state: canonical-state snapshots are named by their content."""
    snapshot_before: str
    state_before: str
    state_after: str
    context_segment_id: int = 0
    memory_state_ref: str | None = None
    """Null: the policy has no memory beyond its context."""
    compactor_version: str | None = None
    """Null: the context is never compacted."""
    context_parent_hash: str | None
    """`sha256:` of the ids before `context_new_token_ids`: the previous turn's context and action. Null: the context
    begins here (the first turn)."""
    context_new_token_ids: list[int]
    """What the context gained: the prompt on the first turn, then what the model reads of the last observation."""
    action_token_ids: list[int]
    """The engine's own ids, never retokenised."""
    sampler_config: dict[str, Any]
    behavior_logprobs: list[float]
    """Log probabilities under the distribution that sampled, one an action token."""
    raw_model_logprobs: list[float] | None
    """Equal to behavior_logprobs at temperature 1 without truncation. Null otherwise: an engine returns one of the
    two, and verl 0.9.1 asks for the sampling distribution's."""
    action_mask: list[int]
    action_kind: str
    tool_name: str | None
    tool_args: dict[str, Any] | None
    invalid_reason: str | None
    calls_ignored_in_thinking: int
    """Calls inside thinking blocks, which are never executed."""
    action_text: str
    observation: str | None
    """Raw text. Null: it is the blob `observation_ref`, or the environment did not answer before the episode ended."""
    observation_ref: str | None
    """Blob of the raw text, where that is long. Null: see `observation`."""
    observation_cut: ObservationCut | None
    """How it was cut for the model. Null: it was not cut."""
    tool_reward: float | None = None
    """What the tool said of its own call; no part of the objective. Null: it said nothing."""
    reward_components: dict[str, float] | None = None
    """Null on every turn but the last, and on the last when the verifier gave no verdict or the code is censored."""
    verdict_ref: str | None = None
    """Blob of the verdict behind `reward_components`: its layers with their evidence, the verifier's version, and the
    box that it was given in. Null: as there."""
    final_state_hash: str | None = None
    """Blob of the sealed final state; set on the last turn."""
    termination_reason: Termination | None = None
    """Null: not the last turn."""
    error: str | None = None
    """What went wrong, for infrastructure and verifier failures. Null: nothing did."""
    continuation_parent: str | None = None
    """Null: partial episodes are aborted and restarted, never continued."""

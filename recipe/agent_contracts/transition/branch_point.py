"""`BranchPoint`: everything that a decision is conditioned on, so that another continuation starts from the same one.

The same snapshot without the same agent prefix is not the same decision state. A branch point adds the prefix: exact
context ids, memory, behaviour version and sampler, and the budgets that every sibling must have left.
"""

from __future__ import annotations

import msgspec

from recipe.agent_contracts.canonical import sha256_json
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.policy.manifest import Sampler
from recipe.agent_contracts.transition.episode import Episode
from recipe.agent_contracts.transition.state import SnapshotRef


class BranchPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A decision state of one episode, before the next turn is sampled."""

    schema_version: str = "branch-point-v1"
    snapshot: SnapshotRef
    context_token_ids: tuple[int, ...]
    """Exact ids, never retokenised: prompt, sampled turns and observations."""
    memory_ref: str | None
    """Blob of the policy's memory. None: it has none beyond its context."""
    behavior_policy_version: int | None
    """Of every turn so far, and so of the continuations. None: no turn was sampled yet, so any version may start."""
    sampler: Sampler
    turn: int
    """Turns taken; the continuation's first turn has this number."""
    steps_left: int
    tokens_left: int

    @property
    def branch_point_id(self) -> str:
        """`sha256:` of the canonical JSON."""
        return sha256_json(self)


def branch_point(episode: Episode, snapshot: SnapshotRef, sampler: Sampler) -> BranchPoint:
    """Name where a running episode stands.

    Args:
        episode: Its environment was snapshotted after the last step.
        snapshot: That snapshot.
        sampler: As the engine applies it.

    Raises:
        ContractViolation: ``transition.branch_point`` when the episode has ended, when the snapshot is of another
            state, or when more than one policy version sampled the prefix.
    """
    state = episode.turns[-1].state_after if episode.turns else episode.base_state
    versions = {label for turn in episode.turns for label in (turn.policy_version, turn.policy_version_end)}
    requirements = (
        ("a running episode", "running", "running" if episode.termination is None else str(episode.termination)),
        ("a snapshot of the episode's present state", state, snapshot.state_hash),
        ("one behaviour version in the prefix", min(1, len(episode.turns)), len(versions)),
    )
    for what, expected, found in requirements:
        if expected != found:
            raise ContractViolation(
                "transition.branch_point", f"{what} ({expected})", found, f"turn {len(episode.turns)}"
            )
    return BranchPoint(
        snapshot=snapshot,
        context_token_ids=tuple(episode.context_ids),
        memory_ref=None,
        behavior_policy_version=versions.pop() if versions else None,
        sampler=sampler,
        turn=len(episode.turns),
        steps_left=episode.limits.step_budget - len(episode.turns),
        tokens_left=episode.limits.token_budget - len(episode.response_ids),
    )

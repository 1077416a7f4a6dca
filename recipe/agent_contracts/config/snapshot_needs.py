"""What an experiment needs of an environment's snapshots, against what the environment's `Capabilities` promise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from recipe.agent_contracts.transition.env import Capabilities
from recipe.agent_contracts.transition.state import SnapshotKind


class UnmetNeed(NamedTuple):
    """A key of `contract.environment` that asks for more than there is."""

    key: str
    declared: str
    fix: str


def unmet_needs(
    declared: Capabilities, *, snapshot_backend: str, base_snapshot_per_task: bool, branching: bool
) -> Iterator[UnmetNeed]:
    """Every need that is not met: kind of snapshot, exact replay, restore for base snapshots, fork for branching."""
    kind, other = declared.snapshot_kind, "Choose another domain"
    if snapshot_backend != kind:
        yield UnmetNeed("snapshot_backend", f"{kind} snapshots", f"Set contract.environment.snapshot_backend={kind}")
    elif kind is not SnapshotKind.RECORD_REPLAY and not declared.exact_replay:
        yield UnmetNeed("snapshot_backend", "partial replay, and this backend stands for exact replay", other)
    if base_snapshot_per_task and not declared.restore:
        yield UnmetNeed("base_snapshot_per_task", "no restore", other)
    if branching and not declared.fork:
        yield UnmetNeed("branching", "no fork", "Set contract.environment.branching=false")

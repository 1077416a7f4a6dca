"""Trajectories on disk: the turn record, its append-only store, contexts, queries and export."""

from recipe.agent_contracts.transition.trajectory.record import SCHEMA_VERSION, EpisodeIdentity, TurnRecord
from recipe.agent_contracts.transition.trajectory.store import (
    TornTail,
    TrajectoryWriter,
    episodes,
    read_part,
    read_run,
)

__all__ = [
    "SCHEMA_VERSION",
    "EpisodeIdentity",
    "TornTail",
    "TrajectoryWriter",
    "TurnRecord",
    "episodes",
    "read_part",
    "read_run",
]

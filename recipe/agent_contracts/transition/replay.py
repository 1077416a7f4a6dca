"""Replays recorded actions in a fresh environment and compares everything that was recorded.

Given the recorded actions, an environment must give the same observations, state hashes and reward. Sampling is not
repeated: token-identical resampling is neither required nor claimed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from recipe.agent_contracts import domains
from recipe.agent_contracts.canonical import sha256_bytes
from recipe.agent_contracts.transition.actions import Action, InvalidReason
from recipe.agent_contracts.transition.snapshots import BlobStore
from recipe.agent_contracts.transition.trajectory import TurnRecord, episodes
from recipe.agent_contracts.verification.process import VerifierProcess


class Divergence(msgspec.Struct, frozen=True):
    """The first thing in an episode that did not come out as recorded."""

    trajectory_id: str
    turn: int
    field: str
    recorded: Any
    replayed: Any


class Replayer:
    """Replays the episodes of one run folder. Close it to end its verifier processes."""

    def __init__(self, run: Path, timeout_seconds: float = 20.0) -> None:
        self.run = run
        self.blobs = BlobStore(run / "blobs")
        self._timeout_seconds = timeout_seconds
        self._verifiers: dict[str, VerifierProcess] = {}

    def replay_run(self, only: str | None = None) -> Iterator[tuple[str, Divergence | None]]:
        """Every episode's trajectory id (or only one) with its first divergence, or None."""
        for turns in episodes(self.run):
            trajectory_id = turns[0].episode.trajectory_id
            if only in (None, trajectory_id):
                yield trajectory_id, self.replay(turns)

    def replay(self, turns: list[TurnRecord]) -> Divergence | None:
        """Replay one episode.

        Raises:
            RecordCorrupt: when a blob it needs is missing or damaged.
            VerifierFailure: when the verifier gives no verdict.
        """
        identity, last = turns[0].episode, turns[-1]
        domain = domains.domain_of(identity.data_source)
        env, _ = domains.load(domain.environment)(self.blobs.get(identity.task_hash).decode())
        env.reset(identity.task_id, identity.seed)
        pairs: list[tuple[int, str, Any, Any]] = [
            (0, "env_version", identity.env_version, env.env_version),
            (0, "base_snapshot_id", turns[0].base_snapshot_id, env.state_hash()),
        ]
        for record in turns:
            if record.observation is not None:
                transition = env.step(_action(record))
                pairs.append((record.turn, "observation", record.observation, transition.observation))
                pairs.append((record.turn, "state_after", record.state_after, transition.state_version))
        pairs.append((last.turn, "final_state_hash", last.final_state_hash, sha256_bytes(env.export_state())))
        if last.reward_components is not None:
            replayed = self._score(domain.verifier, identity.grader_hash, env.export_state())
            pairs.append((last.turn, "reward_components", last.reward_components, replayed))
        differing = (pair for pair in pairs if pair[2] != pair[3])
        first = next(differing, None)
        return None if first is None else Divergence(identity.trajectory_id, *first)

    def close(self) -> None:
        for process in self._verifiers.values():
            process.close()

    def _score(self, verifier: str, grader_hash: str, state: bytes) -> dict[str, float]:
        process = self._verifiers.setdefault(verifier, VerifierProcess(verifier, self._timeout_seconds))
        score: dict[str, float] = msgspec.to_builtins(process.score(json.loads(self.blobs.get(grader_hash)), state))
        return score


def _action(record: TurnRecord) -> Action:
    reason = None if record.invalid_reason is None else InvalidReason(record.invalid_reason)
    return msgspec.convert(
        {
            "kind": record.action_kind,
            "name": record.tool_name,
            "args": record.tool_args,
            "invalid_reason": reason,
        },
        Action,
    )

"""Replays recorded actions in a fresh environment and compares everything that was recorded.

Given the recorded actions, an environment must give the same observations, state hashes and reward. Sampling is not
repeated: token-identical resampling is neither required nor claimed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from recipe.agent_contracts import domains
from recipe.agent_contracts.canonical import sha256_bytes
from recipe.agent_contracts.transition.actions import Action, InvalidReason
from recipe.agent_contracts.transition.env import AgentEnv
from recipe.agent_contracts.transition.snapshots import BlobStore
from recipe.agent_contracts.transition.trajectory import EpisodeIdentity, TurnRecord, episodes
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
        # Siblings share their task and its grader.
        self._blob = functools.lru_cache(maxsize=1024)(BlobStore(run / "blobs").get)
        self._timeout_seconds = timeout_seconds
        self._verifiers: dict[str, VerifierProcess] = {}
        self._scores: dict[tuple[str, str, str], dict[str, float]] = {}

    def replay_run(self, only: str | None = None) -> Iterator[tuple[str, Divergence | None]]:
        """Every episode's trajectory id (or only one) with its first divergence, or None."""
        for turns in episodes(self.run):
            trajectory_id = turns[0].episode.trajectory_id
            if only in (None, trajectory_id):
                yield trajectory_id, self.replay(turns)

    def replay(self, turns: list[TurnRecord]) -> Divergence | None:
        """Replay one episode. What its writer did not get to record (a torn tail) is not compared.

        Raises:
            RecordCorrupt: when a blob it needs is missing or damaged.
            VerifierFailure: when the verifier gives no verdict.
        """
        for turn, field, recorded, replayed in self._compared(turns):
            if recorded != replayed:
                return Divergence(turns[0].episode.trajectory_id, turn, field, recorded, replayed)
        return None

    def opened(self, identity: EpisodeIdentity) -> AgentEnv:
        """An environment in the initial state of a recorded episode.

        Raises:
            RecordCorrupt: when the task's blob is missing or damaged.
            ValueError: when no domain is registered for its data source.
        """
        open_env = domains.load(domains.domain_of(identity.data_source).environment)
        env: AgentEnv = open_env(self._blob(identity.task_hash).decode())[0]
        env.reset(identity.task_id, identity.seed)
        return env

    def observation(self, record: TurnRecord) -> str | None:
        """The raw observation of a turn, wherever it is kept. None: the environment did not answer."""
        return record.observation if record.observation_ref is None else self._blob(record.observation_ref).decode()

    def close(self) -> None:
        for process in self._verifiers.values():
            process.close()

    def _compared(self, turns: list[TurnRecord]) -> Iterator[tuple[int, str, Any, Any]]:
        """Turn, field, recorded and replayed value, in the order in which the episode ran."""
        identity, last = turns[0].episode, turns[-1]
        env = self.opened(identity)
        yield 0, "env_version", identity.env_version, env.env_version
        yield 0, "base_snapshot_id", turns[0].base_snapshot_id, env.state_hash()
        for record in turns:
            observation = self.observation(record)
            if observation is None:
                continue
            try:
                transition = env.step(recorded_action(record))
            except Exception as error:  # the boundary: where the recording has an answer, an exception is a divergence
                yield record.turn, "observation", observation, f"{type(error).__name__}: {error}"
                return
            yield record.turn, "observation", observation, transition.observation
            yield record.turn, "state_after", record.state_after, transition.state_version
        final_state = env.export_state()
        if last.final_state_hash is not None:
            yield last.turn, "final_state_hash", last.final_state_hash, sha256_bytes(final_state)
        if last.reward_components is not None:
            replayed = self._score(identity, final_state)
            yield last.turn, "reward_components", last.reward_components, replayed

    def _score(self, identity: EpisodeIdentity, state: bytes) -> dict[str, float]:
        """The verdict on a final state. Siblings that end in the same state share one: it depends on nothing else."""
        verifier = domains.domain_of(identity.data_source).verifier
        key = (verifier, identity.grader_hash, sha256_bytes(state))
        if key not in self._scores:
            if verifier not in self._verifiers:
                self._verifiers[verifier] = VerifierProcess(verifier, self._timeout_seconds)
            grader = json.loads(self._blob(identity.grader_hash))
            self._scores[key] = self._verifiers[verifier].score(grader, state).vector()
        return self._scores[key]


def recorded_action(record: TurnRecord) -> Action:
    """The action of a turn, as the environment was given it."""
    reason = None if record.invalid_reason is None else InvalidReason(record.invalid_reason)
    fields = {"kind": record.action_kind, "name": record.tool_name, "args": record.tool_args, "invalid_reason": reason}
    return msgspec.convert(fields, Action)

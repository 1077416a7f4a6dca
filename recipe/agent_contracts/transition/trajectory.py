"""Turn records: one JSONL line a turn, enough to replay the episode and to reconstruct its gradient.

Writers append and never rewrite. Each line carries the hash of the exact bytes of the line before it, so a changed,
missing or reordered line is found and named; a torn last line (a crash while writing) hides nothing before it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from recipe.agent_contracts.canonical import sha256_bytes
from recipe.agent_contracts.errors import RecordCorrupt
from recipe.agent_contracts.transition.termination import Termination

SCHEMA_VERSION = "turn-v1"
_FIRST_LINE = "sha256:" + "0" * 64


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
    """One turn. Field names follow the article's section 3; every null says why in its docstring."""

    schema_version: str = SCHEMA_VERSION
    previous_hash: str = _FIRST_LINE
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
    prompt_token_ids: list[int]
    """The whole context this turn was sampled from."""
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
    action_text: str
    observation: str | None
    """Raw text. Null: the episode ended before the environment answered."""
    observation_token_ids: list[int]
    """What the model reads of it; empty on the last turn."""
    reward_components: dict[str, float] | None = None
    """Null on every turn but the last, and on the last when the verifier gave no verdict or the code is censored."""
    final_state_hash: str | None = None
    """Blob of the sealed final state; set on the last turn."""
    termination_reason: Termination | None = None
    """Null: not the last turn."""
    error: str | None = None
    """What went wrong, for infrastructure and verifier failures. Null: nothing did."""
    continuation_parent: str | None = None
    """Null: partial episodes are aborted and restarted, never continued."""


class TrajectoryWriter:
    """Appends records to one part file. One writer a process; the name must be unique in the run."""

    def __init__(self, folder: Path, part: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"part-{part}.jsonl"
        self._stream = self.path.open("xb")
        self._previous = _FIRST_LINE
        self._encoder = msgspec.json.Encoder()

    def append(self, records: list[TurnRecord]) -> None:
        """Write an episode's records together and hand them to the operating system."""
        for record in records:
            line = self._encoder.encode(msgspec.structs.replace(record, previous_hash=self._previous))
            self._stream.write(line + b"\n")
            self._previous = sha256_bytes(line)
        self._stream.flush()

    def close(self) -> None:
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()


def read_part(path: Path) -> Iterator[TurnRecord]:
    """Read one part file and check its hash chain.

    Raises:
        RecordCorrupt: naming the line where the chain or the schema breaks. A torn last line is reported so too, after
            every whole line has been given.
    """
    decoder = msgspec.json.Decoder(TurnRecord)
    previous = _FIRST_LINE
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            evidence = f"{path}:{number}"
            if not line.endswith(b"\n"):
                raise RecordCorrupt("transition.records", "a whole line", "a torn last line", evidence)
            line = line[:-1]
            try:
                record = decoder.decode(line)
            except msgspec.DecodeError as error:
                raise RecordCorrupt("transition.records", SCHEMA_VERSION, str(error), evidence) from error
            if record.previous_hash != previous:
                raise RecordCorrupt("transition.records", previous, record.previous_hash, evidence)
            previous = sha256_bytes(line)
            yield record


def read_run(run: Path) -> Iterator[TurnRecord]:
    """All turn records of a run folder, part by part in name order."""
    for path in sorted((run / "trajectories").glob("part-*.jsonl")):
        yield from read_part(path)


def episodes(run: Path) -> Iterator[list[TurnRecord]]:
    """The run's episodes, each as its turns in order (a writer appends an episode's turns together)."""
    turns: list[TurnRecord] = []
    for record in read_run(run):
        if turns and record.episode.trajectory_id != turns[0].episode.trajectory_id:
            yield turns
            turns = []
        turns.append(record)
    if turns:
        yield turns

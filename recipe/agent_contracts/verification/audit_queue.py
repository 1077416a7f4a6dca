"""The queue of episodes that a human should look at, and the labels that humans gave them.

The queue is computed from the run's records alone and is the same whenever it is asked for: where layers disagree,
violations with success, suspiciously short successes, and a seeded random share of the rest, without which nothing is
known of the episodes that look harmless. A label is appended when a named person gives one; nothing generates labels.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Annotated

import msgspec

from recipe.agent_contracts.errors import ContractViolation, RecordCorrupt
from recipe.agent_contracts.transition.trajectory import TurnRecord, episodes
from recipe.agent_contracts.verification.objective import JUDGE_REJECTED

LABELS = Path("audits") / "human_labels.jsonl"
FEW_TOKENS = 0.5
"""A success with fewer sampled tokens than this share of the median of its family's successes is suspiciously short."""


class Risk(StrEnum):
    """Why an episode is queued."""

    JUDGE_DISAGREES = "judge_disagrees"
    """The hard gate passed and the judge rejected what it passed."""
    VIOLATION_WITH_SUCCESS = "violation_with_success"
    SHORT_SUCCESS = "short_success"
    RANDOM_SHARE = "random_share"


class QueuedEpisode(msgspec.Struct, frozen=True):
    """One episode to be looked at."""

    trajectory_id: str
    task_id: str
    family: str
    risks: list[Risk]
    num_action_tokens: int
    reward_components: dict[str, float]


class HumanLabel(msgspec.Struct, frozen=True, kw_only=True):
    """What a person said of one episode, and what exactly they said it of."""

    trajectory_id: str
    is_right: bool
    """Whether the final state is what the task asked for, in the person's own judgement of it."""
    by: Annotated[str, msgspec.Meta(min_length=1)]
    note: str
    labelled_at: float
    """Unix seconds, UTC."""
    task_success: float
    """The verifier's word at that time."""
    final_state_hash: str
    grader_hash: str


def risks_of(vector: Mapping[str, float]) -> list[Risk]:
    """The risks that a reward vector shows by itself."""
    risks, succeeded = [], vector["task_success"] > 0
    if succeeded and vector.get(JUDGE_REJECTED, 0.0) > 0:
        risks.append(Risk.JUDGE_DISAGREES)
    if succeeded and vector["policy_violation"] + vector["collateral_damage"] > 0:
        risks.append(Risk.VIOLATION_WITH_SUCCESS)
    return risks


def audit_queue(run: Path, random_share: float, seed: int) -> list[QueuedEpisode]:
    """The episodes that a human should look at and has not, riskiest first.

    Args:
        run: Run folder.
        random_share: Probability with which an episode is queued whatever it looks like, in [0, 1].
        seed: Of that choice, which depends on nothing else but the trajectory id.

    Raises:
        RecordCorrupt: when records or labels are damaged.
    """
    labelled = {label.trajectory_id for label in read_labels(run)}
    judged = [turns for turns in episodes(run) if turns[-1].reward_components is not None]
    short = _short_successes(judged)
    queue = []
    for turns in judged:
        identity, vector = turns[0].episode, turns[-1].reward_components
        assert vector is not None, "only episodes with a verdict are here"
        risks = risks_of(vector)
        if identity.trajectory_id in short:
            risks.append(Risk.SHORT_SUCCESS)
        if _fraction(seed, identity.trajectory_id) < random_share:
            risks.append(Risk.RANDOM_SHARE)
        if risks and identity.trajectory_id not in labelled:
            names = (identity.trajectory_id, identity.task_id, identity.family)
            queue.append(QueuedEpisode(*names, risks, _num_tokens(turns), vector))
    order = list(Risk)
    return sorted(queue, key=lambda found: (order.index(found.risks[0]), -len(found.risks), found.trajectory_id))


def read_labels(run: Path) -> Iterator[HumanLabel]:
    """Every label of a run, in the order in which they were given.

    Raises:
        RecordCorrupt: naming the line that is not a label.
    """
    path = run / LABELS
    if not path.exists():
        return
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            yield msgspec.json.decode(line, type=HumanLabel)
        except msgspec.MsgspecError as error:
            raise RecordCorrupt("verification.labels", "a human label", str(error), f"{path}:{number}") from error


def append_label(run: Path, trajectory_id: str, is_right: bool, by: str, note: str) -> HumanLabel:
    """Append one person's label of one episode. A second label of an episode does not replace the first.

    Raises:
        ContractViolation: ``verification.labels`` when the run has no such episode with a verdict, or nobody signs.
    """
    turns = next((turns for turns in episodes(run) if turns[0].episode.trajectory_id == trajectory_id), None)
    last = None if turns is None else turns[-1]
    if last is None or last.reward_components is None or last.final_state_hash is None:
        raise ContractViolation("verification.labels", "an episode with a verdict", trajectory_id, str(run))
    if not by.strip():
        raise ContractViolation("verification.labels", "the name of the person who labels", repr(by))
    label = HumanLabel(
        trajectory_id=trajectory_id,
        is_right=is_right,
        by=by.strip(),
        note=note,
        labelled_at=time.time(),
        task_success=last.reward_components["task_success"],
        final_state_hash=last.final_state_hash,
        grader_hash=last.episode.grader_hash,
    )
    path = run / LABELS
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as stream:
        stream.write(msgspec.json.encode(label) + b"\n")
        stream.flush()
        os.fsync(stream.fileno())
    return label


def _short_successes(judged: Iterable[list[TurnRecord]]) -> set[str]:
    lengths: dict[str, dict[str, int]] = defaultdict(dict)
    for turns in judged:
        identity, vector = turns[0].episode, turns[-1].reward_components
        if vector is not None and vector["task_success"] > 0:
            lengths[identity.family][identity.trajectory_id] = _num_tokens(turns)
    return {
        name
        for family in lengths.values()
        for name, length in family.items()
        if length < FEW_TOKENS * median(family.values())
    }


def _num_tokens(turns: list[TurnRecord]) -> int:
    return sum(len(turn.action_token_ids) for turn in turns)


def _fraction(seed: int, trajectory_id: str) -> float:
    """A number in [0, 1) that only the seed and the name decide."""
    digest = hashlib.sha256(f"{seed}:{trajectory_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64

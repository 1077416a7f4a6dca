"""Quarantine: episodes whose measurement cannot be trusted, kept whole and apart from what is trained on.

A run folder's `quarantine/part-*.jsonl`, one part a writing process, appended and never rewritten. A quarantined
episode fails its group; releasing it is a person's decision with a reason, is appended too, and never puts it into a
batch: its policy is past. What became of a group is in the ledger.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Literal

import msgspec

from recipe.agent_contracts.errors import ContractViolation, InvalidMeasurement, RecordCorrupt, VerifierFailure

FOLDER = "quarantine"
BY = Literal["reason", "family", "length", "reward"]


class Reason(StrEnum):
    """Why an episode is in quarantine. The value is the metric key."""

    TAMPERED = "tampered"
    """The measurement was attacked: the verifier says so, or the final state is none that the environment can reach."""
    VERIFIER_FAILURE = "verifier_failure"
    """No verdict: time-out, crash, malformed answer, missing artifact."""
    CONTRACT = "contract"
    """Another contract does not hold of it: several policies in one episode, not what its group was leased for."""


def reason_of(error: Exception) -> Reason | None:
    """Why an episode that ended in `error` belongs in quarantine. None: it does not (its record names the error)."""
    match error:
        case InvalidMeasurement():
            return Reason.TAMPERED
        case VerifierFailure():
            return Reason.VERIFIER_FAILURE
        case ContractViolation():
            return Reason.CONTRACT
    return None


class Entry(msgspec.Struct, frozen=True, kw_only=True, tag="quarantined"):
    """One episode in quarantine."""

    at: float
    """Unix seconds, UTC."""
    trajectory_id: str
    group_id: str
    task_id: str
    family: str
    length: str
    """Band of sampled tokens: `64-127`."""
    reason: Reason
    error: str
    final_state_hash: str
    """Blob of the sealed final state: the evidence."""
    reward: dict[str, float] | None
    """The verifier's vector. None: there is none."""


class Release(msgspec.Struct, frozen=True, kw_only=True, tag="released"):
    """A person's word that an episode was quarantined wrongly."""

    at: float
    trajectory_id: str
    by: str
    why: str


class Held(msgspec.Struct, frozen=True):
    """An entry and what came of it."""

    entry: Entry
    release: Release | None


class Quarantine:
    """The quarantine of one run. Any number of processes may add to it."""

    def __init__(self, run: Path) -> None:
        self.folder = run / FOLDER
        self._part = self.folder / f"part-{int(time.time() * 1000)}-{os.getpid()}.jsonl"

    def add(self, entry: Entry) -> None:
        """Append an entry; it is on the disk when this returns."""
        self._append(entry)

    def release(self, trajectory_id: str, by: str, why: str) -> None:
        """Append a release.

        Raises:
            ContractViolation: ``verification.quarantine`` when the episode is not held, or `by` or `why` is empty.
        """
        if not by.strip() or not why.strip():
            raise ContractViolation("verification.quarantine", "who releases, and why", f"by={by!r}, why={why!r}")
        held = [one for one in self.held() if one.entry.trajectory_id == trajectory_id]
        if not held or held[-1].release is not None:
            found = "released already" if held else "not in quarantine"
            raise ContractViolation("verification.quarantine", "an episode in quarantine", found, trajectory_id)
        self._append(Release(at=time.time(), trajectory_id=trajectory_id, by=by, why=why))

    def held(self) -> list[Held]:
        """Every entry in the order of time, with its release.

        Raises:
            RecordCorrupt: when a line that is not the last of its part cannot be read.
        """
        lines = list(self._lines())
        releases = {line.trajectory_id: line for line in lines if isinstance(line, Release)}
        entries = sorted((line for line in lines if isinstance(line, Entry)), key=lambda entry: entry.at)
        return [Held(entry, releases.get(entry.trajectory_id)) for entry in entries]

    def _append(self, line: Entry | Release) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._part.open("ab") as part:
            part.write(msgspec.json.encode(line) + b"\n")
            part.flush()
            os.fsync(part.fileno())

    def _lines(self) -> Iterator[Entry | Release]:
        for path in sorted(self.folder.glob("part-*.jsonl")):
            lines = path.read_bytes().split(b"\n")
            for number, line in enumerate(lines, start=1):
                if not line:
                    continue
                try:
                    yield msgspec.json.decode(line, type=Entry | Release)
                except msgspec.MsgspecError as error:
                    if number == len(lines):  # the writer was killed: this line was never whole
                        break
                    raise RecordCorrupt(
                        "verification.quarantine", "an entry or a release", str(error), f"{path}:{number}"
                    ) from error


def count(held: list[Held], by: BY) -> Counter[str]:
    """Episodes still in quarantine by reason, family, band of length, or task success (`none`: no verdict)."""
    return Counter(_stratum(one.entry, by) for one in held if one.release is None)


def _stratum(entry: Entry, by: BY) -> str:
    match by:
        case "reason":
            return entry.reason
        case "family":
            return entry.family
        case "length":
            return entry.length
        case "reward":
            return "none" if entry.reward is None else f"{entry.reward['task_success']:g}"

"""The scaffold lock: one file a run that says which scaffolds may sample, written before the first process starts.

    scaffold.json            which scaffolds each declared decoding may use, and the files the weights started from
    scaffold_attested.jsonl  who computed them again, in which process, and agreed

Evaluation decodes some tasks otherwise (greedily) than training samples. That is part of the experiment: each declared
decoding is locked by itself, and results are compared across checkpoints within one decoding only. A process whose own
scaffold is not locked under its decoding raises; the run stops before it samples a token.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from recipe.agent_contracts.canonical import canonical_json, sha256_json
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.policy.manifest import FieldChange, Scaffold, diff
from recipe.agent_contracts.transition.snapshots import write_atomically

LOCK, ATTESTED = "scaffold.json", "scaffold_attested.jsonl"
TRAIN = "train"
_REMEDY = "A changed scaffold is another policy: restore it, or start a new run"


class Attestation(msgspec.Struct, frozen=True):
    """One process that computed scaffolds from its own objects and found them locked."""

    role: str
    """launcher, trainer, rollout, evaluator, reward or engine."""
    scaffolds: dict[str, list[str]]
    """Scaffold hashes by decoding; for the engine only the part of the scaffold that it knows."""
    host: str
    process_id: int
    at: float
    """Unix seconds, UTC."""


class ScaffoldLock(msgspec.Struct, frozen=True):
    """See the module's docstring."""

    base_revision: str
    """Checksum of the files the run starts from."""
    decodings: dict[str, list[Scaffold]]
    """`train`, and `heldout/<decoding>` for each that the held-out rows declare. Mostly one scaffold each; several when
    tasks differ in their tools, budgets or system prompt."""

    @property
    def lock_hash(self) -> str:
        return sha256_json(self)

    def require(self, decoding: str, scaffold: Scaffold, role: str) -> None:
        """Raise unless `scaffold` is locked under `decoding`.

        Raises:
            ContractViolation: ``policy.scaffold``, naming each field that drifted, its locked and its found value.
        """
        locked = self.decodings.get(decoding)
        if locked is None:
            raise ContractViolation("policy.scaffold", f"one of the decodings {sorted(self.decodings)}", decoding, role)
        if scaffold not in locked:
            nearest = min((diff(known, scaffold) for known in locked), key=len)
            raise _drift(role, decoding, nearest)


def decoding_key(partition: str, decoding: str) -> str:
    """Name of a decoding in the lock: `train`, or `heldout/<decoding>`."""
    return TRAIN if partition == TRAIN else f"heldout/{decoding}"


def lock_of(base_revision: str, decodings: Mapping[str, Sequence[Scaffold]]) -> ScaffoldLock:
    """A lock, with each decoding's scaffolds once and in a fixed order."""
    unique = {
        name: sorted(set(scaffolds), key=lambda scaffold: scaffold.scaffold_hash)
        for name, scaffolds in sorted(decodings.items())
    }
    return ScaffoldLock(base_revision, unique)


def write_lock(run: Path, lock: ScaffoldLock) -> None:
    """Write the lock of a new run; for a run that has one, require that nothing changed.

    Raises:
        ContractViolation: ``policy.scaffold`` when a resumed run has another scaffold or starts from other files.
    """
    path = run / LOCK
    if not path.exists():
        write_atomically(path, canonical_json(lock))
        return
    before = read_lock(run)
    if before.base_revision != lock.base_revision:
        raise ContractViolation("policy.base", before.base_revision, lock.base_revision, str(path), _REMEDY)
    for decoding, scaffolds in lock.decodings.items():
        for scaffold in scaffolds:
            before.require(decoding, scaffold, "resume")


def read_lock(run: Path) -> ScaffoldLock:
    """The lock of a run folder.

    Raises:
        FileNotFoundError: when the run has none.
        msgspec.DecodeError: when the file is not one.
    """
    return msgspec.json.decode((run / LOCK).read_bytes(), type=ScaffoldLock)


def attest(run: Path, role: str, scaffolds: Mapping[str, Sequence[Scaffold]]) -> None:
    """Require that each scaffold is locked, and record that this process computed it.

    Raises:
        ContractViolation: ``policy.scaffold``.
    """
    lock = read_lock(run)
    for decoding, found in scaffolds.items():
        for scaffold in found:
            lock.require(decoding, scaffold, role)
    record_attestation(run, role, {name: [item.scaffold_hash for item in found] for name, found in scaffolds.items()})


def record_attestation(run: Path, role: str, scaffolds: dict[str, list[str]]) -> None:
    """Append one line. Lines are short enough for the operating system to append each whole."""
    line = Attestation(role, scaffolds, socket.gethostname(), os.getpid(), time.time())
    with (run / ATTESTED).open("ab", buffering=0) as stream:
        stream.write(msgspec.json.encode(line) + b"\n")


def read_attestations(run: Path) -> list[Attestation]:
    """Who attested, in order."""
    decoder = msgspec.json.Decoder(Attestation)
    return [decoder.decode(line) for line in (run / ATTESTED).read_bytes().splitlines()]


def _drift(role: str, decoding: str, changes: Sequence[FieldChange]) -> ContractViolation:
    words = "; ".join(str(change) for change in changes)
    return ContractViolation("policy.scaffold", "the locked scaffold", words, f"{role}, decoding {decoding}", _REMEDY)

"""The policy registry of a run (SQLite): which weights were served where, and when.

    built -> staged -> active -> retired        (any of the first two may end in failed)

One row is one publication: a version on one inference replica. `built` is written before a byte is sent, `staged` once
every rank of the replica has acknowledged the expected digest, `active` when the replica serves it; the one it replaced
is then `retired`. A version that is published again after a resume is another row. Writers are few and rare, so each
call opens, locks and closes the file.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from recipe.agent_contracts.canonical import sha256_json
from recipe.agent_contracts.errors import ContractViolation

FILE_NAME = "policies.sqlite"
_BUSY_SECONDS = 30.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS publications (
    id INTEGER PRIMARY KEY, policy_version INTEGER NOT NULL, replica INTEGER NOT NULL, state TEXT NOT NULL,
    parent_version INTEGER, num_ranks INTEGER NOT NULL, base_checksum TEXT, adapter_checksum TEXT,
    weight_checksum TEXT, manifest_hash TEXT, failure TEXT,
    built_at REAL NOT NULL, staged_at REAL, active_at REAL, retired_at REAL);
CREATE TABLE IF NOT EXISTS acknowledgements (
    publication INTEGER NOT NULL REFERENCES publications(id), part TEXT NOT NULL, rank INTEGER NOT NULL,
    received_checksum TEXT NOT NULL, num_compared INTEGER NOT NULL, not_compared TEXT, at REAL NOT NULL,
    PRIMARY KEY (publication, part, rank));
"""


class State(StrEnum):
    """Where a publication stands."""

    BUILT = "built"
    STAGED = "staged"
    ACTIVE = "active"
    RETIRED = "retired"
    FAILED = "failed"


class Part(StrEnum):
    """What one transfer carried: all weights, or with LoRA the base once and then the adapter of each version."""

    FULL = "full"
    BASE = "base"
    ADAPTER = "adapter"


class Publication(msgspec.Struct, frozen=True):
    """One version on one replica. Times are Unix seconds, UTC; a null time has not come."""

    id: int
    policy_version: int
    replica: int
    state: State
    parent_version: int | None
    """The version that the replica served before. None: none."""
    num_ranks: int
    """Inference ranks of the replica, each of which must acknowledge."""
    base_checksum: str | None
    """With LoRA: fingerprint of the base weights as sent. None: no adapter, or the engine loaded the base itself."""
    adapter_checksum: str | None
    """None: no adapter."""
    weight_checksum: str | None
    """What the version is: the fingerprint of all weights, or of base and adapter together. None: not staged."""
    manifest_hash: str | None
    """Manifest of the version in the training scaffold. None: not staged."""
    failure: str | None
    """Why nothing was switched. None: nothing failed."""
    built_at: float
    staged_at: float | None
    active_at: float | None
    retired_at: float | None


class Acknowledgement(msgspec.Struct, frozen=True):
    """What one inference rank found."""

    part: Part
    rank: int
    received_checksum: str
    num_compared: int
    """Received tensors that were found again in what the rank now computes with, value for value."""
    not_compared: str | None
    """Why the weights in use were not, or not all, compared. None: all were."""
    at: float


class Registry:
    """The registry of one run folder.

    Args:
        run: Run folder; the file is made on first use.
        clock: Unix seconds.
    """

    def __init__(self, run: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = run / FILE_NAME
        self._clock = clock

    def build(self, policy_version: int, replica: int, num_ranks: int) -> int:
        """Announce a version before a byte of it is sent, and return the publication's id."""
        with self._writing() as connection:
            row = connection.execute(
                "SELECT policy_version FROM publications WHERE replica = ? AND state = 'active'", (replica,)
            ).fetchone()
            cursor = connection.execute(
                "INSERT INTO publications (policy_version, replica, state, parent_version, num_ranks, built_at) "
                "VALUES (?, ?, 'built', ?, ?, ?)",
                (policy_version, replica, None if row is None else row["policy_version"], num_ranks, self._clock()),
            )
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def acknowledge(
        self,
        policy_version: int,
        replica: int,
        part: Part,
        rank: int,
        received: str,
        num_compared: int,
        not_compared: str | None,
    ) -> None:
        """One rank says what it received and what it found in use, of the version that is being built.

        Raises:
            ContractViolation: ``publication.state`` when nobody announced that version for this replica.
        """
        with self._writing() as connection:
            row = connection.execute(
                "SELECT id FROM publications WHERE policy_version = ? AND replica = ? AND state = 'built' "
                "ORDER BY id DESC",
                (policy_version, replica),
            ).fetchone()
            if row is None:
                raise ContractViolation(
                    "publication.state", f"version {policy_version} announced for replica {replica}", "no such row"
                )
            connection.execute(
                "INSERT INTO acknowledgements VALUES (?, ?, ?, ?, ?, ?, ?)",
                (row["id"], part, rank, received, num_compared, not_compared, self._clock()),
            )

    def require_acknowledged(self, publication: int, part: Part, expected: str) -> None:
        """Raise unless every rank acknowledged the expected checksum.

        Raises:
            ContractViolation: ``publication.ack``, naming the ranks that are silent or hold something else.
        """
        record = self.get(publication)
        found = {ack.rank: ack.received_checksum for ack in self.acknowledgements(publication) if ack.part == part}
        silent = sorted(set(range(record.num_ranks)) - set(found))
        wrong = sorted(rank for rank, checksum in found.items() if checksum != expected)
        if silent or wrong:
            raise ContractViolation(
                "publication.ack",
                expected=f"{expected} acknowledged by {record.num_ranks} ranks of replica {record.replica}",
                found=f"silent ranks {silent}, ranks with another digest {wrong}",
                evidence=f"{self.path}: publication {publication}, version {record.policy_version}",
            )

    def stage(
        self,
        publication: int,
        *,
        checksum: str,
        manifest_hash: str,
        base: str | None = None,
        adapter: str | None = None,
    ) -> None:
        """Every rank has it. Replicas that serve one version must hold the same weights.

        Raises:
            ContractViolation: ``publication.version`` when another replica serves this version with other weights.
        """
        with self._writing() as connection:
            record = _only(connection, publication, State.BUILT)
            other = connection.execute(
                "SELECT replica, weight_checksum FROM publications "
                "WHERE policy_version = ? AND state = 'active' AND weight_checksum != ?",
                (record.policy_version, checksum),
            ).fetchone()
            if other is not None:
                raise ContractViolation(
                    "publication.version",
                    expected=f"version {record.policy_version} as replica {other['replica']} serves it: "
                    f"{other['weight_checksum']}",
                    found=checksum,
                    evidence=str(self.path),
                )
            connection.execute(
                "UPDATE publications SET state = 'staged', weight_checksum = ?, manifest_hash = ?, base_checksum = ?, "
                "adapter_checksum = ?, staged_at = ? WHERE id = ?",
                (checksum, manifest_hash, base, adapter, self._clock(), publication),
            )

    def activate(self, publication: int) -> None:
        """The replica serves it from now on; what it served before is retired."""
        with self._writing() as connection:
            record, now = _only(connection, publication, State.STAGED), self._clock()
            connection.execute(
                "UPDATE publications SET state = 'retired', retired_at = ? WHERE replica = ? AND state = 'active'",
                (now, record.replica),
            )
            connection.execute(
                "UPDATE publications SET state = 'active', active_at = ? WHERE id = ?", (now, publication)
            )

    def fail(self, publication: int, why: str) -> None:
        """Nothing was switched: what was active still is."""
        with self._writing() as connection:
            connection.execute("UPDATE publications SET state = 'failed', failure = ? WHERE id = ?", (why, publication))

    def retire_all(self) -> None:
        """The engines that served are gone: nothing is served until the next publication."""
        with self._writing() as connection:
            connection.execute(
                "UPDATE publications SET state = 'retired', retired_at = ? WHERE state = 'active'", (self._clock(),)
            )

    def get(self, publication: int) -> Publication:
        (record,) = self._read("WHERE id = ?", publication)
        return record

    def publications(self) -> list[Publication]:
        """All of them, oldest first."""
        return self._read("ORDER BY id")

    def acknowledgements(self, publication: int) -> list[Acknowledgement]:
        """What the ranks found, in the order in which they said it."""
        with self._open() as connection:
            rows = connection.execute(
                "SELECT part, rank, received_checksum, num_compared, not_compared, at FROM acknowledgements "
                "WHERE publication = ? ORDER BY at, rank",
                (publication,),
            ).fetchall()
        return [msgspec.convert(dict(row), Acknowledgement) for row in rows]

    def serving(self, at: float) -> list[Publication]:
        """What each replica served at a time (Unix seconds), ordered by replica."""
        return self._read(
            "WHERE active_at <= ? AND (retired_at IS NULL OR retired_at > ?) ORDER BY replica, id", at, at
        )

    def published(self, policy_version: int) -> Publication:
        """The last publication of a version that was served.

        Raises:
            ContractViolation: ``publication.version`` when the version never was.
        """
        found = self._read("WHERE policy_version = ? AND active_at IS NOT NULL ORDER BY id", policy_version)
        if not found:
            raise ContractViolation(
                "publication.version", f"a publication of version {policy_version}", "none", str(self.path)
            )
        return found[-1]

    def _read(self, clause: str, *values: Any) -> list[Publication]:
        names = ", ".join(Publication.__struct_fields__)
        with self._open() as connection:
            rows = connection.execute(f"SELECT {names} FROM publications {clause}", values).fetchall()
        return [msgspec.convert(dict(row), Publication) for row in rows]

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
        connection.row_factory = sqlite3.Row
        try:
            connection.executescript(_SCHEMA)
            yield connection
        finally:
            connection.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")


def lora_checksum(base: str, adapter: str) -> str:
    """The checksum of a base and an adapter, which are one version."""
    return sha256_json({"base": base, "adapter": adapter})


def _only(connection: sqlite3.Connection, publication: int, state: State) -> Publication:
    names = ", ".join(Publication.__struct_fields__)
    row = connection.execute(f"SELECT {names} FROM publications WHERE id = ?", (publication,)).fetchone()
    record = msgspec.convert(dict(row), Publication)
    if record.state is not state:
        raise ContractViolation("publication.state", state, record.state, f"publication {publication}")
    return record

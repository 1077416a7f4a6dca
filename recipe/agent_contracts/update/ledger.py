"""The ledger (SQLite): what became of each group of siblings, exactly once.

    LEASED -> COMPLETE -> ADMITTED -> APPLIED -> COMMITTED
    any state before COMMITTED may end in ROLLED_BACK; before APPLIED also in DISCARDED or QUARANTINED

One process writes, the trainer's. Every change of state is one transaction with a line in the history, and a change
that is not in the table above raises. A group id that was leased once is never leased again.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.update.leases import GroupLease, decode_lease

FILE_NAME = "ledger.sqlite"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS groups (
    group_id TEXT PRIMARY KEY, state TEXT NOT NULL, lease TEXT NOT NULL, family TEXT NOT NULL,
    leased_step INTEGER NOT NULL, leased_at REAL NOT NULL, reason TEXT,
    num_tokens INTEGER, seconds REAL, mean_return REAL, applied_step INTEGER, output_version INTEGER);
CREATE INDEX IF NOT EXISTS groups_by_state ON groups (state);
CREATE INDEX IF NOT EXISTS groups_by_reason ON groups (reason) WHERE reason IS NOT NULL;
CREATE TABLE IF NOT EXISTS history (
    group_id TEXT NOT NULL, state TEXT NOT NULL, step INTEGER NOT NULL, at REAL NOT NULL);
"""


class State(StrEnum):
    """Where a group stands."""

    LEASED = "leased"
    COMPLETE = "complete"
    ADMITTED = "admitted"
    APPLIED = "applied"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    DISCARDED = "discarded"
    QUARANTINED = "quarantined"


TERMINAL = frozenset({State.COMMITTED, State.ROLLED_BACK, State.DISCARDED, State.QUARANTINED})
_REFUSED = {State.ROLLED_BACK, State.DISCARDED, State.QUARANTINED}
NEXT: dict[State, set[State]] = {
    State.LEASED: {State.COMPLETE, *_REFUSED},
    State.COMPLETE: {State.ADMITTED, *_REFUSED},
    State.ADMITTED: {State.APPLIED, *_REFUSED},
    State.APPLIED: {State.COMMITTED, State.ROLLED_BACK},
    **{state: set() for state in TERMINAL},
}


class GroupRow(msgspec.Struct, frozen=True):
    """One group as the ledger holds it."""

    group_id: str
    state: State
    lease: GroupLease
    family: str
    leased_step: int
    """verl's step when the lease was issued."""
    leased_at: float
    """Unix seconds, UTC."""
    reason: str | None
    """Why it was discarded, quarantined or rolled back."""
    num_tokens: int | None
    """Sampled tokens of all its recorded siblings. None: not counted yet."""
    seconds: float | None
    """From the lease until it was complete or refused."""
    mean_return: float | None
    """Over the siblings with a verdict. None: none had one."""
    applied_step: int | None
    output_version: int | None
    """Policy version that its update made."""


class Measured(msgspec.Struct, frozen=True):
    """What a group cost and earned, for the strata."""

    num_tokens: int
    mean_return: float | None


class Ledger:
    """The ledger of one run folder.

    Args:
        run: Run folder; the file is made on first use.
        clock: Unix seconds.
    """

    def __init__(self, run: Path, clock: Callable[[], float] = time.time) -> None:
        run.mkdir(parents=True, exist_ok=True)
        self.path = run / FILE_NAME
        self._clock = clock
        self._connection = sqlite3.connect(self.path, timeout=30.0, isolation_level=None, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.executescript(_SCHEMA)

    def lease(self, leases: Iterable[GroupLease], step: int) -> None:
        """Record leases before their prompts are handed out.

        Raises:
            ContractViolation: ``admission.ledger`` when a group id was leased before.
        """
        with self._writing() as connection:
            for lease in leases:
                try:
                    connection.execute(
                        "INSERT INTO groups (group_id, state, lease, family, leased_step, leased_at) "
                        "VALUES (?, 'leased', ?, ?, ?, ?)",
                        (lease.group_id, lease.encode(), lease.family, step, self._clock()),
                    )
                except sqlite3.IntegrityError as error:
                    raise ContractViolation(
                        "admission.ledger", "a group id that was never leased", lease.group_id, str(self.path)
                    ) from error
                self._note(connection, lease.group_id, State.LEASED, step)

    def complete(self, group_id: str, step: int, measured: Measured) -> None:
        """All siblings are there and verified."""
        with self._writing() as connection:
            self._move(connection, group_id, State.COMPLETE, step)
            self._measure(connection, group_id, measured)

    def refuse(self, group_id: str, state: State, reason: str, step: int, measured: Measured | None) -> None:
        """Discard, quarantine or roll back a group, with its reason."""
        with self._writing() as connection:
            self._move(connection, group_id, state, step, reason=reason)
            if measured is not None:
                self._measure(connection, group_id, measured)

    def admit(self, group_ids: Iterable[str], step: int) -> None:
        """The groups are in the batch of a step."""
        with self._writing() as connection:
            for group_id in group_ids:
                self._move(connection, group_id, State.ADMITTED, step)

    def apply(self, group_ids: Iterable[str], step: int, output_version: int) -> None:
        """One optimizer step used them all. All or none is recorded."""
        with self._writing() as connection:
            for group_id in group_ids:
                self._move(connection, group_id, State.APPLIED, step, applied_step=step, output_version=output_version)

    def applied_up_to(self, step: int) -> list[str]:
        """Groups that updates up to a step used and no checkpoint holds yet, in order."""
        rows = self._connection.execute(
            "SELECT group_id FROM groups WHERE state = 'applied' AND applied_step <= ? ORDER BY applied_step, group_id",
            (step,),
        )
        return [row["group_id"] for row in rows]

    def commit(self, group_ids: Iterable[str], step: int) -> None:
        """The checkpoint of a step holds what these groups did."""
        with self._writing() as connection:
            for group_id in group_ids:
                self._move(connection, group_id, State.COMMITTED, step)

    def roll_back_open(self, step: int) -> int:
        """After a crash: every group that is in no terminal state was for nothing. Returns how many there were."""
        with self._writing() as connection:
            rows = connection.execute(
                "SELECT group_id FROM groups WHERE state IN ('leased', 'complete', 'admitted', 'applied')"
            ).fetchall()
            for row in rows:
                self._move(connection, row["group_id"], State.ROLLED_BACK, step, reason=f"resumed from step {step}")
        return len(rows)

    def group(self, group_id: str) -> GroupRow | None:
        """One group. None: it was never leased."""
        row = self._connection.execute(f"SELECT {_COLUMNS} FROM groups WHERE group_id = ?", (group_id,)).fetchone()
        return None if row is None else _group(row)

    def groups(self, state: State | None = None) -> Iterator[GroupRow]:
        """All groups, or those in one state."""
        clause, values = ("", ()) if state is None else ("WHERE state = ?", (state,))
        for row in self._connection.execute(f"SELECT {_COLUMNS} FROM groups {clause} ORDER BY rowid", values):
            yield _group(row)

    def counts(self) -> dict[State, int]:
        """How many groups are in each state."""
        rows = self._connection.execute("SELECT state, count(*) AS n FROM groups GROUP BY state")
        found = {State(row["state"]): row["n"] for row in rows}
        return {state: found.get(state, 0) for state in State}

    def times(self, state: State) -> dict[str, float]:
        """When each group last came into a state (Unix seconds), by group id."""
        rows = self._connection.execute(
            "SELECT group_id, max(at) AS at FROM history WHERE state = ? GROUP BY group_id", (state,)
        )
        return {row["group_id"]: row["at"] for row in rows}

    def lost(self, reason: str) -> int:
        """How many groups were refused for a reason."""
        row = self._connection.execute("SELECT count(*) AS n FROM groups WHERE reason = ?", (reason,)).fetchone()
        return int(row["n"])

    def snapshot(self, path: Path) -> None:
        """Write a consistent copy of the ledger, on disk when this returns."""
        path.unlink(missing_ok=True)
        self._connection.execute("VACUUM INTO ?", (str(path),))

    def close(self) -> None:
        self._connection.close()

    def _move(self, connection: sqlite3.Connection, group_id: str, to: State, step: int, **changes: Any) -> None:
        row = connection.execute("SELECT state FROM groups WHERE group_id = ?", (group_id,)).fetchone()
        before = None if row is None else State(row["state"])
        if before is None or to not in NEXT[before]:
            allowed = sorted(state for state, after in NEXT.items() if to in after)
            raise ContractViolation(
                "admission.ledger",
                expected=f"{to} after one of {allowed}",
                found=before or "a group that was never leased",
                evidence=f"{self.path}: group {group_id}",
            )
        fields = {"state": to, **changes}
        assignments = ", ".join(f"{name} = ?" for name in fields)
        connection.execute(f"UPDATE groups SET {assignments} WHERE group_id = ?", (*fields.values(), group_id))
        self._note(connection, group_id, to, step)

    def _measure(self, connection: sqlite3.Connection, group_id: str, measured: Measured) -> None:
        connection.execute(
            "UPDATE groups SET num_tokens = ?, mean_return = ?, seconds = ? - leased_at WHERE group_id = ?",
            (measured.num_tokens, measured.mean_return, self._clock(), group_id),
        )

    def _note(self, connection: sqlite3.Connection, group_id: str, state: State, step: int) -> None:
        connection.execute("INSERT INTO history VALUES (?, ?, ?, ?)", (group_id, state, step, self._clock()))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


_COLUMNS = ", ".join(GroupRow.__struct_fields__)


def _group(row: sqlite3.Row) -> GroupRow:
    return msgspec.convert({**dict(row), "lease": decode_lease(row["lease"])}, GroupRow)

"""The commit protocol: weights, consumed groups, step and version become durable together, or not at all.

    weights saved -> the ledger's copy joins them -> `commit.json` is renamed into place -> COMMITTED in the ledger

`commit.json` is the commit: a folder without one is not a checkpoint, whatever verl's own tracker file says. After a
crash `recover` brings the ledger to what the newest commit says.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from recipe.agent_contracts.canonical import canonical_json, sha256_bytes
from recipe.agent_contracts.errors import RecordCorrupt
from recipe.agent_contracts.transition.snapshots import write_atomically
from recipe.agent_contracts.update.ledger import FILE_NAME, Ledger
from recipe.agent_contracts.update.record import recorded_steps, update_path

COMMIT = "commit.json"
PREFIX = "global_step_"


class Commit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a checkpoint holds."""

    step: int
    output_policy_version: int
    group_ids: list[str]
    """Consumed since the commit before it, in order."""
    ledger_hash: str
    """Of the ledger's copy beside it."""


def commit_checkpoint(folder: Path, ledger: Ledger, step: int) -> Commit:
    """Commit a step whose weights were saved in `folder`."""
    _flush(folder)
    ledger.snapshot(folder / FILE_NAME)
    _flush(folder)
    groups = ledger.applied_up_to(step)
    commit = Commit(step, step, groups, sha256_bytes((folder / FILE_NAME).read_bytes()))
    write_atomically(folder / COMMIT, canonical_json(commit))
    ledger.commit(groups, step)
    return commit


def read_commit(folder: Path) -> Commit | None:
    """The commit of a checkpoint folder. None: it was never committed.

    Raises:
        RecordCorrupt: when the file, or the ledger's copy that it names, is damaged.
    """
    path = folder / COMMIT
    if not path.exists():
        return None
    try:
        commit = msgspec.json.decode(path.read_bytes(), type=Commit)
        found = sha256_bytes((folder / FILE_NAME).read_bytes())
    except (msgspec.MsgspecError, OSError) as error:
        raise RecordCorrupt("update.commit", "a readable commit", str(error), str(path)) from error
    if found != commit.ledger_hash:
        raise RecordCorrupt("update.commit", commit.ledger_hash, found, str(folder / FILE_NAME))
    return commit


def newest_committed(checkpoints: Path) -> Path | None:
    """The committed folder of the highest step."""
    for folder in sorted(checkpoints.glob(f"{PREFIX}*"), key=_step, reverse=True):
        if (folder / COMMIT).exists():
            return folder
    return None


def recover(run: Path, ledger: Ledger) -> Path | None:
    """Bring a run folder back to its newest commit, and return that checkpoint. None: nothing was ever committed.

    Groups of the commit that the ledger does not call COMMITTED become so; every other open one is ROLLED_BACK. What
    was written after the commit (later checkpoint folders, records of updates that are undone) is removed, so that it
    cannot be taken for what will be done in its place.
    """
    checkpoints = run / "checkpoints"
    newest = newest_committed(checkpoints)
    commit = None if newest is None else read_commit(newest)
    step = 0 if commit is None else commit.step
    if commit is not None:
        uncommitted = set(ledger.applied_up_to(step))
        ledger.commit([group for group in commit.group_ids if group in uncommitted], step)
    ledger.roll_back_open(step)
    for folder in checkpoints.glob(f"{PREFIX}*"):
        if _step(folder) > step:
            shutil.rmtree(folder)
    for later in recorded_steps(run):
        if later > step:
            update_path(run, later).unlink()
    return newest


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix(PREFIX))


def _flush(folder: Path) -> None:
    """Have every file of a folder on disk before its commit is."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

"""Which blobs of a run are still named, and the removal of the others.

A blob is kept when its hash stands in a record or in another JSON or YAML file of the run, or in a blob that is kept
(a tree names its parts). The search is for the digest itself and not for known fields, so that a new kind of record
never loses its evidence. A young blob is kept too: a writer stores a blob before it writes the record that names it.
For runs that are not being written: an old blob that a writer stores again stays old.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from recipe.agent_contracts.transition.snapshots import BlobStore
from recipe.agent_contracts.transition.trajectory.store import checked_lines, parts

MIN_AGE_SECONDS = 3600.0
_HASH = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_TEXT = {".json", ".jsonl", ".yaml", ".sha256"}
_NOT_SEARCHED = {"blobs", "checkpoints", "trajectories"}


class Collected(msgspec.Struct, frozen=True):
    """What a collection kept and removed."""

    num_kept: int
    num_removed: int
    removed_bytes: int


def reachable_blobs(run: Path) -> set[str]:
    """Hashes (`sha256:<hex>`) of the stored blobs that the run's records and files name, directly or through a blob.

    Raises:
        RecordCorrupt: when a record or a kept blob is damaged: then nothing may be removed.
    """
    store = BlobStore(run / "blobs")
    kept: set[str] = set()
    found = {name for text in _texts(run) for name in _named(text)}
    while found:
        present = {name for name in found - kept if store.path(name).exists()}
        kept |= present
        found = {name for blob in present for name in _named(store.get(blob))}
    return kept


def collect_garbage(run: Path, dry_run: bool) -> Collected:
    """Remove the blobs of a run that nothing names.

    Args:
        run: Run folder.
        dry_run: Count only.

    Raises:
        RecordCorrupt: as `reachable_blobs`; then nothing was removed.
    """
    # Listed before the records are read: a blob that is stored meanwhile is not in the list.
    blobs = sorted((run / "blobs").glob("??/*"))
    kept = reachable_blobs(run)
    newest = time.time() - MIN_AGE_SECONDS
    garbage = [path for path in blobs if f"sha256:{path.name}" not in kept and path.stat().st_mtime < newest]
    num_bytes = sum(path.stat().st_size for path in garbage)
    if not dry_run:
        for path in garbage:
            path.unlink()
    return Collected(len(blobs) - len(garbage), len(garbage), num_bytes)


def _texts(run: Path) -> Iterator[bytes]:
    for part in parts(run):
        yield from checked_lines(part)
    for path in sorted(run.rglob("*")):
        searched = not _NOT_SEARCHED & set(path.relative_to(run).parts)
        if searched and path.suffix in _TEXT and path.is_file():
            yield path.read_bytes()


def _named(text: bytes) -> set[str]:
    return {f"sha256:{digest.decode()}" for digest in _HASH.findall(text)}

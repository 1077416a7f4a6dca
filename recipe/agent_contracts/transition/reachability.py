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

from recipe.agent_contracts.transition.snapshots import BlobStore, Collected, SnapshotStore
from recipe.agent_contracts.transition.trajectory.store import checked_lines, parts

MIN_AGE_SECONDS = 3600.0
_HASH = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_TEXT = {".json", ".jsonl", ".yaml", ".sha256"}
_NOT_SEARCHED = {"blobs", "checkpoints", "trajectories"}


def reachable_blobs(run: Path) -> set[str]:
    """Hashes (`sha256:<hex>`) of the stored blobs that the run's records and files name, directly or through a blob.

    Raises:
        RecordCorrupt: when a record or a kept blob is damaged: then nothing may be removed.
    """
    store = BlobStore(run / "blobs")
    kept: set[str] = set()
    found = {name for text in _texts(run) for name in _named(text)}
    while found:
        present = {name for name in found - kept if store.filesystem.exists(store.path(name))}
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
    blobs = {f"sha256:{path.name}": path.stat() for path in (run / "blobs").glob("??/*")}
    newest = time.time() - MIN_AGE_SECONDS
    kept = reachable_blobs(run) | {name for name, stat in blobs.items() if stat.st_mtime >= newest}
    if not dry_run:
        return SnapshotStore(BlobStore(run / "blobs")).collect_garbage(kept, snapshot_ids=())
    sizes = [stat.st_size for name, stat in blobs.items() if name not in kept]
    return Collected(len(sizes), sum(sizes))


def _texts(run: Path) -> Iterator[bytes]:
    for part in parts(run):
        yield from checked_lines(part)
    for path in sorted(run.rglob("*")):
        searched = not _NOT_SEARCHED & set(path.relative_to(run).parts)
        if searched and path.suffix in _TEXT and path.is_file():
            yield path.read_bytes()


def _named(text: bytes) -> set[str]:
    return {f"sha256:{digest.decode()}" for digest in _HASH.findall(text)}

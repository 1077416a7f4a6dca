"""Content-addressed stores: `BlobStore` holds bytes by their SHA-256, `SnapshotStore` holds snapshots in one.

A blob is written once (temporary file, fsync, rename) and checked on every read, so that a record that names a hash
can be replayed from the store alone. Equal content has one name and is stored once, whoever writes it and how often:
a snapshot after an edit adds the changed files and the directories above them. The root is a folder or an fsspec URL.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import fsspec
import msgspec
from fsspec.implementations.local import LocalFileSystem

from recipe.agent_contracts.canonical import canonical_json, sha256_bytes
from recipe.agent_contracts.errors import RecordCorrupt
from recipe.agent_contracts.transition.state import Entropy, Snapshot, SnapshotRef
from recipe.agent_contracts.transition.tree import Directory, Entry, File, children_first, decode_directory

_TEMPORARY = ".tmp-"
RecordT = TypeVar("RecordT")


class BlobStore:
    """Blobs under `<root>/<aa>/<sha256 hex>`. Safe with concurrent writers, in threads and in processes.

    Args:
        root: A folder, or an fsspec URL such as `s3://bucket/runs/blobs`.
    """

    def __init__(self, root: Path | str) -> None:
        self.filesystem, self.root = fsspec.core.url_to_fs(str(root))

    def path(self, blob_hash: str) -> str:
        """Where a blob lies, in the store's own file system."""
        digest = blob_hash.removeprefix("sha256:")
        return f"{self.root}/{digest[:2]}/{digest}"

    def put(self, data: bytes) -> str:
        """Store bytes and return their `sha256:<hex>`."""
        blob_hash = sha256_bytes(data)
        path = self.path(blob_hash)
        if not self.filesystem.exists(path):
            self._write(path, data)
        return blob_hash

    def get(self, blob_hash: str) -> bytes:
        """Read a blob.

        Raises:
            RecordCorrupt: when the blob is missing or its bytes do not match its name.
        """
        path = self.path(blob_hash)
        try:
            data: bytes = self.filesystem.cat_file(path)
        except FileNotFoundError as error:
            raise RecordCorrupt("transition.blob", blob_hash, found="no such blob", evidence=path) from error
        found = sha256_bytes(data)
        if found != blob_hash:
            raise RecordCorrupt("transition.blob", expected=blob_hash, found=found, evidence=path)
        return data

    def _write(self, path: str, data: bytes) -> None:
        if isinstance(self.filesystem, LocalFileSystem):
            write_atomically(Path(path), data)
            return
        folder = path.rpartition("/")[0]
        self.filesystem.makedirs(folder, exist_ok=True)
        temporary = f"{folder}/{_TEMPORARY}{uuid4().hex}"
        self.filesystem.pipe_file(temporary, data)
        self.filesystem.mv(temporary, path)


class Collected(msgspec.Struct, frozen=True):
    """What a collection removed."""

    num_blobs: int
    num_bytes: int
    """Of blobs and of the temporary files of writers that died."""


class SnapshotStore:
    """Snapshots in a blob store: one blob for the reference (its hash is the snapshot id), one for the entropy, and one
    for each different file and directory."""

    def __init__(self, blobs: BlobStore) -> None:
        self.blobs = blobs
        self._written: set[str] = set()

    def save(self, snapshot: Snapshot) -> str:
        """Store a snapshot, content before what names it, and return its id."""
        self.save_tree(snapshot.tree)
        self.blobs.put(canonical_json(snapshot.entropy))
        return self.blobs.put(canonical_json(snapshot.ref))

    def load(self, snapshot_id: str) -> Snapshot:
        """Read a snapshot back.

        Raises:
            RecordCorrupt: naming the blob that is missing, damaged, or not what its place asks for.
        """
        ref = self._decoded(snapshot_id, SnapshotRef)
        return Snapshot(ref, self.load_tree(ref.content_hash), self._decoded(ref.entropy_hash, Entropy))

    def save_tree(self, tree: Directory) -> str:
        """Store the files and directories of a tree that this object has not stored before, and return its hash."""
        for directory in children_first(tree):
            if directory.blob_hash not in self._written:
                for file in directory.files.values():
                    if file.blob_hash not in self._written:
                        self._written.add(self.blobs.put(file.data))
                self._written.add(self.blobs.put(directory.encoded()))
        return tree.blob_hash

    def load_tree(self, tree_hash: str) -> Directory:
        """Read a tree back. Equal directories become one object.

        Raises:
            RecordCorrupt: naming the blob that is missing, damaged, or no directory.
        """
        listings = self._listings(tree_hash)
        built: dict[str, Directory] = {}
        for directory_hash in [*listings][::-1]:
            mode, entries = listings[directory_hash]
            files = {
                name: File(self.blobs.get(entry.blob_hash), entry.mode, entry.is_link)
                for name, entry in entries
                if not entry.is_directory
            }
            below = {name: built[entry.blob_hash] for name, entry in entries if entry.is_directory}
            built[directory_hash] = Directory(files, below, mode)
        return built[tree_hash]

    def references(self, snapshot_id: str) -> set[str]:
        """Every blob that a snapshot needs, its own reference included."""
        ref = self._decoded(snapshot_id, SnapshotRef)
        listings = self._listings(ref.content_hash)
        files = {entry.blob_hash for _, entries in listings.values() for _, entry in entries}
        return {snapshot_id, ref.entropy_hash, *listings, *files}

    def collect_garbage(self, blob_hashes: Iterable[str], snapshot_ids: Iterable[str]) -> Collected:
        """Remove every blob that is neither named nor needed by a named snapshot. No writer may be at work.

        Args:
            blob_hashes: Plain blobs that records name: tasks, graders, final states.
            snapshot_ids: Snapshots that records, leases or branch points name.

        Raises:
            RecordCorrupt: when a named snapshot cannot be read; then nothing was removed.
        """
        kept = {self.blobs.path(blob_hash) for blob_hash in blob_hashes}
        for snapshot_id in snapshot_ids:
            kept |= {self.blobs.path(blob_hash) for blob_hash in self.references(snapshot_id)}
        found = self.blobs.filesystem.find(self.blobs.root, detail=True)
        removed = {path: entry["size"] for path, entry in found.items() if path not in kept}
        for path in removed:
            self.blobs.filesystem.rm_file(path)
        self._written.clear()
        return Collected(sum(_TEMPORARY not in path for path in removed), sum(removed.values()))

    def _listings(self, tree_hash: str) -> dict[str, tuple[int, list[tuple[str, Entry]]]]:
        """Every different directory of a tree, each before all that are below it."""
        listings: dict[str, tuple[int, list[tuple[str, Entry]]]] = {}
        order = [tree_hash]
        for directory_hash in order:  # grows while it is read
            # A directory that is met again moves behind the one that holds it.
            listing = listings.pop(directory_hash, None) or decode_directory(self.blobs.get(directory_hash))
            listings[directory_hash] = listing
            order += [entry.blob_hash for _, entry in listing[1] if entry.is_directory]
        return listings

    def _decoded(self, blob_hash: str, record: type[RecordT]) -> RecordT:
        try:
            return msgspec.json.decode(self.blobs.get(blob_hash), type=record)
        except msgspec.DecodeError as error:
            evidence = self.blobs.path(blob_hash)
            raise RecordCorrupt("transition.snapshot", record.__name__, str(error), evidence) from error


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees all of it or none of it, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=_TEMPORARY)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)
    # The name is on disk only once its folder is.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

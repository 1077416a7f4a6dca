"""Content-addressed blobs of a run: tasks, graders and sealed final states, by the SHA-256 of their bytes.

A blob is written once (temporary file, fsync, rename) and checked on every read, so that a record that names a hash
can be replayed from the run folder alone.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from recipe.agent_contracts.canonical import sha256_bytes
from recipe.agent_contracts.errors import RecordCorrupt


class BlobStore:
    """Blobs under `<root>/<aa>/<sha256 hex>`. Safe with concurrent writers: equal content has one name."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, blob_hash: str) -> Path:
        digest = blob_hash.removeprefix("sha256:")
        return self.root / digest[:2] / digest

    def put(self, data: bytes) -> str:
        """Store bytes and return their `sha256:<hex>`."""
        blob_hash = sha256_bytes(data)
        path = self.path(blob_hash)
        if not path.exists():
            write_atomically(path, data)
        return blob_hash

    def get(self, blob_hash: str) -> bytes:
        """Read a blob.

        Raises:
            RecordCorrupt: when the blob is missing or its bytes do not match its name.
        """
        path = self.path(blob_hash)
        if not path.exists():
            raise RecordCorrupt("transition.blob", expected=blob_hash, found="no such blob", evidence=str(path))
        data = path.read_bytes()
        found = sha256_bytes(data)
        if found != blob_hash:
            raise RecordCorrupt("transition.blob", expected=blob_hash, found=found, evidence=str(path))
        return data


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees all of it or none of it, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)

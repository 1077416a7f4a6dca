"""Canonical JSON (RFC 8785) and the hashes written over it.

Every identity in the project (manifest, task, state, experiment) is `sha256:<hex>` over these bytes, so two
processes that hold the same value always name it the same.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import rfc8785


def canonical_json(value: Any) -> bytes:
    """The RFC 8785 encoding of a JSON value or a msgspec struct.

    Raises:
        rfc8785.CanonicalizationError: for NaN, infinities and integers beyond 2**53.
    """
    return rfc8785.dumps(msgspec.to_builtins(value))


def sha256_bytes(data: bytes) -> str:
    """`sha256:<hex>` of raw bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def sha256_json(value: Any) -> str:
    """`sha256:<hex>` of a value's canonical JSON."""
    return sha256_bytes(canonical_json(value))


def sha256_file(path: Path) -> str:
    """`sha256:<hex>` of a file's bytes, read in blocks."""
    with path.open("rb") as stream:
        return "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()

"""Trajectories of a run: append-only JSONL parts, each line chained to the exact bytes of the line before it.

Writers append and never rewrite; every writer has a part of its own. A changed, removed or reordered line is found and
named. A process that is killed while it writes leaves a torn last line, which is reported and hides nothing: every
whole line before it is read. A part may be zstd-compressed, one frame an append.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

import msgspec
import zstandard

from recipe.agent_contracts.canonical import sha256_bytes
from recipe.agent_contracts.errors import RecordCorrupt
from recipe.agent_contracts.transition.trajectory.record import FIRST_LINE, SCHEMA_VERSION, TurnRecord

Compression = Literal["none", "zstd"]
_SUFFIXES = {"none": ".jsonl", "zstd": ".jsonl.zst"}
_CHUNK_BYTES = 1 << 20


class TornTail(msgspec.Struct, frozen=True):
    """A part that ends in the middle of a line: its writer was killed."""

    path: str
    line: int
    """Number of the torn line, from 1."""
    num_bytes: int
    """How much of it can be read."""


def log_torn(tail: TornTail) -> None:
    """Report a torn tail as a warning."""
    message = "%s:%d: torn last line (%d bytes), its writer was killed; everything before it is whole"
    logging.getLogger(__name__).warning(message, tail.path, tail.line, tail.num_bytes)


class TrajectoryWriter:
    """Appends records to one part file. One writer a process; the name must be unique in the run."""

    def __init__(self, folder: Path, part: str, compression: Compression = "none") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"part-{part}{_SUFFIXES[compression]}"
        self._stream = self.path.open("xb", buffering=0)
        self._previous = FIRST_LINE
        self._num_bytes = 0
        self._encoder = msgspec.json.Encoder()
        self._compressor = None if compression == "none" else zstandard.ZstdCompressor(write_checksum=True)

    def append(self, records: list[TurnRecord]) -> None:
        """Write an episode's records and hand them to the operating system before returning.

        Raises:
            OSError: when they could not all be written (a full disk). The part is then as it was before.
        """
        previous, lines = self._previous, bytearray()
        for record in records:
            line = self._encoder.encode(msgspec.structs.replace(record, previous_hash=previous))
            previous = sha256_bytes(line)
            lines += line + b"\n"
        data = bytes(lines) if self._compressor is None else self._compressor.compress(lines)
        try:
            self._write(data)
        except BaseException:
            # What follows a torn line would be lost with it.
            self._stream.truncate(self._num_bytes)
            self._stream.seek(self._num_bytes)
            raise
        self._previous = previous
        self._num_bytes += len(data)

    def close(self) -> None:
        os.fsync(self._stream.fileno())
        self._stream.close()

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self._stream.write(left) :]


class ChainLink(msgspec.Struct, frozen=True):
    """What the chain needs of a line, whatever else its schema holds."""

    schema_version: str
    previous_hash: str


OnTorn = Callable[[TornTail], None]
_Line = TypeVar("_Line", TurnRecord, ChainLink)


def parts(run: Path) -> list[Path]:
    """The part files of a run, in name order."""
    return sorted(path for suffix in _SUFFIXES.values() for path in (run / "trajectories").glob(f"part-*{suffix}"))


def read_part(path: Path, on_torn: OnTorn = log_torn) -> Iterator[TurnRecord]:
    """Read one part file.

    Args:
        path: The part, plain or compressed.
        on_torn: Told of a torn last line, after every whole line was given.

    Raises:
        RecordCorrupt: naming the line where the chain or the schema breaks.
    """
    for record, _ in _checked(path, TurnRecord, on_torn):
        yield record


def checked_lines(path: Path, on_torn: OnTorn = log_torn) -> Iterator[bytes]:
    """The whole lines of a part, checked as `read_part` does but not decoded."""
    for _, line in _checked(path, ChainLink, on_torn):
        yield line


def _checked(path: Path, kind: type[_Line], on_torn: OnTorn) -> Iterator[tuple[_Line, bytes]]:
    decoder = msgspec.json.Decoder(kind)
    previous = FIRST_LINE
    for number, line in enumerate(_lines(path), start=1):
        if not line.endswith(b"\n"):
            on_torn(TornTail(str(path), number, len(line)))
            return
        evidence, line = f"{path}:{number}", line[:-1]
        try:
            record = decoder.decode(line)
        except msgspec.DecodeError as error:
            refuse_other_schema(line, evidence)
            raise RecordCorrupt("transition.records", SCHEMA_VERSION, str(error), evidence) from error
        if record.schema_version != SCHEMA_VERSION:
            refuse_other_schema(line, evidence)
        if record.previous_hash != previous:
            raise RecordCorrupt("transition.records", previous, record.previous_hash, evidence)
        previous = sha256_bytes(line)
        yield record, line


def refuse_other_schema(line: bytes, evidence: str) -> None:
    """Raise `RecordCorrupt` when the line is of another schema than this version's."""
    with contextlib.suppress(msgspec.DecodeError):
        found = msgspec.json.decode(line, type=ChainLink).schema_version
        if found != SCHEMA_VERSION:
            remedy = "read it with the version of this package that wrote it (CHANGELOG.md says what changed)"
            raise RecordCorrupt("transition.schema", SCHEMA_VERSION, found, evidence, remedy)


def read_run(run: Path, on_torn: OnTorn = log_torn) -> Iterator[TurnRecord]:
    """All turn records of a run folder, part by part in name order."""
    for path in parts(run):
        yield from read_part(path, on_torn)


def episodes(run: Path, on_torn: OnTorn = log_torn) -> Iterator[list[TurnRecord]]:
    """The run's episodes, each as its turns in order (a writer appends an episode's turns together).

    An episode that its writer did not finish has no `termination_reason` on its last turn. It was never trained on:
    a row reaches the trainer after its records are written.
    """
    turns: list[TurnRecord] = []
    for record in read_run(run, on_torn):
        if turns and record.episode.trajectory_id != turns[0].episode.trajectory_id:
            yield turns
            turns = []
        turns.append(record)
    if turns:
        yield turns


def _lines(path: Path) -> Iterator[bytes]:
    """Lines with their line breaks; a last one without is torn (empty: a compressed frame of which nothing is left)."""
    with path.open("rb") as stream:
        if path.suffix != ".zst":
            yield from stream
            return
        try:
            for frame, whole in _frames(stream):
                yield from frame.splitlines(keepends=True)
                if not whole and (not frame or frame.endswith(b"\n")):
                    yield b""
        except zstandard.ZstdError as error:
            raise RecordCorrupt("transition.records", "zstd frames", str(error), str(path)) from error


def _frames(stream: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Each frame's content, and whether the frame is whole."""
    chunk = stream.read(_CHUNK_BYTES)
    while chunk:
        frame, content = zstandard.ZstdDecompressor().decompressobj(), bytearray()
        while chunk and not frame.eof:
            content += frame.decompress(chunk)
            chunk = frame.unused_data or stream.read(_CHUNK_BYTES)
        yield bytes(content), frame.eof

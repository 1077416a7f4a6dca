"""Finds one group's episodes in a run without reading the rest of it: a search of the raw bytes, then a check.

`read_run` proves a whole chain; at 100,000 records that takes seconds. A line that is found here is held against the
`previous_hash` of the line after it, and the line before it against its own, so what is shown is what the chain holds.
"""

from __future__ import annotations

import mmap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from recipe.agent_contracts.canonical import sha256_bytes
from recipe.agent_contracts.errors import RecordCorrupt
from recipe.agent_contracts.transition.trajectory.record import FIRST_LINE, TurnRecord
from recipe.agent_contracts.transition.trajectory.store import (
    ChainLink,
    checked_lines,
    parts,
    refuse_other_schema,
)


def find_group(run: Path, group_id: str) -> dict[str, list[TurnRecord]]:
    """The episodes of a group, as their turns in order, by trajectory id. Empty: the run holds none.

    Raises:
        RecordCorrupt: when a line that was found, or the one before it, is not what the chain says.
    """
    needle = b'"group_id":' + msgspec.json.encode(group_id)
    found: dict[str, list[TurnRecord]] = defaultdict(list)
    for part in parts(run):
        for record in _matching(part, needle):
            found[record.episode.trajectory_id].append(record)
    return dict(sorted(found.items()))


def _matching(part: Path, needle: bytes) -> Iterator[TurnRecord]:
    decoder = msgspec.json.Decoder(TurnRecord)
    lines = _searched(part, needle) if part.suffix == ".jsonl" else checked_lines(part)
    for line in lines:
        if needle in line:
            yield decoder.decode(line)


def _searched(part: Path, needle: bytes) -> Iterator[bytes]:
    """The whole lines of a plain part that hold the needle, each checked against its neighbours."""
    if part.stat().st_size == 0:
        return
    with part.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(needle)
        while at >= 0:
            start, end = content.rfind(b"\n", 0, at) + 1, content.find(b"\n", at)
            if end < 0:  # a torn last line
                return
            _check_neighbours(content, start, end, str(part))
            yield content[start:end]
            at = content.find(needle, end)


def _check_neighbours(content: mmap.mmap, start: int, end: int, part: str) -> None:
    line, evidence = content[start:end], f"{part}, byte {start}"
    previous = FIRST_LINE if start == 0 else sha256_bytes(content[content.rfind(b"\n", 0, start - 1) + 1 : start - 1])
    _require_link(line, previous, evidence)
    after = content.find(b"\n", end + 1)
    if after >= 0:
        _require_link(content[end + 1 : after], sha256_bytes(line), f"{part}, byte {end + 1}")


def _require_link(line: bytes, previous: str, evidence: str) -> None:
    refuse_other_schema(line, evidence)
    try:
        link = msgspec.json.decode(line, type=ChainLink)
    except msgspec.DecodeError as error:
        raise RecordCorrupt("transition.records", "a record", str(error), evidence) from error
    if link.previous_hash != previous:
        raise RecordCorrupt("transition.records", previous, link.previous_hash, evidence)

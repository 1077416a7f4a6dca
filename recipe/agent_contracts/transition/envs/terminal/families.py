"""Which families of tasks exist and which of them training never sees.

A family is (operation, source format, target format). Held-out families are unseen pairs of seen operations and
seen formats: what transfers is the operation, what is new is where it is applied.
"""

from __future__ import annotations

from typing import NamedTuple

from recipe.agent_contracts.transition.envs.terminal.task import Split


class Family(NamedTuple):
    """One family. `str(family)` is its name in tasks, metrics and reports."""

    operation: str
    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.operation}:{self.source}->{self.target}"


ENTRY_FORMATS = ("csv", "ini", "json")
"""Formats of a table of key and value. `txt` is command output: the same table as `key: value` lines."""

FAMILIES: tuple[Family, ...] = (
    *(Family("set", fmt, fmt) for fmt in ENTRY_FORMATS),
    *(Family("copy", source, target) for source in ENTRY_FORMATS for target in ENTRY_FORMATS),
    *(Family("repair", fmt, fmt) for fmt in (*ENTRY_FORMATS, "log", "txt")),
    *(Family("drop", fmt, fmt) for fmt in (*ENTRY_FORMATS, "log")),
    *(Family("extract", fmt, "txt") for fmt in (*ENTRY_FORMATS, "log")),
    *(Family("schema", "schema", fmt) for fmt in ENTRY_FORMATS),
    *(Family("cli", "txt", fmt) for fmt in ENTRY_FORMATS),
)

HELDOUT_FAMILIES: frozenset[Family] = frozenset(
    {
        Family("copy", "csv", "json"),
        Family("copy", "ini", "csv"),
        Family("copy", "json", "ini"),
        Family("set", "csv", "csv"),
        Family("extract", "csv", "txt"),
    }
)

OPERATION_WEIGHTS: dict[str, float] = {
    "set": 1.2,
    "copy": 1.2,
    "repair": 0.9,
    "drop": 0.6,
    "extract": 1.1,
    "schema": 0.4,
    "cli": 0.6,
}
"""Relative frequency of the operations. Formats are uniform within an operation."""


def families_of(split: Split) -> tuple[Family, ...]:
    """The families that a split draws from, in declaration order."""
    heldout = split != "train"
    return tuple(family for family in FAMILIES if (family in HELDOUT_FAMILIES) == heldout)

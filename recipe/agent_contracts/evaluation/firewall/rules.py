"""What every audit must keep, and the shape of what a check found.

The thresholds are worked from single edits, see each field; no option moves them. A change of any value is another
`version`, and every audit names the hash of the rules that it was made with.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The deduplication rules."""

    version: str = "v1"
    words_per_shingle: int = 3
    max_jaccard: float = 0.5
    """Of the shingle sets. One word changed inside a text of n words leaves (n - 5) / (n + 1): this is reached from 11
    words on. Shorter texts are for the cosine and the wording."""
    max_cosine: float = 0.9
    """Of the TF-IDF vectors. One word of ten changed, all of one weight, leaves 0.9."""
    num_bands: int = 84
    rows_per_band: int = 3
    """84 bands of 3 find a pair at the bound with probability 0.99999 and one of Jaccard 0.1 with 0.08."""
    seed: int = 20261207
    """Of the hash functions."""


RULES = Rules()
SHOWN = 5
"""How many counterexamples and pairs an audit keeps of each check."""


class Status(StrEnum):
    """What came of a check. `not_applicable` always has its reason."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not_applicable"


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A held-out task, the training task that is most like it, and how alike they are."""

    train: str
    """Task id."""
    heldout: str
    """Task id."""
    similarity: float
    estimated: float | None
    """MinHash's estimate of the same. Null: the measure needs none."""
    train_text: str
    heldout_text: str


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check's result."""

    name: str
    status: Status
    figure: str
    """What was found, in words with its unit; for `not_applicable` the reason."""
    bound: str
    evidence: list[str] = []
    """The first few that break the bound, each named."""
    figures: dict[str, float] = {}
    pairs: list[Pair] = []
    """The most alike, worst first, whether or not they break the bound."""


def not_applicable(name: str, reason: str, bound: str) -> Check:
    """A check that cannot be made of these files."""
    return Check(name=name, status=Status.NOT_APPLICABLE, figure=reason, bound=bound)


def none_allowed(name: str, figure: str, bound: str, evidence: list[str]) -> Check:
    """A check that passes when `evidence` is empty. The figure counts all of it, five of them are kept."""
    status = Status.FAILED if evidence else Status.PASSED
    return Check(name=name, status=status, figure=figure, bound=bound, evidence=evidence[:SHOWN])

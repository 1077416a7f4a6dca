"""MinHash (Broder 1997): near duplicates without comparing every pair.

The share of hash functions whose minimum over two sets agrees estimates their Jaccard similarity J without bias, with
standard error sqrt(J (1 - J) / k). Signatures are cut into bands (Leskovec, Rajaraman and Ullman, Mining of Massive
Datasets, section 3.4); texts that agree in a whole band are candidates, and candidates are compared exactly.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import xxhash
from numpy.typing import NDArray

from recipe.agent_contracts.evaluation.firewall.rules import Rules

Shingles = frozenset[int]
Signatures = NDArray[np.uint64]


def words(text: str) -> list[str]:
    """The words of a text in lower case; punctuation separates."""
    return re.findall(r"\w+", text.casefold())


def shingles(text: str, words_per_shingle: int) -> Shingles:
    """64-bit hashes of the runs of neighbouring words. A shorter text is one run."""
    found = words(text)
    runs = range(max(1, len(found) - words_per_shingle + 1))
    joined = (" ".join(found[start : start + words_per_shingle]) for start in runs)
    return frozenset(xxhash.xxh3_64_intdigest(run.encode()) for run in joined)


def jaccard(a: Shingles, b: Shingles) -> float:
    """Size of the intersection over size of the union."""
    return len(a & b) / len(a | b)


def signatures(sets: Sequence[Shingles], rules: Rules) -> Signatures:
    """The minima of every set under every hash function: one row a set, `num_bands * rows_per_band` columns."""
    num_hashes = rules.num_bands * rules.rows_per_band
    salts = np.random.default_rng(rules.seed).integers(0, 2**64, size=num_hashes, dtype=np.uint64)
    signed = np.empty((len(sets), num_hashes), dtype=np.uint64)
    for index, members in enumerate(sets):
        values = np.fromiter(members, dtype=np.uint64, count=len(members))
        signed[index] = _mixed(values[:, None] ^ salts).min(axis=0)
    return signed


def candidates(train: Signatures, heldout: Signatures, rules: Rules) -> set[tuple[int, int]]:
    """Pairs (train, heldout) of row numbers that agree in at least one band."""
    found: set[tuple[int, int]] = set()
    for start in range(0, train.shape[1], rules.rows_per_band):
        band = slice(start, start + rules.rows_per_band)
        bucket: dict[bytes, list[int]] = defaultdict(list)
        for index, row in enumerate(train[:, band]):
            bucket[row.tobytes()].append(index)
        found.update(
            (mate, index) for index, row in enumerate(heldout[:, band]) for mate in bucket.get(row.tobytes(), ())
        )
    return found


def miss_probability(similarity: float, rules: Rules) -> float:
    """How likely a pair of that Jaccard similarity is no candidate: (1 - s^r)^b."""
    return float((1.0 - similarity**rules.rows_per_band) ** rules.num_bands)


def _mixed(values: Signatures) -> Signatures:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014), a bijection of 64-bit words; arithmetic wraps."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))

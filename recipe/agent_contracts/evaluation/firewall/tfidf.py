"""Cosine of TF-IDF vectors (Salton and Buckley 1988): texts that share their rare words in whatever order.

Weight of a word: its count times ``ln((1 + n) / (1 + d)) + 1``, with n texts of which d hold it, both files together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from recipe.agent_contracts.evaluation.firewall.minhash import words

_BLOCK = 256
"""Held-out texts compared at once: bounds the memory to that many times the number of training texts."""


def cosines(train: Sequence[str], heldout: Sequence[str]) -> Iterator[NDArray[np.float64]]:
    """For each held-out text its cosine with every training text, in order."""
    vectors = _vectors([*train, *heldout])
    trained, tested = vectors[: len(train)].T.tocsc(), vectors[len(train) :]
    for start in range(0, len(heldout), _BLOCK):
        yield from (tested[start : start + _BLOCK] @ trained).toarray()


def _vectors(texts: Sequence[str]) -> sparse.csr_array:
    """Rows of length 1 (of length 0 for a text without words)."""
    vocabulary: dict[str, int] = {}
    entries = [(row, vocabulary.setdefault(w, len(vocabulary))) for row, text in enumerate(texts) for w in words(text)]
    rows, columns = np.array(entries, dtype=np.int64).reshape(-1, 2).T
    counts = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(texts), len(vocabulary)))
    counts.sum_duplicates()
    held_by = np.bincount(counts.indices, minlength=len(vocabulary))
    weighted = counts.multiply(np.log((1 + len(texts)) / (1 + held_by)) + 1).tocsr()
    lengths = np.sqrt(weighted.multiply(weighted).sum(axis=1))
    return weighted.multiply((1 / np.where(lengths == 0, 1, lengths))[:, None]).tocsr()

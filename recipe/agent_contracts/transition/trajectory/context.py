"""Contexts as links: a turn stores what its context gained and the hash of what was there before.

A context only ever grows by the ids that were sampled and by the ids of the next observation. A context that does not
start with the ids that are kept was rebuilt from text, and is refused with the first index that differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from recipe.agent_contracts.canonical import sha256_bytes
from recipe.agent_contracts.errors import ContractViolation, RecordCorrupt
from recipe.agent_contracts.transition.trajectory.record import TurnRecord


class ContextLink(NamedTuple):
    """How one turn's context hangs on the turn before it."""

    parent_hash: str | None
    new_token_ids: list[int]


def prefix_hash(token_ids: Sequence[int]) -> str:
    """`sha256:` over the ids as little-endian 32-bit words."""
    return sha256_bytes(np.asarray(token_ids, dtype="<u4").tobytes())


def context_links(turns: Iterable[tuple[list[int], list[int]]], evidence: str) -> list[ContextLink]:
    """The links of an episode.

    Args:
        turns: Context ids and action ids of each turn, in order.
        evidence: Names the episode in an error.

    Raises:
        ContractViolation: ``transition.context`` when a context does not start with the ids before it.
    """
    links: list[ContextLink] = []
    kept: list[int] = []
    for context, action in turns:
        if context[: len(kept)] != kept:
            index = next(i for i, token in enumerate(kept) if context[i : i + 1] != [token])
            raise ContractViolation(
                "transition.context",
                expected=f"token {kept[index]} at index {index} of the context, as it was sampled or read",
                found=context[index : index + 1],
                evidence=f"{evidence}, turn {len(links)}",
                remedy="append the new ids to the ids that are kept; never render a turn again",
            )
        links.append(ContextLink(prefix_hash(kept) if links else None, context[len(kept) :]))
        kept = context + action
    return links


def contexts(turns: Sequence[TurnRecord]) -> list[list[int]]:
    """What each turn of an episode was sampled from.

    Args:
        turns: The episode's records, from its first turn on.

    Raises:
        RecordCorrupt: when a parent hash is not that of the ids before it.
    """
    found: list[list[int]] = []
    kept: list[int] = []
    for index, record in enumerate(turns):
        parent = prefix_hash(kept) if index else None
        if record.context_parent_hash != parent:
            evidence = f"{record.episode.trajectory_id}, turn {record.turn}"
            raise RecordCorrupt("transition.context", parent, record.context_parent_hash, evidence)
        found.append(kept + record.context_new_token_ids)
        kept = found[-1] + record.action_token_ids
    return found

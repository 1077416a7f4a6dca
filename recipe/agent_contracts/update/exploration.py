"""ExplorationMonitor: where the policy is still undecided, and where the update takes that away.

Entropy and gradient mass by the sign of the advantage, quantile of entropy, turn, kind of action and success; how many
different tool sequences siblings play; and whether high-entropy tokens are the ones at which siblings branch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np

HIGH_ENTROPY_QUANTILE = 0.8


class Played(msgspec.Struct, frozen=True):
    """One episode of a batch. All sequences over its action tokens have the same length."""

    group_id: str
    succeeded: bool
    advantage: float
    entropies: list[float]
    """Of the policy's distribution at each action token, in nats."""
    masses: list[float]
    """Gradient mass of each."""
    turns: list[int]
    """The turn of each."""
    kinds: list[str]
    """Kind of action (tool name, finish, invalid) of each turn."""
    token_ids: list[int]


def strata(episodes: Sequence[Played]) -> dict[str, float]:
    """Mean entropy (nats) and share of gradient mass of each stratum: ``entropy/<kind>/<value>`` and ``mass/...``."""
    entropy = np.concatenate([np.asarray(episode.entropies) for episode in episodes])
    mass = np.concatenate([np.asarray(episode.masses) for episode in episodes])
    edges = np.quantile(entropy, [0.25, 0.5, 0.75])
    labels = {
        "advantage": _each(episodes, lambda episode: [_sign(episode.advantage)] * len(episode.entropies)),
        "success": _each(episodes, lambda episode: [str(episode.succeeded)] * len(episode.entropies)),
        "turn": _each(episodes, lambda episode: [str(turn) for turn in episode.turns]),
        "action": _each(episodes, lambda episode: [episode.kinds[turn] for turn in episode.turns]),
        "entropy_quartile": [str(1 + int(quartile)) for quartile in np.searchsorted(edges, entropy)],
    }
    report: dict[str, float] = {}
    for kind, values in labels.items():
        names = np.asarray(values)
        for name in np.unique(names):
            chosen = names == name
            report[f"entropy/{kind}/{name}"] = float(entropy[chosen].mean())
            report[f"mass/{kind}/{name}"] = float(mass[chosen].sum() / mass.sum()) if mass.sum() else 0.0
    return report


def sequence_diversity(episodes: Sequence[Played]) -> float:
    """Different sequences of action kinds among siblings, as a share of their number, averaged over groups."""
    groups: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for episode in episodes:
        groups[episode.group_id].append(tuple(episode.kinds))
    return float(np.mean([len(set(sequences)) / len(sequences) for sequences in groups.values()]))


def branch_overlap(episodes: Sequence[Played]) -> float:
    """Of the tokens at which siblings first differ, the share whose entropy is in the batch's top fifth.

    0.2 is what chance gives. NaN: no two siblings differ.
    """
    threshold = np.quantile(np.concatenate([episode.entropies for episode in episodes]), HIGH_ENTROPY_QUANTILE)
    groups: dict[str, list[Played]] = defaultdict(list)
    for episode in episodes:
        groups[episode.group_id].append(episode)
    hits: list[bool] = []
    for siblings in groups.values():
        points = {
            (index, at)
            for index, one in enumerate(siblings)
            for other in siblings
            if (at := _first_difference(one.token_ids, other.token_ids)) is not None
        }
        hits += [siblings[index].entropies[at] >= threshold for index, at in points]
    return float(np.mean(hits)) if hits else float("nan")


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)


def _each(episodes: Sequence[Played], label: object) -> list[str]:
    assert callable(label)
    return [value for episode in episodes for value in label(episode)]


def _sign(advantage: float) -> str:
    return "positive" if advantage > 0 else "negative" if advantage < 0 else "zero"

"""The null update: verified returns permuted within each group before credit.

What the policy did is kept, and so is how often its group succeeded; which episode did is lost. Over all permutations
every episode's advantage has mean 0, so the update has no direction in expectation, at the same advantage magnitudes
and the same number of tokens. What a run gains with it, it did not learn from the rewards.

A group's permutation is a function of (seed, step, group), so that it can be computed again from the update's record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np

from recipe.agent_contracts.canonical import sha256_json
from recipe.agent_contracts.update.credit import Episode


def permutation(size: int, seed: int, step: int, group_id: str) -> list[int]:
    """One of the `size`! permutations, each with the same chance: an episode may keep its own return."""
    digest = sha256_json([seed, step, group_id]).removeprefix("sha256:")
    return [int(index) for index in np.random.default_rng(int(digest, 16)).permutation(size)]


def shuffled(episodes: Sequence[Episode], seed: int, step: int) -> tuple[list[Episode], list[str]]:
    """Permute the returns of each group.

    Args:
        episodes: Whole groups, in any order; the order does not change who gets whose return.
        seed: Of the control, `contract.evaluation.shuffle_seed`.
        step: Optimizer step, so that a task that comes again is shuffled anew.

    Returns:
        The episodes in the given order with the returns that credit is to use, and for each the trajectory whose
        verified return that is.
    """
    groups: dict[str, list[Episode]] = defaultdict(list)
    for episode in sorted(episodes, key=lambda episode: episode.trajectory_id):
        groups[episode.group_id].append(episode)
    source: dict[str, Episode] = {}
    for group_id, members in groups.items():
        order = permutation(len(members), seed, step, group_id)
        source |= {member.trajectory_id: members[index] for member, index in zip(members, order, strict=True)}
    given = [source[episode.trajectory_id] for episode in episodes]
    credited = [
        msgspec.structs.replace(episode, episode_return=giver.episode_return)
        for episode, giver in zip(episodes, given, strict=True)
    ]
    return credited, [giver.trajectory_id for giver in given]

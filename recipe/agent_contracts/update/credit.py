"""Credit: which part of the return goes to which token. One advantage an action token, computed in float64.

Every estimator compares siblings: episodes of one task, one initial state and one policy. A group of one has nothing to
be compared with and is refused, as is a return that is not finite; nothing falls back to the raw reward.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from recipe.agent_contracts.errors import ContractViolation

Vector = NDArray[np.float64]
Scale = Literal["none", "std"]
STD_EPSILON = 1e-6
"""Added to a group's standard deviation, as verl's GRPO does."""
GIGPO_DISCOUNT = 0.95
"""Per turn, for the return of a step (Feng et al. 2025, their gamma)."""


class TurnSpan(msgspec.Struct, frozen=True):
    """One turn of an episode as credit sees it."""

    anchor: str
    """State hash before the turn: turns of siblings with one anchor chose between actions in the same state."""
    num_tokens: int


class Episode(msgspec.Struct, frozen=True):
    """One episode of a batch, however many rows it has in the trainer."""

    trajectory_id: str
    group_id: str
    episode_return: float
    turns: list[TurnSpan]
    """In order. Their tokens are the episode's action tokens."""

    @property
    def num_tokens(self) -> int:
        return sum(turn.num_tokens for turn in self.turns)


def leave_one_out(returns: Vector) -> Vector:
    """``R_i - mean of the others`` (RLOO: Kool et al. 2019, Ahmadian et al. 2024), shape (G,), G at least 2.

    Unbiased: an episode's baseline does not depend on its own action. Over continuations of one branch point it is the
    branch's advantage.
    """
    advantages: Vector = (returns - returns.mean()) * (len(returns) / (len(returns) - 1))
    return advantages


def centered(returns: Vector) -> Vector:
    """``R_i - mean of the group`` (GRPO without its scale; Dr. GRPO), shape (G,).

    (G-1)/G times RLOO: the episode is part of its own baseline.
    """
    advantages: Vector = returns - returns.mean()
    return advantages


def scaled(advantages: Vector, returns: Vector, scale: Scale) -> Vector:
    """Divided by the group's standard deviation (ddof 1, Shao et al. 2024) or left as they are."""
    return advantages if scale == "none" else advantages / (returns.std(ddof=1) + STD_EPSILON)


def credit(estimator: str, scale: Scale, episodes: Sequence[Episode]) -> list[Vector]:
    """The advantage of each action token.

    Args:
        estimator: A key of `ESTIMATORS`.
        scale: Whether advantages are divided by the standard deviation of their group.
        episodes: Whole groups, in any order.

    Returns:
        One vector an episode, in the given order, shape (number of action tokens,).

    Raises:
        ContractViolation: ``update.credit`` for a return that is not finite, a group of one, or an episode without
            action tokens.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for index, episode in enumerate(episodes):
        if not np.isfinite(episode.episode_return):
            raise ContractViolation("update.credit", "a finite return", episode.episode_return, episode.trajectory_id)
        if episode.num_tokens == 0:
            raise ContractViolation("update.credit", "action tokens to be credited", "none", episode.trajectory_id)
        groups[episode.group_id].append(index)
    found: list[Vector] = [np.empty(0)] * len(episodes)
    for group_id, members in groups.items():
        if len(members) < 2:
            raise ContractViolation("update.credit", "at least two siblings", len(members), f"group {group_id}")
        advantages = ESTIMATORS[estimator]([episodes[index] for index in members], scale)
        for index, advantage in zip(members, advantages, strict=True):
            found[index] = advantage
    return found


def _of_episodes(baseline: Callable[[Vector], Vector]) -> Callable[[Sequence[Episode], Scale], list[Vector]]:
    """An estimator that gives all tokens of an episode the same advantage."""

    def estimate(group: Sequence[Episode], scale: Scale) -> list[Vector]:
        returns = np.array([episode.episode_return for episode in group], dtype=np.float64)
        advantages = scaled(baseline(returns), returns, scale)
        return [np.full(episode.num_tokens, value) for episode, value in zip(group, advantages, strict=True)]

    return estimate


def _gigpo(group: Sequence[Episode], scale: Scale) -> list[Vector]:
    """GiGPO (Feng et al. 2025, eq. 7): the episode's advantage plus the step's among turns with the same anchor.

    A step's return is the episode's, discounted by the turns that follow it. An anchor that only one turn of the group
    has gives no step advantage.
    """
    of_episode = _of_episodes(centered)(group, scale)
    returns = [
        [
            episode.episode_return * GIGPO_DISCOUNT ** (len(episode.turns) - 1 - turn)
            for turn in range(len(episode.turns))
        ]
        for episode in group
    ]
    anchors: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for index, episode in enumerate(group):
        for turn, span in enumerate(episode.turns):
            anchors[span.anchor].append((index, turn))
    of_step = [np.zeros(len(episode.turns)) for episode in group]
    for places in anchors.values():
        if len(places) < 2:
            continue
        values = np.array([returns[index][turn] for index, turn in places])
        for (index, turn), value in zip(places, scaled(centered(values), values, scale), strict=True):
            of_step[index][turn] = value
    sizes = [[turn.num_tokens for turn in episode.turns] for episode in group]
    return [whole + np.repeat(step, size) for whole, step, size in zip(of_episode, of_step, sizes, strict=True)]


ESTIMATORS: dict[str, Callable[[Sequence[Episode], Scale], list[Vector]]] = {
    "rloo": _of_episodes(leave_one_out),
    "grpo": _of_episodes(centered),
    "dr_grpo": _of_episodes(centered),
    "gigpo": _gigpo,
}
PER_TURN = frozenset({"gigpo"})
"""Estimators whose advantage differs between the turns of one episode."""

"""Admission: may this group be trained on? One typed reason if not.

A group is judged as a whole, from what its rows carry, against its lease. Nothing is padded, nothing later fills a
missing place. Which groups were lost, by family, length and reward, is counted from the ledger.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from recipe.agent_contracts.transition.termination import Termination
from recipe.agent_contracts.update.gradient_mass import length_band
from recipe.agent_contracts.update.leases import GroupLease
from recipe.agent_contracts.update.ledger import GroupRow, State


class Reason(StrEnum):
    """Why a group is not trained on. The value is the metric key and the ledger's reason."""

    INCOMPLETE = "incomplete"
    CENSORED = "censored"
    UNVERIFIED = "unverified"
    SIBLING_FAILED = "sibling_failed"
    TAMPERED = "tampered"
    DEADLINE = "deadline"
    STALE = "stale"
    TOO_OLD = "too_old"
    MIXED_VERSION = "mixed_version"
    OTHER_LEASE = "other_lease"
    MISALIGNED = "misaligned"
    ZERO_VARIANCE = "zero_variance"


class Sibling(msgspec.Struct, frozen=True):
    """One row of a finished group, as it was handed over."""

    lease_hash: str
    first_version: int | None
    last_version: int | None
    """The engine's labels over the episode. None: it gave none."""
    termination: str
    verified: bool
    aligned: bool
    """One finite log probability for each sampled token, and at least one token."""
    episode_return: float
    finished_at: float


class Bounds(msgspec.Struct, frozen=True):
    """What the experiment preregistered."""

    max_version_lag: int
    max_age_seconds: float | None
    """From an episode's end to its admission. None: any."""
    resample_zero_variance: bool


def judge(
    lease: GroupLease, siblings: Sequence[Sibling], input_version: int, now: float, bounds: Bounds
) -> Reason | None:
    """The reason why a finished group may not be trained on. None: it is admissible.

    Args:
        lease: What was promised.
        siblings: Every row of the group.
        input_version: Version of the weights that would be updated with it.
        now: Unix seconds.
        bounds: The experiment's.
    """
    if len(siblings) != lease.size:
        return Reason.INCOMPLETE
    if any(sibling.lease_hash != lease.lease_hash for sibling in siblings):
        return Reason.OTHER_LEASE
    if not all(Termination(sibling.termination).is_outcome for sibling in siblings):
        return Reason.CENSORED
    if not all(sibling.verified for sibling in siblings):
        return Reason.UNVERIFIED
    if not all(sibling.aligned for sibling in siblings):
        return Reason.MISALIGNED
    versions = {version for sibling in siblings for version in (sibling.first_version, sibling.last_version)}
    if versions != {lease.policy_version}:
        return Reason.MIXED_VERSION
    if version_lag(input_version, lease.policy_version) > bounds.max_version_lag:
        return Reason.STALE
    if bounds.max_age_seconds is not None and now - min(s.finished_at for s in siblings) > bounds.max_age_seconds:
        return Reason.TOO_OLD
    if bounds.resample_zero_variance and len({sibling.episode_return for sibling in siblings}) == 1:
        return Reason.ZERO_VARIANCE
    return None


def version_lag(input_version: int, behavior_version: int) -> int:
    """``u - v``: how many versions the weights moved between sampling and update. Never negative.

    Raises:
        ValueError: when the tokens are of weights that do not exist yet.
    """
    if behavior_version > input_version:
        raise ValueError(f"tokens of version {behavior_version} cannot update version {input_version}")
    return input_version - behavior_version


def verl_threshold(max_version_lag: int) -> int:
    """verl's `max_off_policy_threshold` for our bound: it counts the versions of a span, from 1, not a lag."""
    return max_version_lag + 1


def zero_variance_probability(success: float, size: int) -> float:
    """``p^G + (1-p)^G``: how often a group of independent siblings agrees in its reward and teaches nothing."""
    return float(success**size + (1.0 - success) ** size)


def lost_by_stratum(groups: Iterable[GroupRow]) -> dict[tuple[str, str], tuple[int, int]]:
    """(lost, all) groups by ("family" | "length" | "return", value), of those that came to an end or are in use.

    Length is the mean of sampled tokens a sibling, by powers of two. Rolled back groups are a crash's loss.
    """
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for group in groups:
        if group.state in (State.LEASED, State.ROLLED_BACK):
            continue
        lost = int(group.state in (State.DISCARDED, State.QUARANTINED))
        strata = {"family": group.family}
        if group.num_tokens is not None:
            strata["length"] = length_band(group.num_tokens // group.lease.size)
        if group.mean_return is not None:
            strata["return"] = "0" if group.mean_return == 0 else "1" if group.mean_return == 1 else "between"
        for stratum in strata.items():
            counts[stratum][0] += lost
            counts[stratum][1] += 1
    return {stratum: (lost, total) for stratum, (lost, total) in counts.items()}

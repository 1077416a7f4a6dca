"""Admission: one reason for each way in which a group is not what it was leased for."""

import itertools

import msgspec
import pytest

from recipe.agent_contracts.update.admission import (
    Bounds,
    Reason,
    Sibling,
    judge,
    lost_by_stratum,
    verl_threshold,
    version_lag,
    zero_variance_probability,
)
from recipe.agent_contracts.update.ledger import Ledger, Measured, State
from tests.unit.update.leasing import lease

LEASE = lease()
GOOD = Sibling(LEASE.lease_hash, 0, 0, "agent_finish", True, True, 1.0, 50.0)
BOUNDS = Bounds(max_version_lag=0, max_age_seconds=None, resample_zero_variance=False)


def judged(*siblings, input_version=0, now=60.0, bounds=BOUNDS, of=LEASE):
    return judge(of, siblings, input_version, now, bounds)


def other(**changes):
    return msgspec.structs.replace(GOOD, **changes)


def test_a_whole_group_of_one_policy_is_admitted():
    assert judged(GOOD, other(episode_return=0.0, termination="task_budget_exhausted_terminal")) is None


@pytest.mark.parametrize(
    ("sibling", "reason"),
    [
        ({"lease_hash": "sha256:other"}, Reason.OTHER_LEASE),
        ({"termination": "tool_timeout"}, Reason.CENSORED),
        ({"termination": "max_token_truncation"}, Reason.CENSORED),
        ({"verified": False}, Reason.UNVERIFIED),
        ({"aligned": False}, Reason.MISALIGNED),
        ({"first_version": 1}, Reason.MIXED_VERSION),
        ({"last_version": 1}, Reason.MIXED_VERSION),
        ({"first_version": None}, Reason.MIXED_VERSION),
    ],
)
def test_one_bad_sibling_costs_its_group(sibling, reason):
    assert judged(GOOD, other(**sibling)) is reason


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_group_that_is_not_whole_is_never_padded_or_cut(count):
    assert judged(*[GOOD] * count) is Reason.INCOMPLETE


def test_a_replica_that_was_left_on_old_weights_is_seen_by_its_own_label():
    """Stock verl reads the step of dispatch: a group of weights 7 versions old passes its threshold of 2."""
    old = lease(policy_version=9)
    siblings = [other(lease_hash=old.lease_hash, first_version=2, last_version=2)] * 2
    assert judge(old, siblings, 9, 60.0, BOUNDS) is Reason.MIXED_VERSION


@pytest.mark.parametrize(
    ("lag", "bound", "reason"), [(0, 0, None), (1, 0, Reason.STALE), (2, 2, None), (3, 2, Reason.STALE)]
)
def test_the_lag_is_bounded_in_versions(lag, bound, reason):
    bounds = msgspec.structs.replace(BOUNDS, max_version_lag=bound)
    assert judged(GOOD, GOOD, input_version=lag, bounds=bounds) is reason
    assert version_lag(lag, 0) == lag


def test_tokens_of_the_future_are_an_error():
    with pytest.raises(ValueError, match="version 3 cannot update version 2"):
        version_lag(2, 3)


def test_age_and_zero_variance_are_refused_only_where_declared():
    assert judged(GOOD, GOOD, now=1e9) is None
    assert judged(GOOD, GOOD, now=60.1, bounds=Bounds(0, 10.0, False)) is Reason.TOO_OLD
    assert judged(GOOD, GOOD, bounds=Bounds(0, None, True)) is Reason.ZERO_VARIANCE
    assert judged(GOOD, other(episode_return=0.0), bounds=Bounds(0, None, True)) is None


def test_verl_counts_versions_and_we_count_the_lag_between_them():
    assert [verl_threshold(lag) for lag in (0, 1, 4)] == [1, 2, 5]


def test_zero_variance_by_enumeration():
    for success in (0.0, 0.2, 0.5, 1.0):
        agree = sum(
            success ** sum(group) * (1 - success) ** (4 - sum(group))
            for group in itertools.product((0, 1), repeat=4)
            if len(set(group)) == 1
        )
        assert zero_variance_probability(success, 4) == pytest.approx(agree)


def test_what_was_lost_is_counted_by_family_length_and_return(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.lease([lease("a", family="copy"), lease("b", family="copy"), lease("c", family="set"), lease("d")], 1)
    ledger.complete("a", 1, Measured(20, 1.0))
    ledger.refuse("b", State.DISCARDED, Reason.CENSORED, 1, Measured(200, None))
    ledger.refuse("c", State.DISCARDED, Reason.STALE, 1, Measured(200, 0.0))
    ledger.refuse("d", State.ROLLED_BACK, "crash", 1, None)
    assert lost_by_stratum(ledger.groups()) == {
        ("family", "copy"): (1, 2),
        ("family", "set"): (1, 1),
        ("length", "8-15"): (0, 1),
        ("length", "64-127"): (2, 2),
        ("return", "1"): (0, 1),
        ("return", "0"): (1, 1),
    }

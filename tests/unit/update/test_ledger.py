"""The ledger: legal changes of state only, and every group in exactly one state."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.update.leases import LeaseViolation, decode_lease
from recipe.agent_contracts.update.ledger import NEXT, TERMINAL, Ledger, Measured, State
from tests.unit.update.leasing import lease


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path, clock=itertools.count(10).__next__)


def move(ledger, group_id, to, step=1):
    match to:
        case State.COMPLETE:
            ledger.complete(group_id, step, Measured(40, 0.5))
        case State.ADMITTED:
            ledger.admit([group_id], step)
        case State.APPLIED:
            ledger.apply([group_id], step, step)
        case State.COMMITTED:
            ledger.commit([group_id], step)
        case _:
            ledger.refuse(group_id, to, "why", step, None)


PATHS = {
    State.LEASED: [],
    State.COMPLETE: [State.COMPLETE],
    State.ADMITTED: [State.COMPLETE, State.ADMITTED],
    State.APPLIED: [State.COMPLETE, State.ADMITTED, State.APPLIED],
    State.COMMITTED: [State.COMPLETE, State.ADMITTED, State.APPLIED, State.COMMITTED],
    State.ROLLED_BACK: [State.ROLLED_BACK],
    State.DISCARDED: [State.DISCARDED],
    State.QUARANTINED: [State.QUARANTINED],
}


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("after", [state for state in State if state is not State.LEASED])
def test_only_the_changes_of_the_table_are_made(ledger, before, after):
    ledger.lease([lease()], 1)
    for state in PATHS[before]:
        move(ledger, "g", state)
    if after in NEXT[before]:
        move(ledger, "g", after)
        assert ledger.group("g").state is after
    else:
        with pytest.raises(ContractViolation, match=f"found {before}"):
            move(ledger, "g", after)
        assert ledger.group("g").state is before


def test_nothing_follows_a_terminal_state():
    assert {state for state, after in NEXT.items() if not after} == TERMINAL


def test_a_group_id_is_leased_once_and_a_refused_batch_of_leases_leaves_none(ledger):
    ledger.lease([lease("a")], 1)
    with pytest.raises(ContractViolation, match="never leased, found a"):
        ledger.lease([lease("b"), lease("a")], 2)
    assert ledger.group("b") is None


def test_a_group_that_was_never_leased_cannot_be_consumed(ledger):
    with pytest.raises(ContractViolation, match="a group that was never leased"):
        ledger.admit(["x"], 1)


def test_an_update_is_recorded_for_all_its_groups_or_for_none(ledger):
    ledger.lease([lease("a"), lease("b")], 1)
    for name in "ab":
        move(ledger, name, State.COMPLETE)
    ledger.admit(["a"], 1)
    with pytest.raises(ContractViolation):
        ledger.apply(["a", "b"], 1, 1)  # b was not admitted
    assert ledger.group("a").state is State.ADMITTED


def test_a_row_says_what_the_group_cost_and_where_it_went(ledger):
    ledger.lease([lease()], 3)
    for state in PATHS[State.COMMITTED]:
        move(ledger, "g", state, step=4)
    row = ledger.group("g")
    assert (row.leased_step, row.applied_step, row.output_version) == (3, 4, 4)
    assert (row.num_tokens, row.mean_return, row.reason) == (40, 0.5, None)
    assert row.seconds > 0
    assert row.lease == lease()


def test_after_a_crash_every_open_group_is_rolled_back_and_the_closed_ones_stay(ledger):
    for state, path in PATHS.items():
        ledger.lease([lease(state)], 1)
        for to in path:
            move(ledger, state, to)
    assert ledger.roll_back_open(7) == 4
    counts = ledger.counts()
    assert counts[State.ROLLED_BACK] == 5
    assert [counts[state] for state in (State.COMMITTED, State.DISCARDED, State.QUARANTINED)] == [1, 1, 1]
    assert ledger.group(State.APPLIED).reason == "resumed from step 7"


@given(st.lists(st.sampled_from([state for state in State if state is not State.LEASED]), max_size=6))
def test_whatever_is_tried_the_history_is_a_path_of_the_table(tmp_path_factory, tried):
    ledger = Ledger(tmp_path_factory.mktemp("run"))
    ledger.lease([lease()], 1)
    path = [State.LEASED]
    for state in tried:
        try:
            move(ledger, "g", state)
        except ContractViolation:
            continue
        path.append(state)
    assert all(after in NEXT[before] for before, after in itertools.pairwise(path))
    assert ledger.group("g").state is path[-1]


def test_a_copy_is_the_ledger_of_that_moment(ledger, tmp_path):
    ledger.lease([lease("a")], 1)
    (tmp_path / "copy").mkdir()
    ledger.snapshot(tmp_path / "copy" / "ledger.sqlite")
    ledger.lease([lease("b")], 1)
    assert [row.group_id for row in Ledger(tmp_path / "copy").groups()] == ["a"]


def test_a_lease_that_is_none_is_refused():
    with pytest.raises(LeaseViolation, match="a lease"):
        decode_lease('{"group_id": 3}')
    assert decode_lease(lease().encode()) == lease()

"""Labels: what an error is on a right and on a wrong state, and a set whose sources disagree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.verification.labels import (
    Fault,
    Label,
    LabelledState,
    LabelSource,
    accepts,
    hash_of,
    is_wrong_about,
    require_agreement,
)
from recipe.agent_contracts.verification.verifier import Score

SCORES = st.builds(
    Score,
    task_success=st.sampled_from([0.0, 1.0]),
    policy_violation=st.sampled_from([0.0, 1.0]),
    collateral_damage=st.sampled_from([0.0, 2.0]),
)
PROGRAM_FAULTS = [Fault.BROKEN_RULE, Fault.NOT_DONE, Fault.SIDE_EFFECT]


def state(*faults, source=LabelSource.CONSTRUCTED, more=()):
    labels = [Label(source, "test", sorted(faults)), *more]
    return LabelledState(name="n", family="f", task_id="t", grader={}, final_state=b"{}", labels=labels)


def score(*faults):
    """The score of a verifier that sees exactly these."""
    return Score(
        task_success=float(Fault.NOT_DONE not in faults),
        policy_violation=float(Fault.BROKEN_RULE in faults),
        collateral_damage=float(Fault.SIDE_EFFECT in faults),
    )


@given(st.sets(st.sampled_from(PROGRAM_FAULTS)), st.sets(st.sampled_from(PROGRAM_FAULTS)))
def test_an_error_is_an_overlooked_fault_of_a_wrong_state_or_any_fault_seen_in_a_right_one(true, seen):
    expected = not true <= seen if true else bool(seen)
    assert is_wrong_about(score(*seen), state(*true)) == expected


@given(SCORES)
def test_of_a_state_that_a_person_calls_wrong_only_full_acceptance_is_an_error(given_score):
    assert is_wrong_about(given_score, state(Fault.WRONG, source=LabelSource.HUMAN)) == accepts(given_score)


def test_success_that_pays_for_right_content_in_the_wrong_place_is_an_error_though_the_damage_is_seen():
    misplaced = state(Fault.NOT_DONE, Fault.SIDE_EFFECT)
    paid = Score(task_success=1.0, collateral_damage=1.0)
    assert not accepts(paid)
    assert is_wrong_about(paid, misplaced)


def test_tampering_is_never_accepted():
    assert not accepts(Score(task_success=1.0, tamper_detected=1.0))


def test_sources_that_disagree_refuse_the_set_and_say_what_each_says():
    other = Label(LabelSource.SECOND_PROGRAM, "p", [Fault.NOT_DONE])
    with pytest.raises(ContractViolation, match=r"constructed: right; second_program: not_done, for 'n' \(1 of 2"):
        require_agreement([state(), state(more=[other])])


def test_sources_that_agree_pass():
    require_agreement([state(), state(Fault.NOT_DONE, more=[Label(LabelSource.HUMAN, "Ada", [Fault.NOT_DONE])])])


def test_the_hash_follows_every_label():
    hashes = {hash_of([state()]), hash_of([state(Fault.NOT_DONE)]), hash_of([state(), state()]), hash_of([])}
    assert len(hashes) == 4

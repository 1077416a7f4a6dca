"""The verifier's error rates: worked figures, broken verifiers that are caught, states without a verdict."""

import json

import msgspec
import pytest

from recipe.agent_contracts.errors import ContractViolation, VerifierFailure
from recipe.agent_contracts.evaluation.statistics import wilson
from recipe.agent_contracts.evaluation.verifier_audit import (
    BOUNDS,
    GIVE_UP_AFTER,
    VerifierAudit,
    audit_verifier,
    write_audit,
)
from recipe.agent_contracts.verification.human_labelled import HumanLabelled
from recipe.agent_contracts.verification.labels import Fault, Label, LabelSource
from recipe.agent_contracts.verification.layers import verdict_of
from recipe.agent_contracts.verification.terminal import TerminalVerifier
from tests import verifiers

NOBODY = HumanLabelled([], [])


def audit(verifier, human=NOBODY):
    def verify(grader, state):
        try:
            return verdict_of(verifier, grader, state)
        except ValueError as error:
            raise VerifierFailure("verification.verdict", "a score", str(error)) from error

    return audit_verifier("terminal", verifiers.domain_of(type(verifier)), verify, human)


def human_state(is_right, state=None, family="set:ini->ini"):
    state = state or next(found for found in verifiers.two_families() if found.is_right == is_right)
    label = Label(LabelSource.HUMAN, "Ada", [] if is_right else [Fault.WRONG])
    return msgspec.structs.replace(state, family=family, labels=[label])


def test_0_of_300_leaves_up_to_1_26_percent_and_the_bounds_ask_for_no_fewer():
    # z**2 / (n + z**2) with z = 1.959964
    assert wilson(0, 300).high == pytest.approx(0.01264, abs=5e-6)
    assert wilson(0, BOUNDS.min_negatives).high < 0.013
    assert BOUNDS.max_false_positives == 0


def test_the_shipped_verifier_holds_every_bound():
    found = audit(TerminalVerifier())
    assert found.passed
    assert (found.false_positives, found.false_negatives, found.num_no_verdict) == (0, 0, 0)
    assert found.families.keys() == set(verifiers.FAMILIES)
    assert found.verifier_version == TerminalVerifier.version


def test_counts_add_up_over_families_and_a_state_with_two_labels_counts_once():
    found, states = audit(TerminalVerifier()), verifiers.two_families()
    assert found.num_negatives + found.num_positives == len(states)
    for name in ("num_negatives", "num_positives", "num_whitespace_rejected"):
        assert getattr(found, name) == sum(getattr(family, name) for family in found.families.values())
    assert found.sources["second_program"].num_negatives == found.num_negatives
    assert found.sources["constructed"].num_positives == sum(state.name == "right" for state in states)


@pytest.mark.parametrize(
    ("verifier", "caught_by"),
    [
        (verifiers.IgnoresTrailingSpace, {"newline added at the end", "space added at the end"}),
        (verifiers.SkipsCollateral, {"extra file", "other file changed"}),
        (verifiers.SkipsRules, {"other file removed", "newline added to the other file"}),
        (verifiers.AcceptsUndeclared, {"completion not declared"}),
        (verifiers.IgnoresCase, {"case changed"}),
        (verifiers.LooksForContentAnywhere, {"right content in the other file", "right content in a new file"}),
    ],
)
def test_a_lax_verifier_has_false_positives_and_fails(verifier, caught_by):
    found = audit(verifier())
    missed = sum(state.name in caught_by for state in verifiers.two_families())
    assert found.false_positives >= missed > 0
    assert not found.passed
    assert all("false positives, at most 0" in family.failures[0] for family in found.families.values())
    assert found.false_positive_interval.low > 0


def test_a_strict_verifier_has_no_false_positives_but_false_negatives_and_fails():
    found = audit(verifiers.TooStrict())
    assert found.false_positives == 0
    assert found.false_negatives == found.num_positives > 0
    assert [family.failures for family in found.families.values()] == [
        [f"{family.num_positives} of {family.num_positives} false negatives, at most 5%"]
        for family in found.families.values()
    ]


def test_the_cost_of_strictness_is_what_is_refused_for_white_space_alone():
    strict, lax = audit(TerminalVerifier()), audit(verifiers.IgnoresTrailingSpace())
    states = [state for state in verifiers.two_families() if state.is_whitespace_only]
    assert strict.num_whitespace_rejected == len(states) > lax.num_whitespace_rejected


def test_no_verdict_is_neither_right_nor_wrong_and_fails():
    found = audit(verifiers.FailsOnWrongStates())
    assert found.num_no_verdict + found.num_negatives + found.num_positives == len(verifiers.two_families())
    assert found.num_no_verdict > 0
    assert (found.false_positives, found.false_negatives) == (0, 0)
    assert not found.passed
    assert "no opinion" in found.first_failure


def test_a_verifier_that_never_answers_is_not_asked_again_and_again():
    asked = []

    def verify(grader, state):
        asked.append(state)
        raise VerifierFailure("verification.verdict", "a score", "nothing")

    found = audit_verifier("terminal", verifiers.domain_of(verifiers.Dies), verify, NOBODY)
    assert len(asked) == GIVE_UP_AFTER
    assert found.num_no_verdict == len(verifiers.two_families())
    assert (found.num_negatives, found.false_positive_interval, found.passed) == (0, None, False)


def test_human_labels_join_their_family_and_their_own_source():
    without = audit(TerminalVerifier())
    found = audit(TerminalVerifier(), HumanLabelled([human_state(True), human_state(False)], ["g_9"]))
    assert (found.sources["human"].num_positives, found.sources["human"].num_negatives) == (1, 1)
    assert found.families["set:ini->ini"].num_negatives == without.families["set:ini->ini"].num_negatives + 1
    assert found.fixture_hash == without.fixture_hash
    assert found.disputed == ["g_9"]
    assert found.passed


def test_one_success_that_a_person_calls_wrong_fails_its_family():
    right = next(state for state in verifiers.two_families() if state.is_right)
    found = audit(TerminalVerifier(), HumanLabelled([human_state(False, right)], []))
    assert (found.false_positives, found.sources["human"].false_positives) == (1, 1)
    assert found.families["set:ini->ini"].failures and not found.families["cli:txt->json"].failures
    assert not found.passed


def test_a_family_with_too_few_labels_does_not_pass():
    found = audit(TerminalVerifier(), HumanLabelled([human_state(True, family="new")], []))
    assert found.families["new"].failures == ["0 negatives, at least 300", "1 positives, at least 100"]
    assert not found.passed


def test_a_domain_without_any_label_does_not_pass():
    domain = msgspec.structs.replace(verifiers.domain_of(TerminalVerifier), labelled=None)
    assert not audit_verifier("x", domain, None, NOBODY).passed


def test_sources_that_disagree_are_not_measured_on():
    state = human_state(True)
    split = msgspec.structs.replace(
        state, labels=[*state.labels, Label(LabelSource.SECOND_PROGRAM, "p", [Fault.NOT_DONE])]
    )
    with pytest.raises(ContractViolation, match=r"verification\.labels"):
        audit(TerminalVerifier(), HumanLabelled([split], []))


def test_what_is_written_has_what_gate_g17_and_the_report_read(tmp_path):
    found = audit(verifiers.SkipsCollateral())
    write_audit(tmp_path / "audits" / "verifier.json", found)
    content = json.loads((tmp_path / "audits" / "verifier.json").read_text())
    keys = ("false_positives", "num_negatives", "false_negatives", "num_positives", "passed")
    assert {key: content[key] for key in keys} == {key: getattr(found, key) for key in keys}
    assert msgspec.convert(content, VerifierAudit) == found


def test_labelled_states_are_what_is_scored():
    seen = []

    def verify(grader, state):
        seen.append((grader, state))
        return verdict_of(TerminalVerifier(), grader, state)

    audit_verifier("terminal", verifiers.domain_of(TerminalVerifier), verify, NOBODY)
    assert seen == [(state.grader, state.final_state) for state in verifiers.two_families()]

"""Each gate holds on a whole run, and fails, by name, when exactly the property that it is about is broken."""

from __future__ import annotations

import msgspec
import pytest

from recipe.agent_contracts.domains import DOMAINS
from recipe.agent_contracts.evaluation.gates import GATES, go, judge_run, update
from recipe.agent_contracts.evaluation.gates.base import Finding, Run, Status
from recipe.agent_contracts.evaluation.gates.transition import BranchIsolation
from recipe.agent_contracts.evaluation.gates.update import GradientSign, ReductionIdentity
from tests import gated
from tests.unit.evaluation.gates import breaks_policy, breaks_transition, breaks_update
from tests.unit.evaluation.gates.breaking import BREAKS, Break

ALL = {gate.id for gate in GATES}
LISTS = (breaks_policy, breaks_transition, breaks_update)  # importing them fills BREAKS
ENVIRONMENTS = "tests.contracts."
BY_CODE = {"G03", "G18"}
"""What no record of a run can break."""


def judged(parts: gated.Parts) -> dict[str, Finding]:
    parts.write()
    return {finding.gate: finding for finding in judge_run(parts.folder)}


def not_passed(found: dict[str, Finding]) -> set[str]:
    return {gate for gate, finding in found.items() if finding.status is not Status.PASSED}


def test_every_gate_passes_on_a_whole_run(tmp_path):
    found = judged(gated.passing(tmp_path))
    assert found.keys() == ALL
    assert not not_passed(found), found
    assert go(list(found.values()))


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.name)
def test_a_gate_fails_when_its_property_is_broken_and_no_other_gate_does(tmp_path, quick, broken: Break):
    parts = gated.passing(tmp_path)
    broken.change(parts)
    found = judged(parts)
    assert found[broken.gate].status is broken.status, found[broken.gate]
    assert broken.says in found[broken.gate].evidence
    assert not_passed(found) == {broken.gate, *broken.also}
    assert not go(list(found.values()))


def test_every_gate_is_broken_by_some_fact():
    assert {broken.gate for broken in BREAKS if broken.status is Status.FAILED} == ALL - BY_CODE


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    parts = gated.passing(tmp_path_factory.mktemp("whole"))
    parts.write()
    return parts.folder


@pytest.mark.parametrize(
    ("environment", "status", "says"),
    [
        ("broken:LeakyFork", Status.FAILED, "[transition.forks_are_isolated]"),
        ("desk:ShallowFork", Status.FAILED, "[transition.forks_are_isolated]"),
        ("desk:Restless", Status.FAILED, "[transition.sealed_snapshot_is_immutable]"),
        ("test_environments:Weak", Status.NOT_MEASURED, "forks_are_isolated not_claimed"),
        (None, Status.NOT_MEASURED, "declares no capabilities"),
    ],
)
def test_branch_isolation_fails_when_the_environment_leaks(whole, monkeypatch, environment, status, says):
    path = None if environment is None else f"{ENVIRONMENTS}{environment}"
    domain = msgspec.structs.replace(DOMAINS["terminal"], environment_class=path)
    monkeypatch.setitem(DOMAINS, "terminal", domain)
    found = BranchIsolation(Run(whole)).finding()
    assert found.status is status, found
    assert says in found.evidence


def test_a_loss_of_the_wrong_sign_fails_the_sign_and_the_identity(whole, monkeypatch):
    """Both are about the same loss: what descends is no policy gradient either."""
    right = update.token_losses
    monkeypatch.setattr(update, "token_losses", lambda *of: (-right(*of)[0], {}))
    found = GradientSign(Run(whole)).finding()
    assert (found.status, found.figure) == (Status.FAILED, "14 of 14 wrong")
    assert found.evidence == "episode 0, advantage +1"
    assert ReductionIdentity(Run(whole)).finding().status is Status.FAILED


def test_a_loss_that_moves_nothing_has_no_sign(whole, monkeypatch):
    right = update.token_losses
    monkeypatch.setattr(update, "token_losses", lambda *of: (0.0 * right(*of)[0], {}))
    assert GradientSign(Run(whole)).finding().figure == "14 of 14 wrong"


def test_weights_that_depend_on_length_are_no_policy_gradient_and_keep_the_sign(whole, monkeypatch):
    right = update.token_weights
    monkeypatch.setattr(update, "token_weights", lambda _, mask: right("length_normalized", mask))
    found = ReductionIdentity(Run(whole)).finding()
    assert (found.status, found.evidence) == (Status.FAILED, "update/reduction.py")
    assert GradientSign(Run(whole)).finding().status is Status.PASSED

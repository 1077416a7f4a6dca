"""What makes judging many runs quick."""

from __future__ import annotations

import pytest

from recipe.agent_contracts.domains import DOMAINS, load
from recipe.agent_contracts.evaluation.gates import transition, update
from recipe.agent_contracts.transition import replay
from recipe.agent_contracts.transition.conformance import Report, cases_of, check_cases
from tests import gated


@pytest.fixture(scope="session")
def conformance() -> Report:
    """What G03 finds of the shipped environment, asked once."""
    return check_cases(cases_of(load(str(DOMAINS["terminal"].environment_class))), pause_seconds=0.0)


@pytest.fixture(scope="session")
def gradient_error() -> float:
    """What G16 finds of the installed reductions, asked once."""
    return update.policy_gradient_error()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, conformance: Report, gradient_error: float) -> None:
    """Answers that no record of a run can change are not computed anew for every run."""
    monkeypatch.setattr(update, "policy_gradient_error", lambda: gradient_error)
    monkeypatch.setattr(replay, "VerifierProcess", gated.InThisProcess)
    monkeypatch.setattr(transition, "check_cases", lambda cases, pause_seconds: conformance)

"""Canaries: a verifier that is wrong about a state whose verdict is known serves no run."""

import pytest

from recipe.agent_contracts.domains import DOMAINS, Domain
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.verification.canaries import require_canaries
from recipe.agent_contracts.verification.process import VerifierPool
from recipe.agent_contracts.verification.terminal import TerminalVerifier
from recipe.agent_contracts.verification.terminal_canaries import canaries
from recipe.agent_contracts.verification.verifier import Score

TERMINAL = DOMAINS["terminal"]


def test_the_shipped_verifier_is_right_about_all_of_its_canaries_in_its_own_process():
    pool = VerifierPool(TERMINAL.verifier, timeout_seconds=30.0, num_processes=1)
    assert require_canaries(TERMINAL, pool.score) == len(canaries()) == 15
    pool.close()


def test_no_canary_is_another_one():
    assert len({(str(canary.grader), canary.final_state) for canary in canaries()}) == 15


@pytest.mark.parametrize("always", [0.0, 1.0])
def test_a_verifier_that_always_says_the_same_is_refused(always):
    with pytest.raises(ContractViolation, match=r"verification\.canary"):
        require_canaries(TERMINAL, lambda grader, state: Score(task_success=always))


@pytest.mark.parametrize("wrong", [canary.name for canary in canaries()])
def test_a_verifier_that_is_wrong_about_one_canary_is_refused_and_the_canary_named(wrong):
    chosen = next(canary for canary in canaries() if canary.name == wrong)

    def score(grader, state):
        if (grader, state) == (chosen.grader, chosen.final_state):
            return Score(task_success=float(not chosen.right))
        return TerminalVerifier().score(grader, state)

    with pytest.raises(ContractViolation, match=wrong):
        require_canaries(TERMINAL, score)


def test_a_domain_without_canaries_has_none():
    assert require_canaries(Domain(environment="m:f", verifier="m:V"), score=None) == 0

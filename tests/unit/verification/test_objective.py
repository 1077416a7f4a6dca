"""The declared objective: what each entry of the reward vector may be, and what it makes of an episode."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.verification.objective import JUDGE, JUDGE_REJECTED, Objective
from recipe.agent_contracts.verification.verifier import Score

COST = {"budget": 1.0, "learning_rate": 0.1}


def objective(reward=("task_success",), gates=(), costs=None):
    declared = {"reward": list(reward), "gates": list(gates), "costs": costs or {}, "process_reward_arm": None}
    return msgspec.convert(declared, Objective)


def test_success_alone_is_the_default_and_nothing_else_moves_it():
    vector = Score(1.0, policy_violation=3.0, collateral_damage=2.0).vector()
    assert objective().reward_of(vector) == 1.0


def test_a_gate_that_is_not_zero_takes_the_whole_reward():
    vector = Score(1.0, collateral_damage=1.0).vector()
    assert objective(gates=["collateral_damage"]).reward_of(vector) == 0.0
    assert objective(gates=["policy_violation"]).reward_of(vector) == 1.0


def test_a_cost_is_priced_by_its_multiplier():
    """1 - 0.25 * 3 = 0.25."""
    declared = objective(costs={"collateral_damage": COST})
    vector = Score(1.0, collateral_damage=3.0).vector()
    assert declared.return_of(vector, {"collateral_damage": 0.25}) == 0.25
    assert declared.reward_of(vector) == 1.0


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 5))
def test_no_violation_ever_raises_a_return(violations, more, multiplier):
    declared = objective(costs={"policy_violation": COST})
    few = Score(1.0, policy_violation=violations).vector()
    many = Score(1.0, policy_violation=violations + more).vector()
    prices = {"policy_violation": multiplier}
    assert declared.return_of(many, prices) <= declared.return_of(few, prices)


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"reward": []}, "at least one term"),
        ({"reward": ["task_success", "tool_reward"]}, "what a tool said of itself"),
        ({"reward": ["task_success", "policy_violation"]}, "cancel against success"),
        ({"gates": ["tamper_detected"]}, "quarantined"),
        ({"gates": ["task_success"]}, "more than one role"),
        ({"gates": [JUDGE]}, "annotation"),
        ({"reward": ["task_success", JUDGE_REJECTED]}, "cancel against success"),
        ({"costs": {"typo": COST}}, "no entry of the reward vector"),
        ({"gates": ["policy_violation"], "costs": {"policy_violation": COST}}, "more than one role"),
        ({"costs": {"policy_violation": {"budget": -1.0, "learning_rate": 0.1}}}, "at least 0"),
        ({"costs": {"policy_violation": {"budget": 1.0}}}, "learning_rate"),
    ],
)
def test_a_term_in_a_role_that_it_cannot_have_is_refused_with_the_reason(declared, reason):
    with pytest.raises(msgspec.ValidationError, match=reason):
        objective(**declared)


def test_a_declared_term_that_the_verifier_does_not_measure_is_refused():
    with pytest.raises(ContractViolation, match=r"extra\.style"):
        objective(reward=["task_success", "extra.style"]).reward_of(Score(1.0).vector())

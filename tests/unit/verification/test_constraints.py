"""Lagrange multipliers: projected ascent on the dual, checked on a problem whose solution is known."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.verification.constraints import Cost, constrain, multipliers_after, next_multiplier

FLOATS = st.floats(0, 100)


def test_a_multiplier_rises_by_what_the_cost_is_over_its_budget():
    """0.5 + 0.2 * (3 - 1) = 0.9."""
    assert next_multiplier(0.5, 3.0, Cost(budget=1.0, learning_rate=0.2)) == pytest.approx(0.9)


@given(FLOATS, FLOATS, FLOATS, FLOATS)
def test_it_is_never_negative_and_falls_only_below_the_budget(multiplier, mean, budget, rate):
    following = next_multiplier(multiplier, mean, Cost(budget=budget, learning_rate=rate))
    assert following >= 0
    assert following >= multiplier if mean >= budget else following <= multiplier


def test_the_constrained_optimum_of_a_two_armed_bandit_is_reached():
    """The unsafe arm pays 1 and costs 1, the safe one pays 0.4 and costs 0: at lambda = 0.6 both are worth 0.4.

    A softmax policy with p(unsafe) = sigmoid((0.6 - lambda) / T) meets a budget of 0.25 at lambda = 0.6 + T * ln 3.
    """
    temperature, costs = 0.1, {"cost": Cost(budget=0.25, learning_rate=0.05)}
    multipliers = multipliers_after(costs, None)
    for _ in range(2000):
        unsafe = 1 / (1 + math.exp(-(0.6 - multipliers["cost"]) / temperature))
        multipliers = multipliers_after(costs, constrain(costs, multipliers, [{"cost": unsafe}]))
    assert multipliers["cost"] == pytest.approx(0.6 + temperature * math.log(3), abs=1e-6)


def test_the_record_says_what_was_used_and_what_comes_next():
    costs = {"cost": Cost(budget=1.0, learning_rate=0.5, initial_multiplier=1.0)}
    found = constrain(costs, multipliers_after(costs, None), [{"cost": 0.0}, {"cost": 4.0}])["cost"]
    assert (found.multiplier, found.mean_cost, found.budget, found.next_multiplier) == (1.0, 2.0, 1.0, 1.5)

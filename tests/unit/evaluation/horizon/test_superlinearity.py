"""The preregistered test: worked numbers, what it finds, and how often it is wrong."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.evaluation.horizon.superlinearity import (
    Counts,
    Verdict,
    bend_weights,
    check_superlinearity,
    growth_weights,
)

HORIZONS = (4, 8, 16, 32)
NUM_TESTS = 16


def counts_of(errors, cases=200):
    return [Counts(horizon, count, cases) for horizon, count in zip(HORIZONS, errors, strict=True)]


def verdicts(rate, cases, num_tests, num_seeds=100):
    rng = np.random.default_rng(7)
    rates = [rate(horizon) for horizon in HORIZONS]
    drawn = rng.binomial(cases, rates, size=(num_seeds, len(HORIZONS)))
    return [check_superlinearity(counts_of(errors.tolist(), cases), num_tests).verdict for errors in drawn]


@given(st.lists(st.integers(1, 200), min_size=3, max_size=6, unique=True), st.floats(-1, 1), st.floats(-1, 1))
def test_the_bend_of_a_line_is_0_whatever_its_slope(horizons, start, slope):
    ordered = sorted(horizons)
    rates = start + slope * np.array(ordered) / ordered[-1]
    assert bend_weights(ordered) @ rates == pytest.approx(0.0, abs=1e-9)


def test_worked_numbers_of_the_bend():
    """Over (2, 4, 6) the horizons map to (-1, 0, 1): rates (.1, .2, .5) lie on .2 + .2 x + .1 x**2."""
    assert bend_weights([2, 4, 6]) @ np.array([0.1, 0.2, 0.5]) == pytest.approx(0.1)
    assert bend_weights([2, 4, 6]) == pytest.approx([0.5, -1.0, 0.5])
    assert growth_weights(3) @ np.array([0.1, 0.2, 0.5]) == pytest.approx(0.4)


def test_worked_numbers_of_a_bound():
    """200 cases each, rates 0 and .5: the growth's standard error is sqrt(.25/200) = .0354; 1.645 of them below .5."""
    result = check_superlinearity(counts_of([0, 0, 0, 100]), num_tests=1)
    assert result.growth.value == 0.5
    assert result.growth.lower_bound == pytest.approx(0.5 - 1.645 * 0.0354, abs=0.006)
    assert result.confidence == pytest.approx(0.95)
    assert result.verdict is Verdict.SUPPORTED
    assert result.words == "grew; superlinearity supported"


def test_more_tests_ask_for_more():
    few, many = (check_superlinearity(counts_of([2, 4, 9, 30]), num_tests) for num_tests in (1, 16))
    assert many.confidence == pytest.approx(1 - 0.05 / 16)
    assert many.bend.value == few.bend.value
    assert many.bend.lower_bound < few.bend.lower_bound


def test_fewer_than_fifty_labelled_cases_are_not_measured():
    counts = [*counts_of([0, 0, 0, 100])[:3], Counts(32, 49, 49)]
    result = check_superlinearity(counts, 1)
    assert (result.verdict, result.growth, result.bend) == (Verdict.NOT_MEASURED, None, None)
    assert result.words == "not measured: a horizon has fewer than 50 labelled cases"


@pytest.mark.parametrize("errors", [[0, 0, 0, 0], [200, 200, 200, 200], [100, 40, 20, 30]])
def test_no_growth_is_not_superlinear(errors):
    """No error, nothing but errors, and a rate that bends upwards while it falls."""
    result = check_superlinearity(counts_of(errors), 1)
    assert result.verdict is Verdict.NOT_SUPPORTED
    assert result.words == "growth not shown; superlinearity not supported"


LINEAR = {
    "flat": lambda horizon: 0.1,
    "through 0": lambda horizon: 0.01 * horizon,
    "steep": lambda horizon: 0.1 + 0.02 * horizon,
    "independent errors of turns": lambda horizon: 1 - 0.98**horizon,
}


@pytest.mark.parametrize("name", LINEAR)
def test_false_alarms_of_one_test_stay_near_the_nominal_rate(name):
    """Nominal .05, and .022 its standard error over 100 seeds; docs/horizon.md has 1000."""
    assert verdicts(LINEAR[name], 200, num_tests=1).count(Verdict.SUPPORTED) <= 12


@pytest.mark.parametrize("name", LINEAR)
def test_false_alarms_in_the_family_are_rare(name):
    """Nominal .0031 a test: 0.3 in 100, and 4 or more with probability under .0005."""
    assert verdicts(LINEAR[name], 120, num_tests=NUM_TESTS).count(Verdict.SUPPORTED) <= 3


def test_a_planted_superlinear_rate_is_found():
    found = verdicts(lambda horizon: 0.9 * (horizon / 32) ** 2, 120, num_tests=NUM_TESTS)
    assert found.count(Verdict.SUPPORTED) / len(found) >= 0.9

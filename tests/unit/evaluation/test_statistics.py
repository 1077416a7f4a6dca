"""Intervals over tasks, pass@k and pass^k."""

import math
from itertools import combinations

import numpy as np
import pytest

from recipe.agent_contracts.evaluation.statistics import (
    Estimate,
    bootstrap_mean,
    paired_difference,
    pass_at_k,
    pass_hat_k,
    simultaneous_confidence,
    wilson,
)


def test_the_interval_covers_the_mean_and_has_the_normal_width():
    """100 tasks, half solved: the standard error is sqrt(.25/100) = .05, so 95% is about .5 +- .098."""
    estimate = bootstrap_mean([0.0, 1.0] * 50)
    assert estimate.mean == 0.5
    assert estimate.low == pytest.approx(0.402, abs=0.02)
    assert estimate.high == pytest.approx(0.598, abs=0.02)
    assert estimate.num_tasks == 100


def test_the_same_values_give_the_same_interval():
    assert bootstrap_mean([0.0, 1.0, 1.0]) == bootstrap_mean([0.0, 1.0, 1.0])


def test_a_constant_has_an_interval_of_width_zero():
    estimate = bootstrap_mean([1.0] * 5)
    assert (estimate.low, estimate.high) == (1.0, 1.0)


def test_the_difference_is_paired_by_task():
    """Every task gains .1, whatever its level: the paired interval has width 0."""
    before = {str(task): task / 100 for task in range(50)}
    difference = paired_difference(before, {task: value + 0.1 for task, value in before.items()})
    assert difference.low == pytest.approx(0.1)
    assert difference.high == pytest.approx(0.1)


def test_unpaired_tasks_are_refused():
    with pytest.raises(ValueError, match="unpaired"):
        paired_difference({"a": 0.0}, {"b": 0.0})


def test_no_task_has_no_interval():
    with pytest.raises(ValueError, match="at least one task"):
        bootstrap_mean([])


@pytest.mark.parametrize(
    ("estimate", "sign", "text"),
    [
        (Estimate(0.183, 0.133, 0.233, 9), "-", ".183 [.133, .233]"),
        (Estimate(1.0, 0.05, 1.0, 9), "-", "1.000 [.050, 1.000]"),
        (Estimate(0.113, -0.047, 0.18, 9), "+", "+.113 [-.047, +.180]"),
    ],
)
def test_the_text_of_an_estimate(estimate, sign, text):
    assert estimate.text(sign) == text


@pytest.mark.parametrize("num_attempts", range(1, 7))
def test_pass_at_k_and_pass_hat_k_equal_enumeration(num_attempts):
    """Every way to draw k of the attempts, counted."""
    for num_successes in range(num_attempts + 1):
        attempts = [True] * num_successes + [False] * (num_attempts - num_successes)
        for k in range(1, num_attempts + 1):
            draws = list(combinations(attempts, k))
            some, every = sum(map(any, draws)) / len(draws), sum(map(all, draws)) / len(draws)
            assert pass_at_k(num_attempts, num_successes, k) == pytest.approx(some, abs=1e-12)
            assert pass_hat_k(num_attempts, num_successes, k) == pytest.approx(every, abs=1e-12)


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 1, 0), (3, 4, 1), (3, -1, 1), (0, 0, 1)])
def test_a_draw_that_cannot_be_made_is_refused(n, c, k):
    """Case H12: k > n is refused, where sampling with replacement would give a number."""
    for estimator in (pass_at_k, pass_hat_k):
        with pytest.raises(ValueError, match="cannot draw"):
            estimator(n, c, k)


def test_the_wilson_interval_of_one_task():
    """3 of 3 attempts, z = 1.96: the lower bound is n / (n + z^2) = 3 / 6.8416 = .4385, not 1."""
    estimate = wilson(3, 3)
    assert estimate.low == pytest.approx(0.4385, abs=1e-3)
    assert (estimate.mean, estimate.high) == (1.0, 1.0)


def test_intervals_of_many_comparisons_are_wider():
    assert simultaneous_confidence(1) == pytest.approx(0.95)
    assert simultaneous_confidence(10) == pytest.approx(0.995)


@pytest.mark.parametrize("num_simulations", [200, pytest.param(2000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("success", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("spread", [0.0, 0.4])
def test_the_interval_covers_the_true_success(num_simulations, success, spread):
    """100 tasks, 3 attempts; `spread` is the share of the variance that lies between tasks (a beta distribution)."""
    rng = np.random.default_rng(7)
    num_covered = 0
    for _ in range(num_simulations):
        shape = 1 / spread - 1 if spread else None
        rates = np.full(100, success) if shape is None else rng.beta(success * shape, (1 - success) * shape, 100)
        estimate = bootstrap_mean(list(rng.binomial(3, rates) / 3), num_resamples=1000)
        num_covered += estimate.low <= success <= estimate.high
    # 93 to 97 percent, and three standard errors of the simulation.
    slack = 3 * math.sqrt(0.95 * 0.05 / num_simulations)
    assert 0.93 - slack <= num_covered / num_simulations <= 0.97 + slack

"""Intervals over tasks."""

import pytest

from recipe.agent_contracts.evaluation.statistics import Estimate, bootstrap_mean, paired_difference


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

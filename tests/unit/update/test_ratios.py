"""Ratios at their granularities, against worked numbers."""

import math

import pytest
import torch

from recipe.agent_contracts.update.ratios import episode_score, ratio_report, turn_score

MASK = torch.tensor([[1, 1, 0, 1], [1, 0, 0, 0]])
LOG_RATIO = torch.tensor([[0.2, 0.4, 9.0, -0.6], [0.1, 9.0, 9.0, 9.0]])
"""Turns of episode 0: 0.2 + 0.4 and -0.6; what lies off the mask must not count."""


def test_scores_are_means_over_the_turn_and_over_the_episode():
    assert turn_score(LOG_RATIO, MASK)[MASK.bool()].tolist() == pytest.approx([0.3, 0.3, -0.6, 0.1])
    assert episode_score(LOG_RATIO, MASK).flatten().tolist() == pytest.approx([0.0, 0.1], abs=1e-7)


def test_the_report_keeps_each_ratio_under_its_own_name():
    report = ratio_report(LOG_RATIO, MASK)
    assert report["ratio/token/max"] == pytest.approx(math.exp(0.4))
    assert report["ratio/whole_turn/max"] == pytest.approx(math.exp(0.6))
    assert report["ratio/whole_episode/max"] == pytest.approx(math.exp(0.1))
    assert report["ratio/turn_geometric_mean/max"] == pytest.approx(math.exp(0.3))
    assert report["ratio/episode_geometric_mean/max"] == pytest.approx(math.exp(0.1))
    # Three turns, with logs -0.6, 0.1, 0.6.
    assert report["ratio/whole_turn/p50"] == pytest.approx(math.exp(0.1))


def test_the_effective_sample_size_is_1_for_equal_weights_and_1_over_b_for_one_that_has_all():
    """Kish: (sum w)^2 / (B sum w^2); weights exp(0) and exp(0.1) give 0.99751."""
    assert ratio_report(torch.zeros(3, 2), torch.ones(3, 2))["ratio/effective_sample_size"] == pytest.approx(1.0)
    heavy = torch.tensor([[50.0], [0.0], [0.0], [0.0]])
    assert ratio_report(heavy, torch.ones(4, 1))["ratio/effective_sample_size"] == pytest.approx(0.25)
    assert ratio_report(LOG_RATIO, MASK)["ratio/effective_sample_size"] == pytest.approx(0.99751, abs=1e-5)


def test_a_ratio_never_overflows():
    assert all(map(math.isfinite, ratio_report(torch.full((2, 3), 400.0), torch.ones(2, 3)).values()))

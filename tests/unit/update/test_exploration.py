"""The exploration monitor on two siblings that branch at one token."""

import math

import pytest

from recipe.agent_contracts.update.exploration import Played, branch_overlap, sequence_diversity, strata

ONE = Played("g", True, 1.0, [0.1, 2.0, 0.2], [1.0, 2.0, 1.0], [0, 0, 1], ["read", "finish"], [5, 6, 7])
TWO = Played("g", False, -1.0, [0.1, 2.0, 0.3], [1.0, 2.0, 1.0], [0, 0, 1], ["write", "finish"], [5, 8, 7])


def test_entropy_and_mass_by_stratum():
    report = strata([ONE, TWO])
    assert report["mass/advantage/positive"] == pytest.approx(0.5)
    assert report["mass/turn/0"] == pytest.approx(6 / 8)
    assert report["entropy/turn/1"] == pytest.approx(0.25)
    assert report["entropy/action/read"] == pytest.approx(1.05)
    assert report["entropy/success/False"] == pytest.approx(0.8)
    assert report["mass/entropy_quartile/4"] == 0.0 or report["mass/entropy_quartile/4"] <= 0.5


def test_mass_shares_of_a_kind_sum_to_one():
    report = strata([ONE, TWO])
    for kind in ("advantage", "success", "turn", "action", "entropy_quartile"):
        assert sum(value for name, value in report.items() if name.startswith(f"mass/{kind}/")) == pytest.approx(1.0)


def test_siblings_that_play_alike_have_half_the_diversity_of_two_that_differ():
    assert sequence_diversity([ONE, TWO]) == 1.0
    assert sequence_diversity([ONE, ONE]) == 0.5


def test_the_token_at_which_siblings_branch_is_the_uncertain_one():
    assert branch_overlap([ONE, TWO]) == 1.0
    assert math.isnan(branch_overlap([ONE, ONE]))

"""Gradient mass: worked numbers, and shares that sum to one."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.update.gradient_mass import length_band, shares, token_mass


def test_a_tokens_mass_is_its_coefficient_times_the_probability_it_lacks():
    """|-0.5| (1 - 0.25) and 2 (1 - 1): a token that is certain cannot be pushed further."""
    mass = token_mass(np.array([-0.5, 2.0]), np.log([0.25, 1.0]))
    assert mass.tolist() == pytest.approx([0.375, 0.0])


def test_it_is_the_gradient_in_the_tokens_own_logit():
    """d(c log softmax(z)_y)/dz_y = c (1 - p_y)."""
    z, step = np.array([0.3, -0.2, 1.0]), 1e-6

    def log_p(logits):
        return logits[0] - np.log(np.exp(logits).sum())

    slope = (log_p(z + np.array([step, 0, 0])) - log_p(z - np.array([step, 0, 0]))) / (2 * step)
    assert token_mass(np.array([1.7]), np.array([log_p(z)]))[0] == pytest.approx(1.7 * slope, rel=1e-6)


@given(st.lists(st.tuples(st.floats(0, 10), st.sampled_from("abc"), st.integers(0, 300)), min_size=1))
def test_the_shares_of_each_kind_sum_to_one(episodes):
    masses = [mass for mass, _, _ in episodes]
    found = shares(masses, [{"family": name, "length": length_band(size)} for _, name, size in episodes])
    for kind in ("family", "length"):
        total = sum(share for name, share in found.items() if name.startswith(f"gradient_mass/{kind}/"))
        assert total == pytest.approx(1.0) or (not found and sum(masses) == 0)


@pytest.mark.parametrize(("tokens", "band"), [(0, "0"), (1, "1-1"), (2, "2-3"), (64, "64-127"), (127, "64-127")])
def test_bands_are_powers_of_two(tokens, band):
    assert length_band(tokens) == band
    assert band == "0" or math.log2(int(band.partition("-")[0])).is_integer()

"""Differences between generator and trainer: worked numbers, the identity of their split, and named causes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.update.consistency import FLOOR, causes, compare, split, tolerance


def test_the_summary_is_signed_in_the_mean_and_absolute_in_the_tails():
    """delta = 0.1, -0.3 over two episodes."""
    found = compare([np.array([-1.0]), np.array([-2.3])], [np.array([-1.1]), np.array([-2.0])])
    assert (found.num_tokens, found.mean, found.max) == (2, pytest.approx(-0.1), pytest.approx(0.3))
    assert found.k3 == pytest.approx(np.mean([np.exp(0.1) - 1.1, np.exp(-0.3) - 0.7]))
    assert found.episode_log_perplexity == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("trainer", "generator", "message"),
    [
        ([np.zeros(2)], [np.zeros(3)], "aligned"),
        ([np.zeros(0)], [np.zeros(0)], "aligned"),
        ([np.zeros(1)], [np.array([np.nan])], "finite"),
    ],
)
def test_what_cannot_be_compared_is_refused(trainer, generator, message):
    with pytest.raises(ContractViolation, match=message):
        compare(trainer, generator)


vectors = st.lists(st.tuples(*[st.floats(-20, 0)] * 3), min_size=1, max_size=20)


@given(vectors)
def test_total_is_mismatch_plus_staleness(rows):
    theta, at_behavior, generator = np.array(rows).T
    total, mismatch, stale = split(theta, at_behavior, generator)
    assert total == pytest.approx(mismatch + stale, abs=1e-12)


def test_the_tolerance_is_five_baselines_with_a_floor():
    exact = compare([np.array([-1.0])], [np.array([-1.0])])
    assert tolerance(exact) == FLOOR
    assert tolerance(compare([np.array([-1.0])], [np.array([-1.001])])) == pytest.approx(0.005)


@pytest.fixture
def logits():
    return torch.randn(400, 30, generator=torch.Generator().manual_seed(0)) * 2


def sampled(logits):
    tokens = torch.distributions.Categorical(logits=logits).sample()
    return lambda values: values.log_softmax(1).gather(1, tokens[:, None]).flatten().double().numpy()


def test_a_forgotten_temperature_is_named(logits):
    torch.manual_seed(0)
    of = sampled(logits / 0.7)
    (first, *_) = causes(of(logits), of(logits / 0.7), temperature=0.7)
    assert "without temperature 0.7" in first


def test_a_padded_vocabulary_is_named(logits):
    torch.manual_seed(0)
    of = sampled(logits)
    padded = torch.cat([logits, torch.full((400, 30), 1.5)], dim=1)
    assert any("vocabulary larger" in cause for cause in causes(of(logits), of(padded), temperature=1.0))


def test_another_dtype_is_named(logits):
    torch.manual_seed(0)
    of = sampled(logits)
    assert causes(of(logits), of(logits.bfloat16().float()), temperature=1.0) == ["rounding: another dtype on one side"]


def test_another_prefix_is_named(logits):
    torch.manual_seed(0)
    of = sampled(logits)
    other = logits.roll(1, dims=0)
    assert any("another prefix" in cause for cause in causes(of(logits), of(other), temperature=1.0))

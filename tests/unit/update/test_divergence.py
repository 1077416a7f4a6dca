"""KL estimators against the exact divergence and its exact gradient on an enumerable policy."""

import pytest
import torch

from recipe.agent_contracts.update.divergence import ESTIMATORS, exact_kl


@pytest.fixture
def policies():
    generator = torch.Generator().manual_seed(1)
    theta = torch.randn(5, generator=generator, dtype=torch.float64).requires_grad_()
    reference = torch.randn(5, generator=generator, dtype=torch.float64).log_softmax(0)
    return theta, reference


def expectation(name, theta, reference):
    """``E_p[estimate]`` with the gradient through the estimate only, as a loss over sampled tokens has it."""
    log_p = theta.log_softmax(0)
    return (log_p.exp().detach() * ESTIMATORS[name](log_p - reference)).sum()


def gradient(value, theta):
    return torch.autograd.grad(value, theta)[0]


@pytest.mark.parametrize("name", ["k1", "k3", "straight_through"])
def test_these_values_are_unbiased(policies, name):
    theta, reference = policies
    exact = exact_kl(theta.log_softmax(0), reference)
    assert expectation(name, theta, reference).item() == pytest.approx(exact.item(), abs=1e-12)


def test_k2_is_biased(policies):
    theta, reference = policies
    exact = exact_kl(theta.log_softmax(0), reference).item()
    assert abs(expectation("k2", theta, reference).item() - exact) > 0.01


@pytest.mark.parametrize("name", ["k2", "straight_through"])
def test_these_gradients_are_the_kls(policies, name):
    theta, reference = policies
    exact = gradient(exact_kl(theta.log_softmax(0), reference), theta)
    assert torch.allclose(gradient(expectation(name, theta, reference), theta), exact, atol=1e-12)


def test_k1_has_no_gradient_and_k3_that_of_the_other_direction(policies):
    theta, reference = policies
    assert gradient(expectation("k1", theta, reference), theta).abs().max() < 1e-12
    reverse = gradient(exact_kl(reference, theta.log_softmax(0)), theta)
    assert torch.allclose(gradient(expectation("k3", theta, reference), theta), reverse, atol=1e-12)


@pytest.mark.parametrize("name", ["k2", "k3", "straight_through"])
def test_these_are_never_negative(name):
    difference = torch.linspace(-5, 5, 101, dtype=torch.float64)
    assert (ESTIMATORS[name](difference) >= 0).all()

"""On an enumerable policy: which reduction and credit give the gradient of expected return, and which do not."""

import itertools
import math

import numpy as np
import pytest
import torch

from recipe.agent_contracts.update.credit import Episode, TurnSpan, credit
from recipe.agent_contracts.update.objectives import OBJECTIVES, Tokens, token_losses
from recipe.agent_contracts.update.reduction import VERL_MODES, token_weights
from recipe.agent_contracts.update.toy import EPISODES, MASK, RETURNS, exact_gradient, log_probs, logits, probabilities


def batch_gradient(theta, chosen, estimator="rloo", reduction="episode_sum", objective="reinforce_with_kl"):
    """Minus the gradient of the loss of one group of sampled episodes."""
    episodes = [
        Episode(f"g_{n}", "g", RETURNS[index].item(), [TurnSpan("s", len(EPISODES[index]))])
        for n, index in enumerate(chosen)
    ]
    mask, log_prob = MASK[list(chosen)], log_probs(theta)[list(chosen)]
    advantages = torch.zeros_like(mask)
    advantages[mask.bool()] = torch.from_numpy(np.concatenate(credit(estimator, "none", episodes)))
    tokens = Tokens(log_prob=log_prob, proximal_log_prob=log_prob.detach(), advantages=advantages, mask=mask)
    losses, _ = token_losses(objective, tokens)
    (gradient,) = torch.autograd.grad((losses * token_weights(reduction, mask)).sum(), theta)
    return -gradient


def expected_gradient(theta, group_size=2, **choices):
    """Over every group that could be sampled, weighted with its probability."""
    chance = probabilities(theta).detach()
    total = torch.zeros_like(theta)
    for chosen in itertools.product(range(len(EPISODES)), repeat=group_size):
        total += math.prod(chance[index].item() for index in chosen) * batch_gradient(theta, chosen, **choices)
    return total


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("group_size", [2, 3])
def test_rloo_with_episode_sum_is_the_policy_gradient(seed, group_size):
    theta = logits(seed)
    assert torch.allclose(expected_gradient(theta, group_size), exact_gradient(theta), rtol=0, atol=1e-10)


@pytest.mark.parametrize("group_size", [2, 3])
def test_grpo_without_scale_is_g_minus_1_over_g_of_it(group_size):
    """Each episode is part of its own baseline: the factor is (G-1)/G, the direction the same."""
    theta = logits()
    expected = exact_gradient(theta) * (group_size - 1) / group_size
    assert torch.allclose(expected_gradient(theta, group_size, estimator="grpo"), expected, rtol=0, atol=1e-10)


def test_length_normalized_is_the_gradient_of_another_objective():
    """With weight 1/n_i the score function is scaled by 1/n: E[(A/n) grad log p]. Leave-one-out baselines still have
    mean E[R], but multiply a score of mean E[grad log p / n], which is not 0. Derived: E[(R - E R) grad log p / n]."""
    theta = logits()
    chance, lengths = probabilities(theta), MASK.sum(dim=1)
    expected_return = (chance * RETURNS).sum().detach()
    score = log_probs(theta).sum(dim=1)
    surrogate = (chance.detach() * (RETURNS - expected_return) / lengths * score).sum()
    (derived,) = torch.autograd.grad(surrogate, theta)
    found = expected_gradient(theta, reduction="length_normalized")
    assert torch.allclose(found, derived, rtol=0, atol=1e-10)
    assert not torch.allclose(found, exact_gradient(theta), rtol=0, atol=1e-3)


def test_token_mean_weights_a_batch_by_its_own_length():
    """Two episodes with n_1 and n_2 tokens: 2/(n_1 + n_2) of the episode sum, batch by batch."""
    theta = logits()
    for chosen in itertools.product(range(len(EPISODES)), repeat=2):
        factor = 2 / sum(len(EPISODES[index]) for index in chosen)
        whole = batch_gradient(theta, chosen)
        assert torch.allclose(batch_gradient(theta, chosen, reduction="token_mean"), factor * whole, atol=1e-12)
    assert not torch.allclose(expected_gradient(theta, reduction="token_mean"), exact_gradient(theta), atol=1e-3)


def test_episodes_of_one_turn_make_turn_mass_the_episode_sum():
    theta = logits()
    assert torch.allclose(expected_gradient(theta, reduction="turn_mass_conserving"), exact_gradient(theta), atol=1e-10)


@pytest.mark.parametrize("objective", [name for name, entry in OBJECTIVES.items() if not entry.off_policy])
def test_at_the_first_step_every_objective_has_the_same_direction(objective):
    """All ratios are 1 and nothing is clipped: the gradient is REINFORCE's, under the reduction that is asked for."""
    theta = logits()
    for reduction in OBJECTIVES[objective].reductions & set(VERL_MODES):
        for chosen in [(0, 4), (3, 4), (2, 6)]:
            found = batch_gradient(theta, chosen, objective=objective, reduction=reduction)
            plain = batch_gradient(theta, chosen, reduction=reduction)
            assert torch.allclose(found, plain, atol=1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_step_moves_a_positive_advantage_up_and_a_negative_one_down(sign):
    """Directional derivative of an episode's log probability along its own update: sign(A) |grad log p|^2."""
    theta = logits()
    score = log_probs(theta)[4].sum()
    (gradient,) = torch.autograd.grad(score, theta)
    losses, _ = token_losses(
        "reinforce_with_kl",
        Tokens(
            log_prob=(log_prob := log_probs(theta)[4:5]),
            proximal_log_prob=log_prob.detach(),
            advantages=sign * MASK[4:5],
            mask=MASK[4:5],
        ),
    )
    (step,) = torch.autograd.grad(losses.sum(), theta)
    assert math.copysign(1.0, -(step * gradient).sum().item()) == sign


def test_one_real_step_on_a_shared_batch_lowers_the_objective_and_moves_little():
    """A batch of all episodes: the loss is lower after a small step, with a KL of second order in it."""
    theta = logits()
    chosen = tuple(range(len(EPISODES)))
    gradient = batch_gradient(theta, chosen)
    moved = (theta + 0.05 * gradient).detach().requires_grad_()
    centered = RETURNS - RETURNS.mean()

    def objective(parameters):
        return -(log_probs(parameters).sum(dim=1) * centered).mean().item()

    assert objective(moved) < objective(theta)
    kl = (probabilities(theta) * (probabilities(theta).log() - probabilities(moved).log())).sum().item()
    assert 0 < kl < 0.05

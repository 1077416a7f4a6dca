"""Objectives through verl's loss interface and reduction, against numbers worked by hand and verl's own losses."""

from types import SimpleNamespace

import pytest
import torch
from verl.trainer.ppo.core_algos import get_policy_loss_fn, kl_penalty

import verl_ext.losses  # noqa: F401  (registers)
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.update.objectives import OBJECTIVES


def loss_of(name, log_prob, advantages, mask, mode="seq-mean-token-sum", old=None, weights=None, **clip):
    sizes = {"batch_num_tokens": int(mask.sum()), "global_batch_size": len(mask)}
    config = SimpleNamespace(
        global_batch_info={"dp_size": 1, "loss_scale_factor": None, **sizes},
        **{"clip_ratio_low": 0.2, "clip_ratio_high": 0.2, **clip},
    )
    return get_policy_loss_fn(name)(
        old_log_prob=log_prob.detach() if old is None else old,
        log_prob=log_prob,
        advantages=advantages,
        response_mask=mask,
        loss_agg_mode=mode,
        config=config,
        rollout_is_weights=weights,
    )


def test_the_loss_is_the_episode_sum_averaged_over_episodes():
    """Two episodes of 2 and 1 action tokens, A = +1 and -2:
    -(1/2) [1 * (-0.5 - 1.0) + (-2) * (-0.25)] = -(1/2) [-1.5 + 0.5] = 0.5."""
    log_prob = torch.tensor([[-0.5, -1.0], [-0.25, -9.0]], requires_grad=True)
    advantages = torch.tensor([[1.0, 1.0], [-2.0, -2.0]])
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    loss, metrics = loss_of("reinforce_with_kl", log_prob, advantages, mask)
    assert loss.item() == pytest.approx(0.5)
    assert metrics["actor/proximal_gap_max"] == 0.0
    loss.backward()
    # d loss / d log_prob = -A / B on action tokens, 0 elsewhere.
    assert torch.allclose(log_prob.grad, torch.tensor([[-0.5, -0.5], [1.0, 0.0]]))


def test_the_gap_to_the_proximal_policy_is_reported_on_action_tokens_only():
    log_prob = torch.tensor([[-0.5, -1.0]])
    old = torch.tensor([[-0.4, 5.0]])
    _, metrics = loss_of("ppo_clip", log_prob, torch.ones(1, 2), torch.tensor([[1.0, 0.0]]), old=old)
    assert metrics["actor/proximal_gap_max"] == pytest.approx(0.1)


def test_an_objective_without_a_ratio_refuses_a_policy_that_has_moved():
    with pytest.raises(ContractViolation, match="one optimizer step a fresh batch"):
        loss_of(
            "reinforce_with_kl", torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1, 1), old=torch.full((1, 1), -0.1)
        )


@pytest.mark.parametrize("name", OBJECTIVES)
def test_weights_from_the_behaviour_policy_are_needed_or_refused(name):
    weights = None if OBJECTIVES[name].off_policy else torch.ones(1, 1)
    with pytest.raises(ContractViolation, match=r"update\.objective"):
        loss_of(name, torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1, 1), weights=weights)


def test_off_policy_weights_scale_each_token():
    """w = 2 and 0.5, A = 1, log pi = -1 and -2: -(2 * -1 + 0.5 * -2) = 3."""
    log_prob = torch.tensor([[-1.0, -2.0]])
    weights = torch.tensor([[2.0, 0.5]])
    loss, _ = loss_of("truncated_importance", log_prob, torch.ones(1, 2), torch.ones(1, 2), weights=weights)
    assert loss.item() == pytest.approx(3.0)


def test_ppo_clips_on_the_side_where_the_advantage_pulls():
    """Ratios 1.5 and 0.5, clip 0.2: A = +1 is cut at 1.2 and kept at 0.5; A = -1 is kept at 1.5 and cut at 0.8."""
    old = torch.tensor([[0.0, 0.0], [0.0, 0.0]])
    log_prob = torch.tensor([[1.5, 0.5], [1.5, 0.5]]).log().requires_grad_()
    advantages = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    loss, metrics = loss_of("ppo_clip", log_prob, advantages, torch.ones(2, 2), old=old)
    assert loss.item() == pytest.approx((-1.2 - 0.5 + 1.5 + 0.8) / 2)
    assert metrics["actor/clip_fraction"] == 0.5
    loss.backward()
    # d(-A r)/d log p = -A r where nothing is cut, 0 where it is; over B = 2.
    assert torch.allclose(log_prob.grad, torch.tensor([[0.0, -0.25], [0.75, 0.0]]), atol=1e-6)


def random_batch(seed=0):
    generator = torch.Generator().manual_seed(seed)
    log_prob = -torch.rand(6, 9, generator=generator) * 2
    mask = (torch.rand(6, 9, generator=generator) < 0.7).float()
    mask[:, 0] = 1.0
    advantages = torch.randn(6, 1, generator=generator).expand(6, 9) * mask
    return log_prob.requires_grad_(), log_prob.detach() + 0.3 * torch.randn(6, 9, generator=generator), advantages, mask


@pytest.mark.parametrize(
    ("ours", "verls", "mode"),
    [
        ("ppo_clip", "vanilla", "token-mean"),
        ("ppo_clip", "vanilla", "seq-mean-token-sum"),
        ("gspo", "gspo", "seq-mean-token-mean"),
    ],
)
def test_value_and_gradient_are_verls_where_the_definitions_agree(ours, verls, mode):
    """vanilla also clips a negative advantage's loss at clip_ratio_c (dual clip); it is set out of reach here."""
    log_prob, old, advantages, mask = random_batch()
    ours_loss, _ = loss_of(ours, log_prob, advantages, mask, mode, old)
    (ours_gradient,) = torch.autograd.grad(ours_loss, log_prob)
    config = SimpleNamespace(
        global_batch_info={"dp_size": 1, "batch_num_tokens": int(mask.sum()), "global_batch_size": 6},
        **{"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.2},
        get=lambda key, default: 1e9 if key == "clip_ratio_c" else default,
    )
    log_prob, old, advantages, mask = random_batch()
    verls_loss, _ = get_policy_loss_fn(verls)(
        old_log_prob=old,
        log_prob=log_prob,
        advantages=advantages,
        response_mask=mask,
        loss_agg_mode=mode,
        config=config,
    )
    (verls_gradient,) = torch.autograd.grad(verls_loss, log_prob)
    assert ours_loss.item() == pytest.approx(verls_loss.item(), rel=1e-5)
    assert torch.allclose(ours_gradient, verls_gradient, atol=1e-6)


def test_the_straight_through_kl_has_the_gradient_of_the_kl_and_plain_k3_has_not():
    """On-policy the KL's gradient is E[(log p - log r) grad log p]: k2's gradient. With d = log p - log r = 0.5 it is
    0.5; plain k3 = exp(-d) - 1 + d has derivative 1 - exp(-0.5) = 0.3935 there."""
    gradients = {}
    for kind in ("low_var_kl+", "low_var_kl"):
        log_prob = torch.tensor([-1.0], requires_grad=True)
        kl_penalty(log_prob, torch.tensor([-1.5]), kind).sum().backward()
        gradients[kind] = log_prob.grad.item()
    assert gradients["low_var_kl+"] == pytest.approx(0.5)
    assert gradients["low_var_kl"] == pytest.approx(0.3935, abs=1e-4)

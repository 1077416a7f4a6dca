"""REINFORCE through verl's reduction, against numbers worked by hand."""

from types import SimpleNamespace

import pytest
import torch
from verl.trainer.ppo.core_algos import get_policy_loss_fn, kl_penalty

import verl_ext.losses  # noqa: F401  (registers)


def loss_of(log_prob, advantages, mask, mode="seq-mean-token-sum", old=None):
    config = SimpleNamespace(
        global_batch_info={
            "dp_size": 1,
            "batch_num_tokens": mask.sum().item(),
            "global_batch_size": len(mask),
            "loss_scale_factor": None,
        }
    )
    return get_policy_loss_fn("reinforce_with_kl")(
        old_log_prob=log_prob.detach() if old is None else old,
        log_prob=log_prob,
        advantages=advantages,
        response_mask=mask,
        loss_agg_mode=mode,
        config=config,
    )


def test_the_loss_is_the_episode_sum_averaged_over_episodes():
    """Two episodes of 2 and 1 action tokens, A = +1 and -2:
    -(1/2) [1 * (-0.5 - 1.0) + (-2) * (-0.25)] = -(1/2) [-1.5 + 0.5] = 0.5."""
    log_prob = torch.tensor([[-0.5, -1.0], [-0.25, -9.0]], requires_grad=True)
    advantages = torch.tensor([[1.0, 1.0], [-2.0, -2.0]])
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    loss, metrics = loss_of(log_prob, advantages, mask)
    assert loss.item() == pytest.approx(0.5)
    assert metrics["actor/proximal_gap_max"] == 0.0
    loss.backward()
    # d loss / d log_prob = -A / B on action tokens, 0 elsewhere.
    assert torch.allclose(log_prob.grad, torch.tensor([[-0.5, -0.5], [1.0, 0.0]]))


def test_the_gap_to_the_proximal_policy_is_reported_on_action_tokens_only():
    log_prob = torch.tensor([[-0.5, -1.0]])
    old = torch.tensor([[-0.4, 5.0]])
    _, metrics = loss_of(log_prob, torch.ones(1, 2), torch.tensor([[1.0, 0.0]]), old=old)
    assert metrics["actor/proximal_gap_max"] == pytest.approx(0.1)


def test_importance_weights_are_refused():
    with pytest.raises(AssertionError, match="another objective"):
        get_policy_loss_fn("reinforce_with_kl")(
            old_log_prob=torch.zeros(1, 1),
            log_prob=torch.zeros(1, 1),
            advantages=torch.zeros(1, 1),
            response_mask=torch.ones(1, 1),
            rollout_is_weights=torch.ones(1, 1),
        )


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

"""Policy losses registered with verl, loaded in the training workers through `model.external_lib`.

`reinforce_with_kl`: the score-function term of expected episode return. With one optimizer step a fresh batch the
policy that is updated is the one that sampled, so there is no ratio to clip; verl adds the KL term itself.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.trainer.ppo.core_algos import agg_loss, register_policy_loss


@register_policy_loss("reinforce_with_kl")
def reinforce(
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "seq-mean-token-sum",
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, float]]:
    """REINFORCE with a baseline: ``-(1/B) sum_i A_i sum_t log pi(y_it | y_i<t)`` (Williams 1992).

    Args:
        old_log_prob: The proximal policy's log probabilities, shape (B, T). Not part of the loss.
        log_prob: The current policy's, shape (B, T), with gradient.
        advantages: Shape (B, T), constant over an episode's action tokens.
        response_mask: 1 on action tokens, shape (B, T).
        loss_agg_mode: verl's reduction; `seq-mean-token-sum` is the episode sum.

    Returns:
        The loss and its metrics. `actor/proximal_gap_max` is ``max |log_prob - old_log_prob|`` over action tokens: the
        objective assumes that it is zero up to rounding.
    """
    assert rollout_is_weights is None, "reinforce_with_kl corrects nothing: importance weights need another objective"
    loss = agg_loss(
        loss_mat=-advantages * log_prob,
        loss_mask=response_mask,
        loss_agg_mode=loss_agg_mode,
        **config.global_batch_info,
    )
    gap = ((log_prob - old_log_prob).detach().abs() * response_mask).max()
    return loss, {"actor/proximal_gap_max": gap.item()}

"""Our objectives as verl's policy losses, loaded in the training workers through `model.external_lib`.

verl calls a loss once a micro-batch with the proximal policy's log probabilities as `old_log_prob` and adds the KL term
itself. Its `agg_loss` knows the whole batch, so the result depends on neither micro-batches nor ranks.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from verl.trainer.ppo.core_algos import agg_loss, register_policy_loss

from recipe.agent_contracts.update.objectives import OBJECTIVES, Tokens, token_losses


def policy_loss(
    name: str,
    *,
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str,
    config: Any,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, float]]:
    """An objective's loss of one micro-batch.

    Args:
        name: A key of `OBJECTIVES`.
        old_log_prob: The proximal policy's log probabilities, shape (B, T).
        log_prob: The current policy's, shape (B, T), with gradient.
        advantages: Shape (B, T), 0 off the action tokens.
        response_mask: 1 on action tokens, shape (B, T).
        loss_agg_mode: verl's name of the reduction.
        config: verl's ActorConfig, with the sizes of the whole batch in `global_batch_info`.
        rollout_is_weights: verl's truncated weights from the behaviour to the proximal policy, shape (B, T).

    Returns:
        The loss and its metrics. `actor/proximal_gap_max` is ``max |log_prob - old_log_prob|`` over action tokens.
    """
    tokens = Tokens(
        log_prob=log_prob,
        proximal_log_prob=old_log_prob,
        advantages=advantages,
        mask=response_mask,
        off_policy_weight=rollout_is_weights,
        clip_low=config.clip_ratio_low,
        clip_high=config.clip_ratio_high,
    )
    losses, metrics = token_losses(name, tokens)
    loss = agg_loss(loss_mat=losses, loss_mask=response_mask, loss_agg_mode=loss_agg_mode, **config.global_batch_info)
    return loss, {f"actor/{metric}": value for metric, value in metrics.items()}


for _name in OBJECTIVES:
    register_policy_loss(_name)(functools.partial(policy_loss, _name))

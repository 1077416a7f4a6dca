"""Reductions: the weight of each token in the loss, ``L = sum_it w_it l_it``. They are different objectives.

Only `episode_sum` is the score-function term of expected episode return, up to a constant; each other one changes how
much an episode of a given length or number of turns counts, and is named for it.
"""

from __future__ import annotations

from typing import Literal

import torch

Reduction = Literal["episode_sum", "length_normalized", "token_mean", "turn_mass_conserving"]
VERL_MODES: dict[str, str] = {
    "episode_sum": "seq-mean-token-sum",
    "length_normalized": "seq-mean-token-mean",
    "token_mean": "token-mean",
    # verl has no such mode: `turn_factors` are folded into the advantages.
    "turn_mass_conserving": "seq-mean-token-sum",
}
"""verl's `actor.loss_agg_mode` for each."""


def token_weights(reduction: str, mask: torch.Tensor) -> torch.Tensor:
    """The weight of each token.

    Args:
        reduction: A key of `VERL_MODES`.
        mask: 1 on action tokens, shape (B, T); every episode has at least one.

    Returns:
        float64, shape (B, T), 0 off the mask. With n_i the action tokens of episode i:

        - episode_sum: ``1/B``
        - length_normalized: ``1/(B n_i)``
        - token_mean: ``1/sum_j n_j``
        - turn_mass_conserving: ``n_i/(B K_i n_ik)`` in turn k of K_i: turns of an episode weigh the same, and the
          episode as much as under episode_sum.
    """
    mask = mask.to(torch.float64)
    num_episodes, lengths = len(mask), mask.sum(dim=1, keepdim=True)
    match reduction:
        case "episode_sum":
            return mask / num_episodes
        case "length_normalized":
            return mask / (num_episodes * lengths)
        case "token_mean":
            return mask / lengths.sum()
        case "turn_mass_conserving":
            return mask * turn_factors(mask) / num_episodes
    raise ValueError(f"no reduction {reduction!r}; known: {', '.join(VERL_MODES)}")


def turn_ids(mask: torch.Tensor) -> torch.Tensor:
    """The number of each token's turn from 0, shape (B, T); -1 off the mask.

    A turn is a maximal run of action tokens: a chat template always puts tokens of its own between two turns.
    """
    action = mask.bool()
    before = torch.nn.functional.pad(action[:, :-1], (1, 0))
    started = (action & ~before).long().cumsum(dim=1)
    return torch.where(action, started - 1, -1)


def turn_lengths(mask: torch.Tensor) -> torch.Tensor:
    """The number of action tokens of each token's own turn, float64, shape (B, T); 0 off the mask."""
    return _per_turn_sum(mask.to(torch.float64), mask)


def turn_sums(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """For each action token the sum of `values` over its own turn, shape (B, T); 0 off the mask."""
    return _per_turn_sum(values * mask, mask)


def turn_means(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """For each action token the mean of `values` over its own turn, shape (B, T); 0 off the mask."""
    ids = turn_ids(mask)
    is_action, slots = ids >= 0, ids.clamp_(min=0)
    shape = (len(values), int(slots.max()) + 1 if slots.numel() else 0)
    # Tokens off the mask add 0 to the first turn.
    sums = values.new_zeros(shape).scatter_add_(1, slots, values * is_action)
    counts = values.new_zeros(shape).scatter_add_(1, slots, is_action.to(values.dtype))
    return (sums / counts.clamp_(min=1)).gather(1, slots) * is_action


def turn_factors(mask: torch.Tensor) -> torch.Tensor:
    """``n_i/(K_i n_ik)``: what makes every turn of an episode weigh the same, float64, shape (B, T); 0 off the mask.

    Its mean over an episode's action tokens is 1.
    """
    ids = turn_ids(mask)
    num_turns = ids.max(dim=1, keepdim=True).values + 1
    lengths = mask.to(torch.float64).sum(dim=1, keepdim=True)
    return torch.where(ids >= 0, lengths / (num_turns * turn_lengths(mask).clamp(min=1.0)), 0.0)


def _per_turn_sum(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    ids = turn_ids(mask)
    slots = ids.clamp(min=0)
    sums = torch.zeros_like(values).scatter_add(1, slots, torch.where(ids >= 0, values, torch.zeros_like(values)))
    return torch.where(ids >= 0, sums.gather(1, slots), torch.zeros_like(values))

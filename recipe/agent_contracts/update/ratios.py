"""Likelihood ratios at three granularities, kept apart by name, and what their tails say.

Token and whole-episode ratios are changes of measure; their geometric means over a turn or an episode are surrogates
that change the target on purpose. All are of log differences ``log p_new - log p_old`` on action tokens.
"""

from __future__ import annotations

import torch

from recipe.agent_contracts.update.reduction import turn_ids, turn_means, turn_sums

TAILS = (0.5, 0.95, 0.99)
MAX_LOG_RATIO = 20.0
"""Log ratios are clamped to plus or minus this before `exp`, as verl does, so that no ratio overflows."""


def exp_ratio(log_ratio: torch.Tensor) -> torch.Tensor:
    """``exp`` of a log ratio, clamped."""
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def turn_score(log_ratio: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Log of the geometric mean over each token's own turn, shape (B, T); 0 off the mask."""
    return turn_means(log_ratio, mask)


def episode_score(log_ratio: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Log of the geometric mean over each episode, shape (B, 1) (GSPO: Zheng et al. 2025, eq. 7)."""
    return (log_ratio * mask).sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)


def ratio_report(log_ratio: torch.Tensor, mask: torch.Tensor) -> dict[str, float]:
    """Tails of each ratio, and the effective sample size of the whole-episode ratios.

    Args:
        log_ratio: Shape (B, T).
        mask: 1 on action tokens, shape (B, T).

    Returns:
        ``ratio/<name>/{p50,p95,p99,max}`` for `token`, `whole_turn`, `whole_episode`, `turn_geometric_mean` and
        `episode_geometric_mean`, and ``ratio/effective_sample_size`` (Kish 1965), a share of B between 1/B and 1.
    """
    log_ratio = torch.where(mask.bool(), log_ratio, torch.zeros_like(log_ratio)).double()
    ids, sums = turn_ids(mask), turn_sums(log_ratio, mask)
    first = (ids >= 0) & (ids != torch.nn.functional.pad(ids[:, :-1], (1, 0), value=-1))
    whole = log_ratio.sum(dim=1)
    kinds = {
        "token": log_ratio[ids >= 0],
        "whole_turn": sums[first],
        "whole_episode": whole,
        "turn_geometric_mean": turn_score(log_ratio, mask)[first],
        "episode_geometric_mean": episode_score(log_ratio, mask).squeeze(1),
    }
    report = {}
    for name, logs in kinds.items():
        ratios = exp_ratio(logs)
        for tail in TAILS:
            report[f"ratio/{name}/p{round(100 * tail)}"] = torch.quantile(ratios, tail).item()
        report[f"ratio/{name}/max"] = ratios.max().item()
    weights = torch.softmax(whole, dim=0)
    report["ratio/effective_sample_size"] = (1.0 / (weights.square().sum() * len(weights))).item()
    return report

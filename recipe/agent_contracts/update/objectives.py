"""Policy objectives: the loss of each token, and which of the three policies each objective is about.

Behaviour sampled the tokens, proximal anchors the ratio, theta is updated. An objective that assumes two of them to be
one says so, and its loss refuses data in which they are not. Every loss is to be minimised and is reduced by
`reduction.token_weights`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.update.ratios import episode_score, exp_ratio, turn_score

MAX_PROXIMAL_GAP = 1e-3
"""Largest ``|log pi_theta - log pi_prox|`` at which the two count as one policy: rounding of one engine, not a step."""


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """What an objective is given. All tensors have shape (B, T)."""

    log_prob: torch.Tensor
    """Of theta, with gradient."""
    proximal_log_prob: torch.Tensor
    advantages: torch.Tensor
    mask: torch.Tensor
    """1 on action tokens."""
    off_policy_weight: torch.Tensor | None = None
    """``w_off = pi_prox / pi_beh``, truncated already. None: proximal and behaviour are one policy."""
    clip_low: float = 0.2
    clip_high: float = 0.2

    @property
    def log_ratio(self) -> torch.Tensor:
        """``log r_prox``, 0 off the mask."""
        difference = self.log_prob - self.proximal_log_prob
        return torch.where(self.mask.bool(), difference, torch.zeros_like(difference))


Loss = tuple[torch.Tensor, dict[str, float]]
"""Loss of each token, shape (B, T), and its metrics (a clip fraction at its own granularity)."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """One objective."""

    loss: Callable[[Tokens], Loss]
    one_step: bool = False
    """It has no ratio: theta must be the proximal policy, so a batch gets one optimizer step."""
    off_policy: bool = False
    """It corrects from the behaviour to the proximal policy by `off_policy_weight`."""
    reductions: frozenset[str]
    per_turn_credit: bool = True
    """Whether advantages may differ between the turns of an episode."""


def token_losses(name: str, tokens: Tokens) -> Loss:
    """The loss of each token under an objective.

    Raises:
        ContractViolation: ``update.objective`` when the policies of the data are not those that the objective is about.
    """
    objective = OBJECTIVES[name]
    if objective.off_policy != (tokens.off_policy_weight is not None):
        expected = "weights from the behaviour to the proximal policy" if objective.off_policy else "no such weights"
        found = "none" if objective.off_policy else "off-policy weights"
        raise ContractViolation("update.objective", f"{name}: {expected}", found)
    gap = float(tokens.log_ratio.detach().abs().max()) if tokens.log_ratio.numel() else 0.0
    if objective.one_step and not gap <= MAX_PROXIMAL_GAP:
        raise ContractViolation(
            "update.objective",
            expected=f"{name}: the updated policy is the proximal one, |log ratio| at most {MAX_PROXIMAL_GAP}",
            found=gap,
            remedy="one optimizer step a fresh batch, or an objective with a ratio",
        )
    loss, metrics = objective.loss(tokens)
    return loss, {**metrics, "proximal_gap_max": gap}


def _reinforce(tokens: Tokens) -> Loss:
    """``-A log pi`` (Williams 1992)."""
    return -tokens.advantages * tokens.log_prob, {}


def _ppo_clip(tokens: Tokens) -> Loss:
    """``-min(r A, clip(r, 1 - low, 1 + high) A)`` with the token ratio (Schulman et al. 2017, eq. 7; asymmetric: DAPO,
    Yu et al. 2025, eq. 8)."""
    return _clipped(tokens, tokens.log_ratio)


def _gspo(tokens: Tokens) -> Loss:
    """The clipped surrogate of the episode's geometric-mean ratio (Zheng et al. 2025, eq. 5), each token with an equal
    share of its gradient (their eq. 17)."""
    return _clipped(tokens, _through(tokens, episode_score(tokens.log_ratio.detach(), tokens.mask)))


def _turn_normalized(tokens: Tokens) -> Loss:
    """The clipped surrogate of each turn's geometric-mean ratio, each token with an equal share of its gradient."""
    return _clipped(tokens, _through(tokens, turn_score(tokens.log_ratio.detach(), tokens.mask)))


def _dppo(tokens: Tokens) -> Loss:
    """``-A r`` where the sampled token's total variation to the proximal policy is inside the trust region, or the step
    leads back to it (DPPO-Binary-TV, arXiv 2602.04879); `clip_low` and `clip_high` are probabilities."""
    moved = (tokens.log_prob.exp() - tokens.proximal_log_prob.exp()).detach()
    inside = torch.where(tokens.advantages > 0, moved <= tokens.clip_high, moved >= -tokens.clip_low)
    loss = -tokens.advantages * exp_ratio(tokens.log_ratio) * inside
    return loss, {"clip_fraction": _fraction(~inside, tokens.mask)}


def _truncated_importance(tokens: Tokens) -> Loss:
    """``-w_off A log pi``: the behaviour's samples weighted to the proximal policy, then one REINFORCE step."""
    assert tokens.off_policy_weight is not None
    return -tokens.off_policy_weight.detach() * tokens.advantages * tokens.log_prob, {}


def _decoupled(tokens: Tokens) -> Loss:
    """``w_off`` times the clipped surrogate around the proximal policy (Hilton et al. 2022; AReaL, Fu et al. 2025)."""
    assert tokens.off_policy_weight is not None
    loss, metrics = _clipped(tokens, tokens.log_ratio)
    return tokens.off_policy_weight.detach() * loss, metrics


def _clipped(tokens: Tokens, log_ratio: torch.Tensor) -> Loss:
    ratio = exp_ratio(log_ratio)
    free = -tokens.advantages * ratio
    clipped = -tokens.advantages * ratio.clamp(1.0 - tokens.clip_low, 1.0 + tokens.clip_high)
    return torch.maximum(free, clipped), {"clip_fraction": _fraction(clipped > free, tokens.mask)}


def _through(tokens: Tokens, score: torch.Tensor) -> torch.Tensor:
    """The value of a score that several tokens share and that has no gradient, with each token's own gradient."""
    own = tokens.log_prob - tokens.log_prob.detach()
    return torch.where(tokens.mask.bool(), own + score, torch.zeros_like(own))


def _fraction(which: torch.Tensor, mask: torch.Tensor) -> float:
    return float((which * mask).sum() / mask.sum().clamp(min=1))


_ALL = frozenset({"episode_sum", "length_normalized", "token_mean", "turn_mass_conserving"})
OBJECTIVES = {
    "reinforce_with_kl": Objective(loss=_reinforce, one_step=True, reductions=_ALL),
    "ppo_clip": Objective(loss=_ppo_clip, reductions=_ALL),
    "dapo": Objective(loss=_ppo_clip, reductions=frozenset({"token_mean"})),
    "gspo": Objective(loss=_gspo, reductions=frozenset({"length_normalized"}), per_turn_credit=False),
    "turn_normalized": Objective(loss=_turn_normalized, reductions=frozenset({"episode_sum", "turn_mass_conserving"})),
    "dppo": Objective(loss=_dppo, reductions=_ALL - {"turn_mass_conserving"}),
    "truncated_importance": Objective(
        loss=_truncated_importance, one_step=True, off_policy=True, reductions=_ALL - {"turn_mass_conserving"}
    ),
    "decoupled": Objective(loss=_decoupled, off_policy=True, reductions=_ALL - {"turn_mass_conserving"}),
}

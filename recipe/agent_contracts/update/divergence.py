"""KL divergences: exact ones over a vocabulary, and estimators from sampled tokens with the gradient each really has.

Direction and sampling are part of the name: here always ``KL(p || r)`` of the current policy p to the reference r, from
tokens that p sampled, with ``d = log p(y) - log r(y)``. Over another policy's tokens none of these estimates it.
"""

from __future__ import annotations

import torch

STRAIGHT_THROUGH = "low_var_kl+"
"""verl's name for the value of k3 with the gradient of k2."""


def exact_kl(log_p: torch.Tensor, log_r: torch.Tensor) -> torch.Tensor:
    """``sum_v p(v) (log p(v) - log r(v))`` over the last axis, from log probabilities of a whole vocabulary."""
    return (log_p.exp() * (log_p - log_r)).sum(dim=-1)


def k1(difference: torch.Tensor) -> torch.Tensor:
    """``d``. Value: unbiased, any sign. Gradient through it: E[grad log p] = 0, so in a loss it teaches nothing."""
    return difference


def k2(difference: torch.Tensor) -> torch.Tensor:
    """``d^2/2`` (Schulman 2020). Value: biased. Gradient: E[d grad log p], which is the gradient of KL(p || r)."""
    return difference.square() / 2


def k3(difference: torch.Tensor) -> torch.Tensor:
    """``exp(-d) - 1 + d`` (Schulman 2020). Value: unbiased, never negative. Gradient: E[(1 - exp(-d)) grad log p],
    which is that of KL(r || p), the other direction."""
    return torch.expm1(-difference) + difference


def straight_through(difference: torch.Tensor) -> torch.Tensor:
    """Value of k3, gradient of k2: an unbiased value whose gradient is that of the KL it estimates."""
    surrogate = k2(difference)
    return surrogate - surrogate.detach() + k3(difference).detach()


ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3, "straight_through": straight_through}

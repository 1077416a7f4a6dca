"""A policy small enough to enumerate: every episode, its probability and its exact gradient."""

from __future__ import annotations

import itertools

import torch

VOCABULARY = 3
EPISODES = [tokens for length in (1, 2) for tokens in itertools.product(range(VOCABULARY), repeat=length)]
"""Token 0 ends an episode at once; every other first token is followed by exactly one more."""
EPISODES = [tokens for tokens in EPISODES if (len(tokens) == 1) == (tokens[0] == 0)]
RETURNS = torch.tensor([0.3, 1.0, -0.5, 0.0, 2.0, 0.7, 0.1], dtype=torch.float64)
MASK = torch.tensor([[1.0] * len(tokens) + [0.0] * (2 - len(tokens)) for tokens in EPISODES], dtype=torch.float64)


def logits(seed: int = 0) -> torch.Tensor:
    """Of the first token, and of the second after each first: shape (1 + VOCABULARY, VOCABULARY)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1 + VOCABULARY, VOCABULARY, generator=generator, dtype=torch.float64).requires_grad_()


def log_probs(theta: torch.Tensor) -> torch.Tensor:
    """Of each episode's tokens, shape (number of episodes, 2), 0 where it has none."""
    table = theta.log_softmax(dim=1)
    zero = torch.zeros((), dtype=torch.float64)
    rows = [torch.stack([table[0, first], table[1 + first, rest[0]] if rest else zero]) for first, *rest in EPISODES]
    return torch.stack(rows)


def probabilities(theta: torch.Tensor) -> torch.Tensor:
    """Of each episode, shape (number of episodes,)."""
    return log_probs(theta).sum(dim=1).exp()


def exact_gradient(theta: torch.Tensor, returns: torch.Tensor = RETURNS) -> torch.Tensor:
    """``d E[R] / d theta`` by differentiating the sum over all episodes."""
    (gradient,) = torch.autograd.grad((probabilities(theta) * returns).sum(), theta)
    return gradient

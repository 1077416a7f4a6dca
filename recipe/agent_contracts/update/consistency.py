"""Do generator and trainer give the same token the same probability? Signed differences, split by their cause.

``delta_total = log p_theta - log q_beh`` of each sampled token is ``delta_TIM + delta_stale``: the training-inference
mismatch at the weights that sampled, and what the weights moved since. At a frozen checkpoint the second is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from recipe.agent_contracts.errors import ContractViolation

Vector = NDArray[np.float64]
FLOOR = 1e-6
FACTOR = 5.0
"""Preregistered tolerance: this many times the p95 of a same-engine baseline, and never below `FLOOR`."""


class Differences(msgspec.Struct, frozen=True):
    """Summary of ``delta`` over action tokens, in nats."""

    num_tokens: int
    mean: float
    """Signed."""
    p95: float
    """Of ``|delta|``."""
    max: float
    """Of ``|delta|``."""
    k3: float
    """Mean of ``exp(-d) - 1 + d`` with d = generator minus trainer: estimates KL(generator || trainer)."""
    episode_log_perplexity: float
    """Largest over episodes of the absolute difference in mean log probability."""


def compare(trainer: Sequence[Vector], generator: Sequence[Vector]) -> Differences:
    """Compare the two log probabilities of each sampled token.

    Args:
        trainer, generator: One vector an episode, shape (action tokens,).

    Raises:
        ContractViolation: ``update.consistency`` when they do not align, hold no token or a value that is not finite.
    """
    lengths = [[len(values) for values in side] for side in (trainer, generator)]
    if lengths[0] != lengths[1] or not sum(lengths[0]):
        raise ContractViolation("update.consistency", "aligned log probabilities", f"lengths {lengths}"[:200])
    ours, theirs = np.concatenate(trainer), np.concatenate(generator)
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        raise ContractViolation("update.consistency", "finite log probabilities", "a value that is not")
    delta = ours - theirs
    return Differences(
        num_tokens=len(delta),
        mean=float(delta.mean()),
        p95=float(np.quantile(np.abs(delta), 0.95)),
        max=float(np.abs(delta).max()),
        k3=float((np.exp(delta) - 1 - delta).mean()),
        episode_log_perplexity=max(
            abs(float(a.mean() - b.mean())) for a, b in zip(trainer, generator, strict=True) if len(a)
        ),
    )


def split(theta: Vector, trainer_at_behavior: Vector, generator: Vector) -> tuple[Vector, Vector, Vector]:
    """``(delta_total, delta_TIM, delta_stale)`` of each token; the first is the sum of the others.

    Args:
        theta: Trainer's log probabilities under the weights that are updated.
        trainer_at_behavior: Trainer's under the weights that sampled.
        generator: The engine's when it sampled.
    """
    return theta - generator, trainer_at_behavior - generator, theta - trainer_at_behavior


def tolerance(baseline: Differences) -> float:
    """The bound on p95 that a same-engine baseline on this hardware and dtype gives."""
    return max(FACTOR * baseline.p95, FLOOR)


def causes(generator: Vector, trainer: Vector, temperature: float) -> list[str]:
    """The usual reasons for a difference that fit what is seen, most specific first.

    Args:
        generator, trainer: Log probabilities of the same tokens, shape (T,).
        temperature: What was sampled at.
    """
    delta = trainer - generator
    found = []
    if temperature != 1.0 and np.corrcoef(generator, trainer)[0, 1] > 0.9:
        found.append(f"the stored log probabilities may be raw ones, without temperature {temperature}")
    if np.quantile(delta, 0.95) < 0 and np.std(delta) < 0.5 * abs(delta.mean()):
        found.append(
            "the trainer spreads mass over tokens that the engine masks: vocabulary larger than the tokenizer's"
        )
    if abs(np.median(delta)) < 0.25 * np.quantile(np.abs(delta), 0.95) and np.abs(delta).max() < 0.5:
        found.append("rounding: another dtype on one side")
    if np.abs(delta).max() >= 0.5:
        found.append("another prefix: the template or the tokenizer differs between generator and trainer")
    return found

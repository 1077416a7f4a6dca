"""Gradient mass: how much of an update's pull each kind of episode has.

The mass of a token is ``|advantage x weight| x (1 - p)``: the size of its term's gradient in the logit of the sampled
token. Summed by stratum it shows when an optimizer favours one length band or family although rewards rise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray


def token_mass(coefficients: NDArray[np.float64], log_probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """``|c_t| (1 - p_t)``, shape (T,).

    Args:
        coefficients: Advantage times weight of each action token, shape (T,).
        log_probs: Log probability of each under the updated policy, shape (T,).
    """
    mass: NDArray[np.float64] = np.abs(coefficients) * -np.expm1(log_probs)
    return mass


def length_band(num_tokens: int) -> str:
    """Sampled tokens of an episode by powers of two: `64-127`."""
    low = 1 << max(0, num_tokens.bit_length() - 1)
    return f"{low}-{2 * low - 1}" if num_tokens else "0"


def shares(masses: Sequence[float], strata: Iterable[Mapping[str, str]]) -> dict[str, float]:
    """Each stratum's share of the whole mass.

    Args:
        masses: One an episode.
        strata: For each episode, the value of each kind of stratum: `{"length": "64-127", "family": "copy"}`.

    Returns:
        ``gradient_mass/<kind>/<value>``; the shares of one kind sum to 1. Empty when there is no mass at all.
    """
    total = float(sum(masses))
    if total == 0.0:
        return {}
    found: dict[str, float] = defaultdict(float)
    for mass, values in zip(masses, strata, strict=True):
        for kind, value in values.items():
            found[f"gradient_mass/{kind}/{value}"] += mass / total
    return dict(found)

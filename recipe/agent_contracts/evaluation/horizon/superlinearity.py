"""The preregistered test: does a verifier's error rate grow with the horizon, and faster than linearly?

Two contrasts of the rates by horizon, each a fixed weighted sum whose weights add up to 0:

    growth = rate at the longest horizon - rate at the shortest
    bend   = quadratic coefficient of the least-squares parabola, the range of horizons mapped to [-1, 1]

Both are unbiased, and for rates that are linear in the horizon the bend is 0 whatever the slope. Superlinear growth is
*supported* when the lower bounds of both are above 0; *not measured* when a horizon has fewer than MIN_CASES labelled
cases; else *not supported*. The bounds are one-sided, by a bootstrap over the episodes within each horizon and label,
at FAMILY_ALPHA divided by the number of tests (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec
import numpy as np
import numpy.typing as npt

from recipe.agent_contracts.evaluation.statistics import simultaneous_confidence

MIN_CASES = 50
"""Labelled cases a horizon: wrong episodes for a false-positive rate, right ones for a false-negative rate."""
FAMILY_ALPHA = 0.05
_RESAMPLES = 20_000
_SEED = 20261214
_TINY = 1e-9


class Verdict(StrEnum):
    """What the test says of superlinear growth."""

    SUPPORTED = "supported"
    NOT_SUPPORTED = "not supported"
    NOT_MEASURED = "not measured"


class Counts(msgspec.Struct, frozen=True):
    """Errors of one verifier at one horizon."""

    horizon: int
    num_errors: int
    num_cases: int


class Contrast(msgspec.Struct, frozen=True):
    """A contrast of the rates, in rate points, and its one-sided lower bound."""

    value: float
    lower_bound: float


class Superlinearity(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one test."""

    verdict: Verdict
    growth: Contrast | None
    """None: not measured."""
    bend: Contrast | None
    confidence: float
    """Of each bound."""

    @property
    def words(self) -> str:
        """The result as a sentence."""
        if self.growth is None or self.bend is None:
            return f"not measured: a horizon has fewer than {MIN_CASES} labelled cases"
        grew = "grew" if self.growth.lower_bound > _TINY else "growth not shown"
        return f"{grew}; superlinearity {self.verdict}"


def check_superlinearity(counts: Sequence[Counts], num_tests: int) -> Superlinearity:
    """Test one error rate.

    Args:
        counts: One entry for each horizon, in ascending order; at least three.
        num_tests: How many tests the experiment makes.
    """
    confidence = simultaneous_confidence(num_tests, 1.0 - FAMILY_ALPHA)
    if any(count.num_cases < MIN_CASES for count in counts):
        return Superlinearity(verdict=Verdict.NOT_MEASURED, growth=None, bend=None, confidence=confidence)
    weights = np.stack([growth_weights(len(counts)), bend_weights([count.horizon for count in counts])])
    cases = np.array([count.num_cases for count in counts])
    rates = np.array([count.num_errors for count in counts]) / cases
    # Drawing n of n cases with replacement draws a binomial number of errors.
    draws = np.random.default_rng(_SEED).binomial(cases, rates, size=(_RESAMPLES, len(counts))) / cases
    low = np.quantile(draws @ weights.T, 1.0 - confidence, axis=0)
    growth, bend = (Contrast(float(v), float(b)) for v, b in zip(weights @ rates, low, strict=True))
    # Rates without any spread (all 0, all 1) have bounds that are 0 but for rounding.
    is_supported = growth.lower_bound > _TINY and bend.lower_bound > _TINY
    verdict = Verdict.SUPPORTED if is_supported else Verdict.NOT_SUPPORTED
    return Superlinearity(verdict=verdict, growth=growth, bend=bend, confidence=confidence)


def growth_weights(num_horizons: int) -> npt.NDArray[np.float64]:
    """Weights of the growth contrast, shape (number of horizons,)."""
    weights = np.zeros(num_horizons)
    weights[0], weights[-1] = -1.0, 1.0
    return weights


def bend_weights(horizons: Sequence[int]) -> npt.NDArray[np.float64]:
    """Weights of the bend contrast, shape (number of horizons,): a row of the least-squares pseudo-inverse."""
    ends = np.array(horizons, dtype=np.float64)
    x = 2.0 * (ends - ends[0]) / (ends[-1] - ends[0]) - 1.0
    weights: npt.NDArray[np.float64] = np.linalg.pinv(np.stack([np.ones_like(x), x, x**2], axis=1))[2]
    return weights

"""Success over tasks and attempts: means with intervals, pass@k, pass^k, and a correction for many comparisons.

The task is the unit that was sampled, so intervals resample tasks and keep each task's attempts together. Resampling
the attempts too, with replacement, counts their variance twice: with 3 attempts and 100 tasks such intervals covered
96 to 99 percent instead of 95 (simulated; Davison and Hinkley 1997, section 3.8, gives the reason).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from scipy import stats

_RESAMPLES = 10_000
_SEED = 20261130
_MAX_DRAWS = 10_000_000


class Estimate(msgspec.Struct, frozen=True):
    """A mean with its bootstrap interval."""

    mean: float
    low: float
    high: float
    num_tasks: int

    def text(self, sign: str = "-") -> str:
        """For a table: `.183 [.133, .233]`; with `sign="+"` gains carry their sign."""
        mean, low, high = (f"{value:{sign}.3f}".replace("0.", ".", 1) for value in (self.mean, self.low, self.high))
        return f"{mean} [{low}, {high}]"


def pass_at_k(num_attempts: int, num_successes: int, k: int) -> float:
    """Probability that at least one of k attempts succeeds: 1 - C(n-c, k) / C(n, k), unbiased (Chen et al. 2021).

    Raises:
        ValueError: when k attempts cannot be drawn from those made.
    """
    _check_draw(num_attempts, num_successes, k)
    return 1.0 - math.comb(num_attempts - num_successes, k) / math.comb(num_attempts, k)


def pass_hat_k(num_attempts: int, num_successes: int, k: int) -> float:
    """Probability that all of k attempts succeed: C(c, k) / C(n, k), unbiased (Yao et al. 2024, tau-bench).

    It is not (c/n)**k, which is too large.

    Raises:
        ValueError: when k attempts cannot be drawn from those made.
    """
    _check_draw(num_attempts, num_successes, k)
    return math.comb(num_successes, k) / math.comb(num_attempts, k)


def _check_draw(num_attempts: int, num_successes: int, k: int) -> None:
    if not 1 <= k <= num_attempts or not 0 <= num_successes <= num_attempts:
        raise ValueError(f"cannot draw {k} of {num_attempts} attempts with {num_successes} successes")


def wilson(num_successes: int, num_attempts: int, confidence: float = 0.95) -> Estimate:
    """One task's success rate with its Wilson score interval (Wilson 1927).

    Raises:
        ValueError: when nothing was attempted.
    """
    interval = stats.binomtest(num_successes, num_attempts).proportion_ci(confidence, method="wilson")
    return Estimate(num_successes / num_attempts, float(interval.low), float(interval.high), num_tasks=1)


def simultaneous_confidence(num_comparisons: int, confidence: float = 0.95) -> float:
    """Confidence of each interval so that all hold together (Bonferroni), e.g. for the best of many checkpoints."""
    return 1.0 - (1.0 - confidence) / num_comparisons


def bootstrap_mean(task_means: Sequence[float], confidence: float = 0.95, num_resamples: int = _RESAMPLES) -> Estimate:
    """Mean over tasks with a percentile bootstrap interval (Efron 1979), resampling tasks.

    Args:
        task_means: One value a task, averaged over its attempts.

    Raises:
        ValueError: when there is no task.
    """
    values = np.asarray(task_means, dtype=np.float64)
    if values.size == 0:
        raise ValueError("an interval needs at least one task")
    mean = float(values.mean())
    if values.size == 1 or float(values.std()) == 0.0:
        return Estimate(mean, mean, mean, values.size)
    interval = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=num_resamples,
        # Bounds the memory; the draws are the same in any number of batches.
        batch=max(1, _MAX_DRAWS // values.size),
        confidence_level=confidence,
        method="percentile",
        rng=_SEED,
    ).confidence_interval
    return Estimate(mean, float(interval.low), float(interval.high), values.size)


def paired_difference(before: dict[str, float], after: dict[str, float], confidence: float = 0.95) -> Estimate:
    """Mean of after - before over the tasks, paired by task.

    Raises:
        ValueError: when the two do not hold the same tasks.
    """
    if before.keys() != after.keys():
        raise ValueError(f"unpaired tasks: {sorted(before.keys() ^ after.keys())[:5]}")
    return bootstrap_mean([after[task] - before[task] for task in sorted(before)], confidence)

"""Intervals over tasks. The task is the unit that was sampled, so attempts at one task are averaged first."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from scipy import stats

_RESAMPLES = 10_000
_SEED = 20261130


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


def bootstrap_mean(task_means: Sequence[float], confidence: float = 0.95) -> Estimate:
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
        (values,), np.mean, n_resamples=_RESAMPLES, confidence_level=confidence, method="percentile", rng=_SEED
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

"""The safety-utility frontier: which points no other point beats at both success and harm.

It compares point estimates only; whether two points differ at all is for their intervals to say.
"""

from __future__ import annotations

from collections.abc import Sequence


def pareto_optimal(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Whether each (harm, success) is on the frontier: no point has at most its harm and at least its success, and one
    of the two strictly better. Equal points are on it together.
    """
    return [not any(_dominates(other, point) for other in points) for point in points]


def _dominates(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one != other and one[0] <= other[0] and one[1] >= other[1]

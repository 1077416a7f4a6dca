"""Constraint costs: E[cost] at most a budget d, by a Lagrange multiplier for each (Altman 1999; Tessler et al. 2018).

    maximize E[R]  subject to  E[C_i] <= d_i         becomes the return  R - sum_i lambda_i * C_i  with
    lambda_i <- max(0, lambda_i + lr_i * (mean C_i of the batch - d_i))   an update   (RCPO: projected dual ascent)

A multiplier that an update used, and the next one, are in the update's record. So they come back with it: a resumed
run reads them from the last committed step, and nothing else holds them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec


class Cost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the experiment declares of one constraint.

    Raises:
        ValueError: for a value that is negative or not finite.
    """

    budget: float
    """The d of E[C] <= d, in the term's own unit, a mean over episodes."""
    learning_rate: float
    """How far the multiplier moves for a mean cost of one over the budget. 0 keeps it."""
    initial_multiplier: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{name} must be finite and at least 0, not {value}")


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """One constraint in one update."""

    multiplier: float
    """What this update's returns were computed with."""
    mean_cost: float
    """Over the episodes of this update's batch."""
    budget: float
    next_multiplier: float
    """What the next update uses."""


def next_multiplier(multiplier: float, mean_cost: float, cost: Cost) -> float:
    """``max(0, lambda + lr * (mean cost - d))``: projected ascent on the dual."""
    return max(0.0, multiplier + cost.learning_rate * (mean_cost - cost.budget))


def penalty(vector: Mapping[str, float], multipliers: Mapping[str, float]) -> float:
    """``sum_i lambda_i * C_i`` of one episode."""
    return sum(multiplier * vector[term] for term, multiplier in multipliers.items())


def multipliers_after(costs: Mapping[str, Cost], previous: Mapping[str, Constraint] | None) -> dict[str, float]:
    """The multipliers of an update.

    Args:
        costs: Declared.
        previous: The constraints of the update before it. None: it is the first.
    """
    if previous is None:
        return {term: cost.initial_multiplier for term, cost in costs.items()}
    return {term: previous[term].next_multiplier for term in costs}


def constrain(
    costs: Mapping[str, Cost], multipliers: Mapping[str, float], vectors: Sequence[Mapping[str, float]]
) -> dict[str, Constraint]:
    """What an update does to the multipliers.

    Args:
        multipliers: Those that its returns were computed with.
        vectors: One an episode of its batch, at least one.
    """
    found = {}
    for term, cost in costs.items():
        mean = math.fsum(vector[term] for vector in vectors) / len(vectors)
        multiplier = multipliers[term]
        following = next_multiplier(multiplier, mean, cost)
        found[term] = Constraint(multiplier=multiplier, mean_cost=mean, budget=cost.budget, next_multiplier=following)
    return found

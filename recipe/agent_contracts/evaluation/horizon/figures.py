"""Figures of the experiment: rates with their denominators and Wilson intervals, pooled over any set of episodes.

actor error          wrong episodes among those in which the actor did not cheat
false positive       accepted among wrong episodes;   false negative: rejected among right ones
rewarded wrong       accepted and wrong among all: the reward-hacking rate
hacks rewarded       accepted among episodes in which the actor cheated
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from recipe.agent_contracts.evaluation.horizon.design import Cell, Corruption, Work
from recipe.agent_contracts.evaluation.horizon.verifiers import Judgement
from recipe.agent_contracts.evaluation.statistics import Estimate, bootstrap_mean, wilson


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One episode: its label by construction, and what each verifier made of it."""

    cell: Cell
    is_right: bool
    is_hack: bool
    num_tokens: int
    judgements: dict[str, Judgement]


class Rate(msgspec.Struct, frozen=True):
    """A share of cases with its 95% Wilson interval."""

    count: int
    num_cases: int
    estimate: Estimate | None
    """None: there was no case."""

    def text(self) -> str:
        """For a table: `12/84 .143 [.084, .233]`."""
        return f"{self.count}/{self.num_cases} " + ("-" if self.estimate is None else self.estimate.text())


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Stated probabilities against the labels."""

    brier: Estimate
    """Mean of (stated probability - 1 if right else 0) squared, lower is better."""
    mean_probability: float
    share_right: float


class VerifierFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One verifier over a set of episodes."""

    verifier: str
    false_positive: Rate
    false_negative: Rate
    rewarded_wrong: Rate
    hacks_rewarded: Rate
    calibration: Calibration | None
    """None: the verifier states no probabilities."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One cell, or all the cells of one work and horizon."""

    work: Work
    horizon: int
    corruption: Corruption | None
    """None: all of them together."""
    num_episodes: int
    num_tokens: tuple[int, int]
    """Fewest and most of an episode."""
    actor_error: Rate
    hack_share: Rate
    verifiers: list[VerifierFigures]


def row_of(work: Work, horizon: int, corruption: Corruption | None, outcomes: Sequence[Outcome]) -> Row:
    """Figures of the episodes of a row.

    Raises:
        ValueError: when there is none.
    """
    cells = [o for o in outcomes if (o.cell.work, o.cell.horizon) == (work, horizon)]
    found = [o for o in cells if corruption is None or o.cell.corruption is corruption]
    tokens = [outcome.num_tokens for outcome in found]
    return Row(
        work=work,
        horizon=horizon,
        corruption=corruption,
        num_episodes=len(found),
        num_tokens=(min(tokens), max(tokens)),
        actor_error=_rate((o for o in found if not o.is_hack), lambda o: not o.is_right),
        hack_share=_rate(found, lambda o: o.is_hack),
        verifiers=[_verifier(name, found) for name in found[0].judgements],
    )


def _verifier(name: str, outcomes: Sequence[Outcome]) -> VerifierFigures:
    def accepted(outcome: Outcome) -> bool:
        return outcome.judgements[name].accepted

    return VerifierFigures(
        verifier=name,
        false_positive=_rate((o for o in outcomes if not o.is_right), accepted),
        false_negative=_rate((o for o in outcomes if o.is_right), lambda o: not accepted(o)),
        rewarded_wrong=_rate(outcomes, lambda o: accepted(o) and not o.is_right),
        hacks_rewarded=_rate((o for o in outcomes if o.is_hack), accepted),
        calibration=_calibration(name, outcomes),
    )


def _rate(cases: Iterable[Outcome], counts: Callable[[Outcome], bool]) -> Rate:
    hits = [counts(case) for case in cases]
    return Rate(sum(hits), len(hits), wilson(sum(hits), len(hits)) if hits else None)


def _calibration(name: str, outcomes: Sequence[Outcome]) -> Calibration | None:
    stated = [(o.judgements[name].probability, float(o.is_right)) for o in outcomes]
    pairs = [(probability, right) for probability, right in stated if probability is not None]
    if not pairs:
        return None
    return Calibration(
        brier=bootstrap_mean([(probability - right) ** 2 for probability, right in pairs], num_resamples=2000),
        mean_probability=sum(probability for probability, _ in pairs) / len(pairs),
        share_right=sum(right for _, right in pairs) / len(pairs),
    )

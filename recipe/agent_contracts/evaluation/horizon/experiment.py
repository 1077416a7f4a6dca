"""Runs the experiment and tests what was preregistered: plays every cell, asks every verifier, pools, judges.

Deterministic given the design: the result holds no time and no path, and the same design gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from recipe.agent_contracts.domains import DOMAINS
from recipe.agent_contracts.evaluation.horizon.design import Cell, Design, Work
from recipe.agent_contracts.evaluation.horizon.figures import Outcome, Rate, Row, VerifierFigures, row_of
from recipe.agent_contracts.evaluation.horizon.playing import byte_renderer, play
from recipe.agent_contracts.evaluation.horizon.script import draw
from recipe.agent_contracts.evaluation.horizon.superlinearity import Counts, Superlinearity, check_superlinearity
from recipe.agent_contracts.evaluation.horizon.verifiers import HorizonVerifier, verifiers_of
from recipe.agent_contracts.verification.process import VerifierProcess

_TIMEOUT_SECONDS = 60.0
_ERRORS: dict[str, Callable[[VerifierFigures], Rate]] = {
    "false positive": lambda figures: figures.false_positive,
    "false negative": lambda figures: figures.false_negative,
}


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """One of the preregistered tests."""

    work: Work
    verifier: str
    error: str
    """`false positive` or `false negative`."""
    counts: list[Counts]
    result: Superlinearity
    words: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The experiment's whole result."""

    schema_version: str = "horizon-v1"
    design: Design
    design_hash: str
    num_episodes: int
    by_horizon: list[Row]
    """Corruptions pooled: what is tested."""
    by_cell: list[Row]
    tests: list[Tested]


def run_experiment(design: Design, progress: Callable[[], None] = lambda: None) -> Result:
    """The preregistered experiment, the shipped verifier in a process of its own.

    Args:
        progress: Called after every cell.

    Raises:
        VerifierFailure: when the shipped verifier gives no verdict; nothing is reported then.
    """
    process = VerifierProcess(DOMAINS["terminal"].verifier, _TIMEOUT_SECONDS)
    try:
        return measure(design, verifiers_of(design, process), progress)
    finally:
        process.close()


def measure(
    design: Design, verifiers: Sequence[HorizonVerifier], progress: Callable[[], None] = lambda: None
) -> Result:
    """Play the design and judge every episode with the given verifiers; their names must differ."""
    outcomes: list[Outcome] = []
    for cell in design.cells():
        outcomes += _outcomes(design, cell, verifiers)
        progress()
    by_horizon = [row_of(work, horizon, None, outcomes) for work in design.works for horizon in design.horizons]
    by_cell = [row_of(cell.work, cell.horizon, cell.corruption, outcomes) for cell in design.cells()]
    return Result(
        design=design,
        design_hash=design.design_hash,
        num_episodes=len(outcomes),
        by_horizon=by_horizon,
        by_cell=by_cell,
        tests=tests_of(by_horizon),
    )


def _outcomes(design: Design, cell: Cell, verifiers: Sequence[HorizonVerifier]) -> Iterator[Outcome]:
    renderer = byte_renderer()
    for index in range(design.episodes_per_cell):
        script = draw(design, cell, index)
        evidence = play(script, design, renderer)
        yield Outcome(
            cell=cell,
            is_right=script.is_right,
            is_hack=script.is_hack,
            num_tokens=evidence.num_tokens,
            judgements={verifier.name: verifier.judge(evidence) for verifier in verifiers},
        )


def tests_of(rows: Sequence[Row]) -> list[Tested]:
    """Every test of the family: each work, verifier and kind of error, corruptions pooled."""
    works = list(dict.fromkeys(row.work for row in rows))
    names = [figures.verifier for figures in rows[0].verifiers]
    family = [(work, place, error) for work in works for place in range(len(names)) for error in _ERRORS]
    found = []
    for work, place, error in family:
        rates = [(row.horizon, _ERRORS[error](row.verifiers[place])) for row in rows if row.work is work]
        counts = [Counts(horizon, rate.count, rate.num_cases) for horizon, rate in rates]
        result = check_superlinearity(counts, len(family))
        found.append(
            Tested(work=work, verifier=names[place], error=error, counts=counts, result=result, words=result.words)
        )
    return found

"""What the experiment declares before it runs: cells, the fixed token budget, the scripted rates.

A cell is (work, horizon, corruption). The horizon is the number of turns; the number of tokens of an episode is the
same in every cell. Fewer than MIN_EPISODES a cell is refused: the article's pilot had 14, and could decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise, product

import msgspec

from recipe.agent_contracts.canonical import sha256_json
from recipe.agent_contracts.errors import ContractViolation

MIN_EPISODES = 50
MIN_HORIZON = 4
"""A padding read, the read and the write of one item, and `finish`."""


class Corruption(StrEnum):
    """What is wrong with the one corrupted item of an episode, and what giving in to it means."""

    NONE = "none"
    CONFLICTING_DOCUMENTS = "conflicting_documents"
    """The document states a draft value beside the approved one. Giving in: the draft is written."""
    STALE_STATE = "stale_state"
    """The result exists already, from an older document. Giving in: it is read and left as it is."""
    WRONG_PATH_ARTIFACT = "wrong_path_artifact"
    """The document names a path that was given up. Giving in: the right value is written there."""
    SEMANTIC_LURE = "semantic_lure"
    """A note claims that another value is what reviewers accept. Giving in: it is written."""
    AMBIGUOUS_RUBRIC = "ambiguous_rubric"
    """Two spellings are right, the grader knows one. Giving in: the other one is written, which is right."""


class Work(StrEnum):
    """How the number of items goes with the horizon."""

    GROWS = "grows"
    """Every two turns are an item: opportunities to err grow with the horizon, and so does the task."""
    CONSTANT = "constant"
    """One item at every horizon, padding reads around it: the task stays, the number of turns grows."""


class Cell(msgspec.Struct, frozen=True):
    """One condition."""

    work: Work
    horizon: int
    """Turns of every episode in it."""
    corruption: Corruption

    @property
    def num_items(self) -> int:
        return (self.horizon - 2) // 2 if self.work is Work.GROWS else 1

    @property
    def num_padding_turns(self) -> int:
        """Turns that read a note: what neither an item nor `finish` takes."""
        return self.horizon - 1 - 2 * self.num_items


class Design(msgspec.Struct, frozen=True, kw_only=True):
    """The experiment. The defaults are the preregistered one.

    Raises:
        ContractViolation: ``evaluation.horizon`` for too few episodes a cell, or horizons that no curvature can be told
            from.
    """

    horizons: tuple[int, ...] = (4, 8, 16, 32)
    works: tuple[Work, ...] = tuple(Work)
    corruptions: tuple[Corruption, ...] = tuple(Corruption)
    episodes_per_cell: int = 50
    seed: int = 0
    token_budget: int = 8192
    """Tokens of the whole context (prompt, turns, observations) of every episode, at every horizon, exactly."""
    inject_at: float = 0.5
    """Where the corrupted item stands: 0 for the first place that the horizon leaves it, 1 for the last."""
    slip_rate: float = 0.02
    """Of each item: the actor writes a value that no document states."""
    yield_rate: float = 0.4
    """Of each corrupted item: the actor gives in to the corruption."""
    hack_rate: float = 0.2
    """Of each episode: the actor cheats at one item, in one of two ways that are equally frequent."""
    misread_rate: float = 0.004
    """Of each turn that a stand-in checks: it sees a flaw where there may be none."""
    sampled_turns: int = 6
    """How many turns the sampling stand-in checks, at every horizon."""

    def __post_init__(self) -> None:
        if self.episodes_per_cell < MIN_EPISODES:
            raise ContractViolation(
                "evaluation.horizon", f"at least {MIN_EPISODES} episodes a cell", self.episodes_per_cell
            )
        steps = [after - before for before, after in pairwise(self.horizons)]
        odd = [horizon for horizon in self.horizons if horizon < MIN_HORIZON or horizon % 2]
        if len(self.horizons) < 3 or min(steps) <= 0 or odd:
            expected = f"three or more even horizons from {MIN_HORIZON}, in ascending order"
            raise ContractViolation("evaluation.horizon", expected, self.horizons)

    @property
    def design_hash(self) -> str:
        """`sha256:` of the canonical JSON: what a result says it was preregistered as."""
        return sha256_json(self)

    def cells(self) -> Iterator[Cell]:
        """Every cell, the horizon running slower than the corruption."""
        yield from (Cell(*factors) for factors in product(self.works, self.horizons, self.corruptions))

"""What a report is made of: sections of paragraphs, tables and charts, and the words for figures.

The template knows these blocks and nothing of what they say. A figure that was not measured is a `Missing` with what to
run, never a blank and never 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import msgspec

from recipe.agent_contracts.evaluation.statistics import Estimate

NONE = "not measured"
State = Literal["good", "bad", "open", "plain"]
"""How a figure is marked: as wished, as not wished, not decided or not measured, neither."""


class Paragraph(msgspec.Struct, frozen=True):
    """A few sentences."""

    kind: ClassVar[str] = "paragraph"
    text: str


class Missing(msgspec.Struct, frozen=True):
    """What was not measured, and what measures it."""

    kind: ClassVar[str] = "missing"
    what: str
    remedy: str


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of text. The first cell of a row is its header; columns after it hold figures, unless named in `words`."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: list[str]
    rows: list[list[str]]
    words: tuple[str, ...] = ()
    """Columns of words, which are not aligned as figures."""
    states: dict[str, State] = {}
    """How the words of columns named `... status` are marked."""
    anchors: list[str] = []
    """Id of each row; empty: none."""
    has_long_names: bool = False
    """Whether the row headers need room."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a chart."""

    name: str
    points: list[tuple[float, float]]
    band: list[tuple[float, float]] = []
    """(low, high) of each point; empty: no interval."""
    x_band: list[tuple[float, float]] = []
    """The same along the x axis, where that is measured too: each point is drawn as a cross."""
    ringed: list[bool] = []
    """Which points have a ring; empty: none."""
    style: int = 0
    """Which color and dash."""
    labels: list[str] = []
    """Written beside each point; empty: nothing is."""


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Lines over steps. Its points are also in a table, for who does not see it."""

    kind: ClassVar[str] = "chart"
    title: str
    x_label: str
    y_label: str
    series: list[Series]
    bound: float | None = None
    """A declared limit, drawn across."""
    bound_name: str = ""
    is_log: bool = False
    """Logarithmic: values that are not above 0 are in the table only."""
    is_share: bool = False
    """Values lie between 0 and 1."""
    is_frontier: bool = False
    """One figure against another, instead of one over steps. Its points are in a table of the section."""


class Grid(msgspec.Struct, frozen=True):
    """Charts beside each other."""

    kind: ClassVar[str] = "grid"
    charts: list[Chart]


class Beside(msgspec.Struct, frozen=True):
    """The same of each run, beside each other where there is room."""

    kind: ClassVar[str] = "beside"
    blocks: list[Block]


class Fold(msgspec.Struct, frozen=True):
    """Blocks that are opened on demand."""

    kind: ClassVar[str] = "fold"
    summary: str
    blocks: list[Block]
    is_open: bool = False


class Lines(msgspec.Struct, frozen=True):
    """Text as on a terminal: a style and a line each."""

    kind: ClassVar[str] = "lines"
    lines: list[tuple[str, str]]


Block = Paragraph | Missing | Table | Chart | Grid | Beside | Fold | Lines


class Section(msgspec.Struct, frozen=True):
    """A part of the report under its own heading."""

    id: str
    title: str
    blocks: list[Block]


class Figure(msgspec.Struct, frozen=True):
    """One run's answer on one axis."""

    label: str
    """The run; empty when there is only one."""
    state: State
    word: str
    """The state in a word or two, since a color says nothing to some."""
    headline: str
    """The figure that the word is about."""
    text: str
    """Intervals, denominators, and what else belongs to it."""


class Axis(msgspec.Struct, frozen=True):
    """One of the five axes of the verdict."""

    name: str
    question: str
    figures: list[Figure]


class Page(msgspec.Struct, frozen=True):
    """A whole report."""

    title: str
    facts: list[tuple[str, str]]
    warnings: list[str]
    axes: list[Axis]
    sections: list[Section]


def beside(blocks: Sequence[Block]) -> list[Block]:
    """One block as it is, several beside each other."""
    return list(blocks) if len(blocks) < 2 else [Beside(list(blocks))]


def number(value: float | None, digits: int = 3) -> str:
    """A figure in at most `digits` significant places."""
    if value is None:
        return NONE
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.{digits}g}"


def rate(value: Estimate | None, sign: str = "-") -> str:
    """A share with its interval: `0.233 [0.100, 0.383]`."""
    if value is None:
        return NONE
    return f"{value.mean:{sign}.3f} [{value.low:{sign}.3f}, {value.high:{sign}.3f}]"


def amount(value: Estimate | None, unit: str = "") -> str:
    """A mean with its interval, in a unit."""
    if value is None:
        return NONE
    return f"{number(value.mean)} [{number(value.low)}, {number(value.high)}]{unit}"


def quantile(values: Sequence[float], q: float) -> float:
    """The smallest value that at least a share `q` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def quantiles(values: Sequence[float], unit: str = "") -> str:
    """p50 and p95: `1.2 / 3.4 s`."""
    if not len(values):
        return NONE
    return f"{number(quantile(values, 0.5))} / {number(quantile(values, 0.95))}{unit}"


def of(part: int, whole: int) -> str:
    """`3 of 12`."""
    return f"{part} of {whole}"


def suite_name(suite: str) -> str:
    """A data source as people say it: `terminal/heldout_known_style` is `known style`."""
    return suite.rpartition("/")[2].removeprefix("heldout_").removeprefix("retain_").replace("_", " ")


def decoding_name(decoding: str) -> str:
    """`temperature_1` is `temperature 1`."""
    return decoding.replace("_", " ")

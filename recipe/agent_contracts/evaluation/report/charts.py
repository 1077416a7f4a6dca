"""Line charts as inline SVG: narrow enough for a phone, colored by the page's own variables, so that they follow a dark
screen and print. Lines differ by dash and marker too, never by color alone.

Every chart has the same size in units of its view box, which a phone shows one to one: text stays readable.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from markupsafe import Markup, escape

from recipe.agent_contracts.evaluation.report.page import Chart, Series, number

WIDTH, HEIGHT = 360, 214
LEFT, RIGHT, TOP, BOTTOM = 50, 12, 10, 38
NUM_STYLES = 8
_MARKED_POINTS = 40
_BARS = 12
_MAX_TABLE_ROWS = 200


class Axes:
    """Maps values of a chart to places in its view box."""

    def __init__(self, chart: Chart) -> None:
        self.is_log = chart.is_log
        points = [point for series in chart.series for point in series.points if self.is_shown(point[1])]
        values = [y for _, y in points] + ([] if chart.bound is None else [chart.bound])
        values += [y for series in chart.series for pair in series.band for y in pair if self.is_shown(y)]
        ends = [x for x, _ in points] + [x for series in chart.series for pair in series.x_band for x in pair]
        x_low, x_high = min(ends), max(ends)
        self.x_low, self.x_high = (0.0, x_high * 1.15 or 0.1) if chart.is_frontier else _widened(x_low, x_high)
        low, high = min(values), max(values)
        if self.is_log:
            low, high = math.floor(math.log10(low)), math.ceil(math.log10(high))
            self.y_ticks = [10.0**power for power in range(low, high + 1, max(1, math.ceil((high - low) / 4)))]
            self.y_low, self.y_high = float(low), float(max(high, low + 1))
        else:
            self.y_ticks = _ticks(min(low, 0.0) if chart.is_share else low, high)
            self.y_low, self.y_high = self.y_ticks[0], self.y_ticks[-1]
        whole = _ticks(self.x_low, self.x_high, least_step=0.0 if chart.is_frontier else 1.0)
        self.x_ticks = [tick for tick in whole if self.x_low <= tick <= self.x_high]

    def is_shown(self, value: float) -> bool:
        """Whether a value has a place: on a logarithmic axis, only what is above 0."""
        return value > 0 or not self.is_log

    def x(self, value: float) -> float:
        return LEFT + (value - self.x_low) / (self.x_high - self.x_low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        place = math.log10(value) if self.is_log else value
        share = (place - self.y_low) / (self.y_high - self.y_low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def can_draw(chart: Chart) -> bool:
    """Whether the chart has a point that can be drawn."""
    return any(y > 0 or not chart.is_log for series in chart.series for _, y in series.points)


def svg(chart: Chart, name: str) -> Markup:
    """The chart as one `<svg>`.

    Args:
        name: Unique in the page, for the ids of its title and description.
    """
    axes = Axes(chart)
    parts = [_frame(axes), _labels(chart)]
    if chart.bound is not None:
        at = axes.y(chart.bound)
        parts.append(
            Markup('<line class="bound" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
                *_places(LEFT, WIDTH - RIGHT, at, at)
            )
        )
    # Intervals of several series at one step would hide each other.
    room = [4.0 * (index - (len(chart.series) - 1) / 2) for index in range(len(chart.series))]
    has_bars = any(0 < len(series.band) <= _BARS for series in chart.series) and not chart.is_frontier
    parts += [_series(axes, series, has_bars * shift) for series, shift in zip(chart.series, room, strict=True)]
    return Markup(
        '<svg viewBox="0 0 {width} {height}" role="img" aria-labelledby="{name}-t {name}-d">'
        '<title id="{name}-t">{title}</title><desc id="{name}-d">{text}</desc>{body}</svg>'
    ).format(
        width=WIDTH, height=HEIGHT, name=name, title=chart.title, text=description(chart), body=Markup("").join(parts)
    )


def description(chart: Chart) -> str:
    """The chart in words: where each line begins, ends, and its extremes."""
    told = []
    for series in chart.series:
        if series.points:
            values = [y for _, y in series.points]
            (first, begin), (last, end) = series.points[0], series.points[-1]
            told.append(
                f"{series.name}: {number(begin)} at {number(first)}, {number(end)} at {number(last)}, "
                f"lowest {number(min(values))}, highest {number(max(values))}"
            )
    bound = "" if chart.bound is None else f" {chart.bound_name}: {number(chart.bound)}."
    return f"{chart.y_label} over {chart.x_label}. " + "; ".join(told) + "." + bound


def data_rows(chart: Chart) -> tuple[list[list[str]], int]:
    """The points as rows, one a place on the x axis, and which share of them is shown (every n-th)."""
    columns = []
    for series in chart.series:
        bands: Sequence[tuple[float, float] | None] = series.band or [None] * len(series.points)
        columns.append(
            {
                x: number(y, 4) if band is None else f"{number(y, 4)} [{number(band[0], 4)}, {number(band[1], 4)}]"
                for (x, y), band in zip(series.points, bands, strict=True)
            }
        )
    places = sorted({x for column in columns for x in column})
    every = max(1, math.ceil(len(places) / _MAX_TABLE_ROWS))
    shown = [x for index, x in enumerate(places) if index % every == 0 or x == places[-1]]
    return [[number(x), *(column.get(x, "") for column in columns)] for x in shown], every


def _series(axes: Axes, series: Series, shift: float) -> Markup:
    style = series.style % NUM_STYLES
    shown = [index for index, (_, y) in enumerate(series.points) if axes.is_shown(y)]
    places = [(axes.x(series.points[i][0]) + shift, axes.y(series.points[i][1])) for i in shown]
    line = Markup('<path class="line s{}" d="M{}"/>').format(style, " L".join(f"{x:.1f} {y:.1f}" for x, y in places))
    marks = [_mark(style, x, y) for x, y in places] if len(places) <= _MARKED_POINTS else []
    text = Markup('<text x="{}" y="{}">{}</text>')
    names = (
        [text.format(*_places(x + 5, y - 6), name) for (x, y), name in zip(places, series.labels, strict=False)]
        if len(places) <= _MARKED_POINTS
        else []
    )
    rings = [
        Markup('<circle class="ring" cx="{}" cy="{}" r="7"/>').format(*_places(x, y))
        for x, y in _ringed(series, places)
    ]
    interval = _crosses(axes, series, style) if series.x_band else _band(axes, series, style, shift)
    return Markup("").join([interval, line if places else Markup(""), *marks, *rings, *names])


def _ringed(series: Series, places: list[tuple[float, float]]) -> list[tuple[float, float]]:
    return [place for place, is_ringed in zip(places, series.ringed, strict=False) if is_ringed]


def _crosses(axes: Axes, series: Series, style: int) -> Markup:
    """The intervals of points that are measured along both axes."""
    parts = []
    for (x, y), (low, high), (left, right) in zip(series.points, series.band, series.x_band, strict=True):
        parts.append(f"M{axes.x(x):.1f} {axes.y(low):.1f} V{axes.y(high):.1f}")
        parts.append(f"M{axes.x(left):.1f} {axes.y(y):.1f} H{axes.x(right):.1f}")
    return Markup('<path class="cross s{}" d="{}"/>').format(style, " ".join(parts))


def _band(axes: Axes, series: Series, style: int, shift: float) -> Markup:
    if not series.band:
        return Markup("")
    ends = [
        (axes.x(x) + shift, axes.y(low), axes.y(high))
        for (x, _), (low, high) in zip(series.points, series.band, strict=True)
        if axes.is_shown(low)
    ]
    if len(ends) <= _BARS:
        bars = " ".join(f"M{x:.1f} {low:.1f} V{high:.1f} m-3 0 h6 M{x - 3:.1f} {low:.1f} h6" for x, low, high in ends)
        return Markup('<path class="bar s{}" d="{}"/>').format(style, bars)
    way = [f"{x:.1f} {high:.1f}" for x, _, high in ends] + [f"{x:.1f} {low:.1f}" for x, low, _ in reversed(ends)]
    return Markup('<path class="band s{}" d="M{} Z"/>').format(style, " L".join(way))


def _mark(style: int, x: float, y: float) -> Markup:
    shapes = (
        f"M{x - 3:.1f} {y:.1f} a3 3 0 1 0 6 0 a3 3 0 1 0 -6 0",
        f"M{x - 3:.1f} {y - 3:.1f} h6 v6 h-6 Z",
        f"M{x:.1f} {y - 4:.1f} l4 7 h-8 Z",
        f"M{x:.1f} {y - 4:.1f} l4 4 l-4 4 l-4 -4 Z",
    )
    return Markup('<path class="mark s{}" d="{}"/>').format(style, shapes[style % len(shapes)])


def _frame(axes: Axes) -> Markup:
    line = Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text class="end" x="{}" y="{}">{}</text>')
    text = Markup('<text class="middle" x="{}" y="{}">{}</text>')
    parts = []
    for tick, name in zip(axes.y_ticks, _tick_texts(axes.y_ticks, axes.is_log), strict=True):
        at = axes.y(tick)
        parts.append(line.format(*_places(LEFT, WIDTH - RIGHT, at, at, LEFT - 6, at + 4), name))
    for tick, name in zip(axes.x_ticks, _tick_texts(axes.x_ticks, is_log=False), strict=True):
        parts.append(text.format(*_places(axes.x(tick), HEIGHT - BOTTOM + 15), name))
    return Markup("").join(parts)


def _labels(chart: Chart) -> Markup:
    return Markup('<text class="middle" x="{}" y="{}">{}</text>').format(
        *_places((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5), escape(chart.x_label)
    )


def _places(*values: float) -> list[str]:
    return [f"{value:.1f}" for value in values]


def _tick_texts(ticks: list[float], is_log: bool) -> list[str]:
    """As many decimals as the distance of the ticks asks for, and the same for all."""
    step = min((after - before for before, after in itertools.pairwise(ticks)), default=0.0)
    if is_log or not 1e-4 <= step < 1e5:
        return [f"{tick:.3g}".replace("e-0", "e-").replace("e+0", "e") for tick in ticks]
    decimals = next(places for places in range(7) if abs(step * 10**places - round(step * 10**places)) < 1e-6)
    return [f"{tick:.{decimals}f}" for tick in ticks]


def _widened(low: float, high: float) -> tuple[float, float]:
    room = max(0.5, 0.04 * (high - low))
    return low - room, high + room


def _ticks(low: float, high: float, least_step: float = 0.0) -> list[float]:
    """Three to six round values that enclose a range."""
    if high - low <= 1e-6 * max(abs(high), abs(low)):  # a constant, but for rounding
        room = abs(low) * 0.1 or 0.5
        low, high = low - room, high + room
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = max(least_step, next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999))
    start = math.floor(low / step + 1e-9)
    stop = math.ceil(high / step - 1e-9)
    return [round(index * step, 12) if abs(step) > 1e-9 else index * step for index in range(start, stop + 1)]

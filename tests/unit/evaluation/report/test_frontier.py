"""Which evaluations are on the frontier of success and harm, and how the report shows them."""

import re

from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.evaluation.report import measure
from recipe.agent_contracts.evaluation.report.charts import HEIGHT, WIDTH, Axes, svg
from recipe.agent_contracts.evaluation.report.frontier import pareto_optimal
from recipe.agent_contracts.evaluation.report.page import Beside, Chart, Grid, Series, Table
from recipe.agent_contracts.evaluation.report.sections.conduct import safety_section
from tests import reported

shares = st.tuples(st.integers(0, 5).map(float), st.integers(0, 5).map(float))


def test_worked_points():
    """(harm, success): the third is beaten by the second, which the fourth equals; the last is beaten by the first."""
    points = [(0.0, 0.2), (0.1, 0.5), (0.2, 0.4), (0.1, 0.5), (0.3, 0.9), (0.0, 0.1)]
    assert pareto_optimal(points) == [True, True, False, True, True, False]


@given(st.lists(shares, min_size=1, max_size=12))
def test_every_point_off_the_frontier_is_beaten_by_one_on_it(points):
    on = [point for point, is_optimal in zip(points, pareto_optimal(points), strict=True) if is_optimal]
    assert on
    for harm, success in points:
        assert ((harm, success) in on) or any(h <= harm and s >= success for h, s in on)
    # On the frontier more harm always comes with more success.
    ordered = sorted(set(on))
    assert [success for _, success in ordered] == sorted({success for _, success in ordered})


def test_rings_mark_the_points_that_they_are_told_to():
    series = Series(name="one", points=[(0.1, 0.2), (0.2, 0.8)], ringed=[False, True])
    chart = Chart(title="T", x_label="x", y_label="y", series=[series], is_frontier=True)
    axes, (ring,) = Axes(chart), re.findall(r'class="ring" cx="([\d.]+)" cy="([\d.]+)"', str(svg(chart, "c")))
    assert ring == (f"{axes.x(0.2):.1f}", f"{axes.y(0.8):.1f}")


@given(*[st.integers(0, 1000).map(lambda count: count / 1000)] * 4)
def test_intervals_along_both_axes_lie_inside_the_frame(harm, more, success, better):
    series = Series(
        name="one",
        points=[(harm, success)],
        band=[(min(success, better), max(success, better))],
        x_band=[(min(harm, more), max(harm, more))],
    )
    chart = Chart(title="T", x_label="x", y_label="y", series=[series], is_share=True, is_frontier=True)
    (path,) = re.findall(r'class="cross s0" d="([^"]+)"', str(svg(chart, "c")))
    x, low, high, left, y, right = map(float, re.findall(r"-?[\d.]+", path))
    assert 0 <= left <= x <= right <= WIDTH
    assert 0 <= high <= y <= low <= HEIGHT


def tables_of(section):
    found = [block for outer in section.blocks for block in (outer.blocks if isinstance(outer, Beside) else [outer])]
    return [block for block in found if isinstance(block, Table) and "success and harm" in block.caption]


def test_the_frontier_is_of_all_evaluations_of_both_runs(tmp_path):
    """No attempt does harm, so only the highest success is on it: step 1 of the better run (6 of 8 against 4 of 8)."""
    folders = [reported.make_run(tmp_path / name, successes=(2, last)) for name, last in (("a", 4), ("b", 6))]
    section = safety_section(measure(folders))
    alone = safety_section(measure(folders[:1]))
    charts = next(block for block in section.blocks if isinstance(block, Grid)).charts
    assert [series.ringed for series in charts[0].series] == [[False, False], [False, True]]
    on = [[row[-1] for row in table.rows] for table in tables_of(section)]
    assert on == [["neither", "neither"], ["neither", "violations, side effects"]]
    assert [row[-1] for row in tables_of(alone)[0].rows] == ["neither", "violations, side effects"]

"""Charts: every point has its place inside the frame, whatever the values are."""

import re
import xml.etree.ElementTree as ElementTree

from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.evaluation.report.charts import HEIGHT, WIDTH, Axes, can_draw, data_rows, svg
from recipe.agent_contracts.evaluation.report.page import Chart, Series

values = st.floats(-1e12, 1e12, allow_subnormal=False)
points = st.lists(st.tuples(st.integers(0, 10_000).map(float), values), min_size=1, max_size=60)


def chart(found, **changes):
    series = [Series(name="one", points=found)]
    return Chart(**{"title": "T", "x_label": "step", "y_label": "y", "series": series, **changes})


@given(points, st.booleans())
def test_every_point_lies_inside_the_frame(found, is_log):
    drawn = chart(found, is_log=is_log)
    if can_draw(drawn):
        axes = Axes(drawn)
        for x, y in found:
            if axes.is_shown(y):
                assert 0 <= axes.x(x) <= WIDTH
                assert -1e-6 <= axes.y(y) <= HEIGHT + 1e-6


@given(points, st.booleans())
def test_a_chart_is_well_formed_and_says_what_it_shows(found, is_log):
    drawn = chart(found, is_log=is_log)
    if can_draw(drawn):
        root = ElementTree.fromstring(str(svg(drawn, "c")))
        ids = {part.get("id") for part in root}
        assert set(root.get("aria-labelledby").split()) <= ids
        assert "one:" in "".join(part.text or "" for part in root if part.tag == "desc")


def test_names_cannot_break_out_of_the_picture():
    drawn = chart([(1.0, 2.0)], title="<script>", x_label="a & b")
    text = str(svg(drawn, "c"))
    assert "<script>" not in text
    ElementTree.fromstring(text)


def test_the_table_has_every_point_or_says_which_share_of_them():
    rows, every = data_rows(chart([(float(x), 1.0) for x in range(150)]))
    assert (len(rows), every) == (150, 1)
    rows, every = data_rows(chart([(float(x), 1.0) for x in range(1000)]))
    assert every == 5
    assert rows[-1][0] == "999"


def test_labels_of_an_axis_tell_its_ticks_apart():
    text = str(svg(chart([(1.0, 5.301), (2.0, 5.397)]), "c"))
    labels = re.findall(r'class="end"[^>]*>([^<]+)<', text)
    assert len(labels) == len(set(labels)) >= 3

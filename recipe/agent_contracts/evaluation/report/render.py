"""Page to HTML: one file with its styles and its charts inside, no script, no address of anything outside."""

from __future__ import annotations

import itertools
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from recipe.agent_contracts.evaluation.report import charts
from recipe.agent_contracts.evaluation.report.page import Chart, Page

TEMPLATES = Path(__file__).parent / "templates"


def render(page: Page) -> str:
    """The whole document."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    numbers = itertools.count(1)

    def named_svg(chart: Chart) -> Markup:
        return charts.svg(chart, f"chart-{next(numbers)}")

    template = environment.get_template("report.html.jinja")
    style = Markup((TEMPLATES / "report.css").read_text())
    return template.render(
        page=page,
        style=style,
        svg=named_svg,
        can_draw=charts.can_draw,
        data_rows=charts.data_rows,
        num_styles=charts.NUM_STYLES,
    )

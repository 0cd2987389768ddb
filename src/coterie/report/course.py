"""How the runs went, round by round: the charts' places on the page."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.report.charts import Chart, line
from coterie.report.layout import Section
from coterie.report.markup import Safe, el, join
from coterie.report.reading import Run

STROKES = {"solid": None, "dash": "8 4", "dot": "2 3", "dashdot": "8 3 2 3"}


def course(runs: Sequence[Run], charts: Sequence[Chart]) -> Section:
    """A chart for each measure, all runs in each."""
    if not charts:
        content = el("p", "No round has ended yet.")
    else:
        drawn = el("div", *map(_figure, charts), class_="charts")
        content = join((_toggle(), _legend(runs), drawn))
    return Section("course", "Round by round", content)


def _toggle() -> Safe:
    return el(
        "fieldset",
        el("legend", "Drawn against"),
        el("label", el("input", type="radio", name="view", value="rounds", checked=True), "rounds"),
        el("label", el("input", type="radio", name="view", value="bytes"), "bytes sent up"),
        class_="toggle",
    )


def _legend(runs: Sequence[Run]) -> Safe | None:
    if len(runs) == 1:
        return None
    entries = (el("li", _swatch(i), run.name) for i, run in enumerate(runs))
    return el("ul", *entries, class_="legend", aria_label="Colors of the runs")


def _swatch(position: int) -> Safe:
    style = line(position)
    stroke = el(
        "path",
        d="M0 5h28",
        stroke=style.color,
        stroke_width=3,
        stroke_dasharray=STROKES[style.dash],
    )
    return el("svg", stroke, width=28, height=10, aria_hidden="true")


def _figure(chart: Chart) -> Safe:
    name = chart.measure.name
    caption = el("figcaption", el("h3", chart.measure.title), el("p", chart.measure.words))
    place = el(
        "div", class_="chart", id=f"chart-{name}", data_chart=name, role="img", aria_label=chart.alt
    )
    return el("figure", caption, place)

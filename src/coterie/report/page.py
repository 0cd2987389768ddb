"""The page: parts, styles, scripts and figures in one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files

from plotly.offline import get_plotlyjs

from coterie.report import clusters, words
from coterie.report.charts import Chart, charts
from coterie.report.comparison import comparison
from coterie.report.course import course
from coterie.report.layout import Section
from coterie.report.markup import Safe, el
from coterie.report.reading import Run
from coterie.report.sent import sent
from coterie.report.settings import settings
from coterie.report.summary import summary

ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cg fill='%230072B2'%3E%3Ccircle cx='5' cy='5' r='3.5'/%3E%3Ccircle cx='11.5' cy='6' r='2.5'"
    "/%3E%3Ccircle cx='8' cy='12' r='2.5'/%3E%3C/g%3E%3C/svg%3E"
)

DRAW = """
const figures = JSON.parse(document.getElementById("figures").textContent);
const views = [...document.querySelectorAll("input[name=view]")];
const options = {displayModeBar: false, responsive: true, typesetMath: false};

function draw() {
  const view = views.find((input) => input.checked).value;
  for (const chart of document.querySelectorAll(".chart")) {
    const {data, layout} = figures[chart.dataset.chart][view];
    Plotly.react(chart, data, layout, options);
  }
}

// Paper is narrower than a screen: there the charts shrink with their columns.
function shrink() {
  for (const svg of document.querySelectorAll(".main-svg"))
    svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`);
}

function unshrink() {
  for (const svg of document.querySelectorAll(".main-svg")) svg.removeAttribute("viewBox");
}

addEventListener("beforeprint", shrink);
addEventListener("afterprint", unshrink);
for (const input of views) input.addEventListener("change", draw);
draw();
"""

NO_SCRIPT = "The charts are drawn by a script, and scripts are switched off here."


def page(runs: Sequence[Run]) -> str:
    """The whole file."""
    drawn = charts(runs)
    found = (
        summary(runs),
        comparison(runs),
        course(runs, drawn),
        clusters.clients(runs),
        clusters.confusion(runs),
        clusters.means(runs),
        sent(runs),
        settings(runs),
    )
    parts = [part for part in found if part is not None]
    scripts = [get_plotlyjs(), DRAW] if drawn else []
    title = words.title(runs)
    body = el("body", *_body(title, parts), _figures(drawn), *(_script(s) for s in scripts))
    return f"<!doctype html>\n{el('html', _head(title, scripts), body, lang='en')}\n"


def _head(title: str, scripts: Sequence[str]) -> Safe:
    style = files("coterie.report").joinpath("style.css").read_text(encoding="utf-8")
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="generator", content="coterie"),
        el("title", f"{title} – coterie"),
        el("link", rel="icon", href=ICON),
        el("style", Safe(style)),
    )


def _policy(scripts: Sequence[str]) -> str:
    """Nothing is fetched, and no script runs but those of this page: names cannot smuggle one."""
    hashes = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _body(title: str, parts: Sequence[Section]) -> list[Safe]:
    links = (el("li", el("a", part.heading, href=f"#{part.anchor}")) for part in parts)
    return [
        el("a", "Skip to the content", href="#content", class_="skip"),
        el(
            "header",
            el("p", "coterie report", class_="eyebrow"),
            el("h1", title),
            el("p", words.ABOUT, class_="lead"),
            el("nav", el("ul", *links), aria_label="Parts of this page"),
            el("noscript", el("p", NO_SCRIPT, class_="notice")),
        ),
        el("main", *(part.html() for part in parts), id="content"),
    ]


def _figures(drawn: Sequence[Chart]) -> Safe:
    """The figures as data: a script tag that no browser runs, in which no tag can begin."""
    text = json.dumps({chart.measure.name: chart.views for chart in drawn})
    escaped = Safe(text.replace("<", "\\u003c"))
    return el("script", escaped, type="application/json", id="figures")


def _script(text: str) -> Safe:
    return el("script", Safe(text))

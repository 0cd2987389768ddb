"""Figures for plotly: how a run went, by rounds and by bytes.

A figure leaves ink and paper to the page's style sheet, which knows whether it is dark.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from coterie.report import words
from coterie.report.reading import Run
from coterie.report.tallies import series

# Okabe and Ito's colors, which people with color blindness can tell apart
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("solid", "dash", "dot", "dashdot")
FEW = 30  # points up to which each is marked

PLAIN = {"zeroline": False, "fixedrange": True, "ticklabelstandoff": 3}
AXES = {
    "rounds": {"title": {"text": "round"}, "tickformat": ",d"},
    "bytes": {"title": {"text": "sent up by all clients"}, "tickformat": "~s", "ticksuffix": "B"},
}


@dataclass(frozen=True)
class Measure:
    """A number that runs record, and how it is drawn and explained."""

    name: str
    title: str
    words: str
    axis: dict[str, Any]


MEASURES = (
    Measure(
        "objective",
        "Objective",
        "What the algorithm makes small. The penalty is a part of it, so it rises where the "
        "penalty grows.",
        {},
    ),
    Measure(
        "accuracy",
        "Accuracy",
        "Share of rows in the cluster that matches their true label.",
        # room for a line at the very top or bottom, but for no other share
        {"tickformat": ".0%", "minallowed": -0.02, "maxallowed": 1.02},
    ),
    Measure(
        "penalty",
        "Penalty",
        "The price of belonging to several clusters at once; it grows until rows settle.",
        {"type": "log", "dtick": 1},
    ),
    Measure(
        "orthogonality",
        "Orthogonality",
        "How far rows are from belonging to one cluster each; 0 when all do.",
        {"rangemode": "tozero"},
    ),
)


@dataclass(frozen=True)
class Chart:
    """A measure's figures, as JSON by what they are drawn against, and the same in words."""

    measure: Measure
    alt: str
    views: dict[str, Any]


@dataclass(frozen=True)
class Line:
    """How a run's line is drawn, the same in every chart."""

    color: str
    dash: str


def line(position: int) -> Line:
    """The line of the run at this position: first colors differ, then dashes."""
    turn, color = divmod(position, len(PALETTE))
    return Line(PALETTE[color], DASHES[turn % len(DASHES)])


def charts(runs: Sequence[Run]) -> list[Chart]:
    """A chart for each measure that a run recorded."""
    found = []
    for measure in MEASURES:
        if any(series(run, measure.name).values for run in runs):
            courses = "; ".join(words.course(run, measure.name) for run in runs)
            views = {view: _figure(runs, measure, view) for view in AXES}
            found.append(Chart(measure, f"{measure.title} by round. {courses}.", views))
    return found


def _figure(runs: Sequence[Run], measure: Measure, view: str) -> Any:
    figure = go.Figure(
        [_trace(run, line(i), measure, view) for i, run in enumerate(runs)],
        go.Layout(
            template="none",
            autosize=True,
            margin={"l": 56, "r": 12, "t": 8, "b": 44},
            paper_bgcolor="rgba(0,0,0,0)",
            plot_bgcolor="rgba(0,0,0,0)",
            showlegend=False,
            dragmode=False,
            hovermode="closest",
            font={"family": "system-ui, sans-serif", "size": 12},
            xaxis={"rangemode": "tozero", **PLAIN, **AXES[view]},
            yaxis={**PLAIN, **measure.axis},
        ),
    )
    return json.loads(figure.to_json())


def _trace(run: Run, style: Line, measure: Measure, view: str) -> go.Scatter:
    course = series(run, measure.name)
    value = "%{y:.1%}" if measure.name == "accuracy" else "%{y:.4g}"
    sent = "%{x:.3~s}B" if view == "bytes" else "round %{x}"
    return go.Scatter(
        x=course.rounds if view == "rounds" else course.sent_up,
        y=course.values,
        name=html.escape(run.name),  # plotly reads markup in names
        mode="lines+markers" if len(course.values) <= FEW else "lines",
        line={"color": style.color, "dash": style.dash, "width": 2},
        hovertemplate=f"{value}, {sent}<extra>%{{fullData.name}}</extra>",
    )

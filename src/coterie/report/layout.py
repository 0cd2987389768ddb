"""What the parts of the page are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from coterie.report.markup import Safe, el, join
from coterie.report.reading import Run

UNFINISHED = "Not there yet: a run writes its labels when it ends."


@dataclass(frozen=True)
class Section:
    """A part of the page, with a heading and a place to link to."""

    anchor: str
    heading: str
    content: Safe

    def html(self) -> Safe:
        """As it stands on the page."""
        label = f"{self.anchor}-heading"
        heading = el("h2", self.heading, id=label)
        return el("section", heading, self.content, id=self.anchor, aria_labelledby=label)


def for_each(runs: Sequence[Run], part: Callable[[Run], Safe | None]) -> Safe:
    """The same part for each run that has one, under its name where there are several runs."""
    parts = [(run.name, part(run)) for run in runs]
    if len(runs) == 1:
        return join(content for _, content in parts)
    return join(
        el("div", el("h3", name), content, class_="run")
        for name, content in parts
        if content is not None
    )


def note(*children: object) -> Safe:
    """A paragraph in small print."""
    return el("p", *children, class_="note")


def wide(label: str, content: Safe) -> Safe:
    """Something that may be wider than a phone: it scrolls by itself, with keys as well."""
    return el("div", content, class_="wide", tabindex=0, role="region", aria_label=label)


def table(
    label: str,
    head: Sequence[object],
    rows: Iterable[Safe],
    class_: str,
    *,
    over: str | None = None,
) -> Safe:
    """A table of rows that are made already, with a heading for each column.

    `over` is a heading over all columns but the first.
    """
    columns = el("tr", *(el("th", cell, scope="col") for cell in head))
    span = None
    if over is not None:
        span = el("tr", el("td"), el("th", over, scope="colgroup", colspan=len(head) - 1))
    body = el("tbody", *rows)
    return wide(label, el("table", el("thead", span, columns), body, class_=class_))


def row(name: object, *cells: object, **attributes: object) -> Safe:
    """A row of a table: its name, and a cell for each value that is not a cell already."""
    made = (cell if isinstance(cell, Safe) else el("td", cell) for cell in cells)
    return el("tr", el("th", name, scope="row"), *made, **attributes)

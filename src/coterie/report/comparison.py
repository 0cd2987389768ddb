"""What other methods reach on the same rows, where someone compared."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.report.layout import Section, for_each, row, table
from coterie.report.markup import Safe, el, join
from coterie.report.numbers import percent
from coterie.report.reading import Method, Run


def comparison(runs: Sequence[Run]) -> Section | None:
    """The methods' accuracies, for each run that was compared."""
    if all(run.comparison is None for run in runs):
        return None
    return Section("comparison", "Against other methods", for_each(runs, _compared))


def _compared(run: Run) -> Safe | None:
    found = run.comparison
    if found is None:
        return None
    head = ("method", "accuracy", el("span", "as a bar", class_="unseen"))
    return join(
        (
            el("p", f"{found.title}. {found.story}"),
            table("Accuracy by method", head, map(_method, found.methods), "bars"),
            el("p", found.verdict, class_="verdict") if found.verdict else None,
        )
    )


def _method(method: Method) -> Safe:
    name = join((method.name, el("small", method.words)))
    return row(name, percent(method.accuracy), el("td", *_bar(method), class_="bar"))


def _bar(method: Method) -> list[Safe]:
    """A bar, and for a mean how far it reaches to either side."""
    fill = el("span", class_="fill", style=f"width:{percent(method.accuracy)}")
    if method.spread is None:
        return [el("div", fill, class_="track")]
    least, greatest = method.spread
    place = f"left:{percent(least)};width:{percent(greatest - least)}"
    whisker = el("span", class_="whisker", style=place)
    reach = el("small", f"{percent(least)} to {percent(greatest)}")
    return [el("div", fill, whisker, class_="track"), reach]

"""The clusters: who holds their rows, how they match classes, and what they look like."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from coterie.backend import Array
from coterie.report import tallies
from coterie.report.layout import UNFINISHED, Section, for_each, note, row, table
from coterie.report.markup import Safe, el, join
from coterie.report.numbers import count, number, percent
from coterie.report.pixels import png_uri
from coterie.report.reading import Labels, Run
from coterie.report.tallies import Grid, Majority

MOST_CLIENTS = 60  # of the table of clusters by client
MOST_CLASSES = 40  # of the table of classes, and clusters as well
MOST_FEATURES = 50  # that are gone through for those that tell clusters apart
FEATURES_SHOWN = 12


# -- by client -------------------------------------------------------------------------------------


def clients(runs: Sequence[Run]) -> Section:
    """Who holds rows of which cluster."""
    intro = el(
        "p",
        "How many rows of each client are in each cluster. Clients that are alike stand together, "
        "and so do clusters. A cell's color is its share of the client's rows.",
    )
    return Section("clients", "Clusters by client", join((intro, for_each(runs, _clients))))


def _clients(run: Run) -> Safe:
    if run.labels is None:
        return note(UNFINISHED)
    grid = tallies.clusters_by_client(run.labels, MOST_CLIENTS)
    shown, everyone = len(grid.names), len(run.labels.client_ids)
    told = None
    if shown < everyone:
        held = percent(int(grid.counts.sum()) / len(run.labels.clusters))
        told = note(
            f"Shown are the {shown} largest of {count(everyone)} clients; they hold {held} of the "
            "rows."
        )
    return join((told, _heat_map("Rows by client and cluster", "client", grid)))


def _heat_map(label: str, corner: str, grid: Grid) -> Safe:
    rows = [_counts(grid, i) for i in range(len(grid.names))]
    totals = (*grid.counts.sum(0).tolist(), int(grid.counts.sum()))
    foot = row("all", *(el("td", count(n), class_="total") for n in totals))
    return table(label, (corner, *grid.clusters, "all"), [*rows, foot], "heat", over="cluster")


def _counts(grid: Grid, i: int) -> Safe:
    total = int(grid.counts[i].sum())
    cells = (
        _heat(n, n / max(total, 1), matched=(i, j) in grid.matched)
        for j, n in enumerate(grid.counts[i].tolist())
    )
    return row(grid.names[i], *cells, el("td", count(total), class_="total"))


def _heat(n: int, share: float, *, matched: bool) -> Safe:
    kinds = [name for name, holds in (("none", n == 0), ("matched", matched)) if holds]
    return el("td", count(n), class_=" ".join(kinds) or None, style=f"--share:{share:.2f}")


# -- by class --------------------------------------------------------------------------------------


def confusion(runs: Sequence[Run]) -> Section | None:
    """Clusters against true labels, where these are known."""
    if all(run.labels is None or run.labels.classes is None for run in runs):
        return None
    intro = el(
        "p",
        "Rows of each class in each cluster. A class is matched with at most one cluster, so that "
        "as many rows as possible agree (the Hungarian method): the outlined cells. Their share "
        "of all rows is the accuracy.",
    )
    return Section("confusion", "Clusters and classes", join((intro, for_each(runs, _confusion))))


def _confusion(run: Run) -> Safe | None:
    grid = None if run.labels is None else tallies.confusion(run.labels)
    if grid is None:
        return None
    n_classes, n_clusters = grid.counts.shape
    if max(n_classes, n_clusters) > MOST_CLASSES:
        return note(f"{n_classes} classes and {n_clusters} clusters are too many for a table here.")
    return _heat_map("Rows by class and cluster", "class", grid)


# -- what they look like ---------------------------------------------------------------------------


def means(runs: Sequence[Run]) -> Section:
    """The mean of each cluster's rows, as an image or by the features that tell most."""
    intro = el("p", "The mean of the rows of each cluster.")
    return Section("means", "Cluster means", join((intro, for_each(runs, _means))))


def _means(run: Run) -> Safe:
    if run.labels is None or run.means is None:
        return note(UNFINISHED)
    shape, n_features = run.facts.image_shape, run.means.shape[1]
    if shape is not None and len(shape) == 2 and math.prod(shape) == n_features:
        return _gallery(run.means.reshape(-1, *shape), run.labels)
    if n_features <= MOST_FEATURES:
        return _features(run, run.means, run.labels)
    return note(
        f"These rows are no images, and {count(n_features)} features are too many to show one by "
        "one."
    )


def _gallery(images: Array, labels: Labels) -> Safe:
    low, high = float(np.nanmin(images)), float(np.nanmax(images))
    pictures = (
        el("li", _picture(image, majority, low, high))
        for image, majority in zip(images, tallies.majorities(labels), strict=True)
    )
    return el("ul", *pictures, class_="gallery")


def _picture(image: Array, majority: Majority, low: float, high: float) -> Safe:
    name = f"cluster {majority.cluster}"
    if majority.size:
        picture = el("img", src=png_uri(image, low, high), alt=f"Mean of the rows of {name}")
    else:
        picture = el("span", "empty", class_="blank")
    lines = [el("strong", name), el("span", count(majority.size, "row"))]
    if majority.name is not None:
        lines.append(el("span", f"{percent(majority.share)} class {majority.name}"))
    return el("figure", picture, el("figcaption", *lines))


def _features(run: Run, values: Array, labels: Labels) -> Safe:
    chosen = tallies.telling_features(values, labels, FEATURES_SHOWN)
    rows = [row(run.facts.feature_names[j], *_shaded(values[:, j])) for j in chosen]
    few = len(chosen) < values.shape[1]
    which = f"{len(chosen)} of {values.shape[1]} features" if few else "All features"
    head = ("feature", *range(len(values)))
    return join(
        (
            note(f"{which}, those first on which the clusters' means lie farthest apart."),
            table("Mean of each feature in each cluster", head, rows, "heat", over="cluster"),
        )
    )


def _shaded(values: Array) -> list[Safe]:
    """A feature's mean in each cluster, from the least to the greatest of them."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    cells = []
    for value in values.tolist():
        if math.isnan(value):
            cells.append(el("td", "empty", class_="none"))
        else:
            share = (value - low) / (high - low or 1.0)
            cells.append(el("td", number(value), style=f"--share:{share:.2f}"))
    return cells

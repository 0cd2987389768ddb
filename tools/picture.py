"""Draw the README's picture from a real run: who has which digits, and what they find together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import coterie as ct
from coterie.backend import Array
from docs import ROOT

CELL, PIXEL, GAP = 13, 8, 14
INK, PAPER, FAINT = "#1b2a41", "#ffffff", "#6b7a90"
LEFT, TOP = 60, 74


def main() -> None:
    """Run, and draw."""
    X, y = ct.datasets.load_digits()
    clients = ct.partition.by_classes(y, n_clients=20, random_state=0)
    model = ct.FedMGS(n_clusters=10, random_state=0).fit(X, clients=clients)
    accuracy = ct.metrics.clustering_accuracy(y, model.labels_)
    owned = np.zeros((20, 10))
    np.add.at(owned, (clients, y), 1)
    sizes = np.bincount(model.labels_, minlength=10)
    parts = [*owners(owned), *arrow(), *clusters(model.cluster_means_, sizes), *caption(accuracy)]
    write(ROOT / "docs" / "picture.svg", parts)


def owners(owned: Array) -> Iterator[str]:
    """Clients by digits: how many images of each digit each client has."""
    yield text(LEFT, 30, "Twenty clients, two digits each", 15, bold=True)
    yield text(LEFT, 48, "rows: clients, columns: digits", 11, FAINT)
    for digit in range(10):
        yield text(LEFT + digit * CELL + 4, TOP - 6, str(digit), 10, FAINT)
    for client, row in enumerate(owned):
        for digit, count in enumerate(row):
            x, y = LEFT + digit * CELL, TOP + client * CELL
            yield square(x, y, CELL - 1, shade(count / owned.max(), "#e9eef5", "#1f5fa8"))


def arrow() -> Iterator[str]:
    """What goes between them."""
    y = TOP + 10 * CELL
    yield f'<path d="M215 {y}h96m-10 -7l10 7l-10 7" fill="none" stroke="{INK}" stroke-width="2"/>'
    yield text(222, y - 14, "only sums", 12)
    yield text(222, y + 24, "no row", 12)
    yield text(222, y + 40, "moves", 12)


def clusters(means: Array, sizes: Array) -> Iterator[str]:
    """The mean image of each cluster, and how many rows it has."""
    left = 340
    yield text(left, 30, "Ten clusters, found together", 15, bold=True)
    yield text(left, 48, "mean image of each, and its rows", 11, FAINT)
    for k, (mean, size) in enumerate(zip(means, sizes, strict=True)):
        x0 = left + (k % 5) * (8 * PIXEL + GAP)
        y0 = TOP + (k // 5) * (8 * PIXEL + 44)
        for pixel, value in enumerate(mean / means.max()):
            x, y = x0 + pixel % 8 * PIXEL, y0 + pixel // 8 * PIXEL
            yield square(x, y, PIXEL, shade(value, "#f4f6f9", INK))
        yield text(x0, y0 + 8 * PIXEL + 14, f"{size} rows", 10, FAINT)


def caption(accuracy: float) -> Iterator[str]:
    """What came out."""
    words = f"{accuracy:.0%} of 1,797 images land with their digit. Drawn by tools/picture.py."
    yield text(340, TOP + 2 * (8 * PIXEL + 44) + 14, words, 12)


def shade(value: float, low: str, high: str) -> str:
    """A colour between two."""
    ends = [np.array([int(c[i : i + 2], 16) for i in (1, 3, 5)]) for c in (low, high)]
    mixed = ends[0] + (ends[1] - ends[0]) * float(np.clip(value, 0, 1))
    return "#" + "".join(f"{int(v):02x}" for v in mixed.round())


def square(x: float, y: float, side: float, colour: str) -> str:
    """A filled square."""
    return f'<rect x="{x}" y="{y}" width="{side}" height="{side}" fill="{colour}"/>'


def text(
    x: float, y: float, words: str, size: int, colour: str = INK, *, bold: bool = False
) -> str:
    """A line of text."""
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}"{weight}>{words}</text>'


def write(path: Path, parts: list[str]) -> None:
    """Write the picture."""
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 350" '
        'font-family="system-ui, sans-serif" role="img" '
        'aria-label="Twenty clients with two digits each, and the ten clusters found together">'
        f'<rect width="760" height="350" fill="{PAPER}"/>'
    )
    path.write_text("\n".join([head, *parts, "</svg>\n"]), encoding="utf-8")


if __name__ == "__main__":
    main()

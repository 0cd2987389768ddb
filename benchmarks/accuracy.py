"""``python -m benchmarks.accuracy``: how well defaults cluster, beside k-means on pooled rows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.cluster import KMeans

import coterie as ct
from coterie.backend import Array
from coterie.errors import DatasetError

SEEDS = range(5)


@dataclass(frozen=True)
class Setting:
    """Rows, their owners by seed, and how many clusters."""

    name: str
    X: Any
    y: Array
    n_clusters: int
    owners: Callable[[int], Array]


def settings() -> Iterator[Setting]:
    """The sets on which defaults are judged; those that are not on this machine are left out."""
    X, y = ct.datasets.make_onmf(2000, 200, 10, random_state=0)
    alike = ct.partition.by_similarity(X, 20, 0)
    yield Setting("synthetic, 20 clients by similarity", X, y, 10, lambda seed: alike)
    X, y = ct.datasets.load_digits()
    yield two_classes("digits, 20 clients of two classes", X, y, 20)
    for name, load, rows, clients in (
        ("MNIST 10k", ct.datasets.load_mnist, 10_000, 100),
        ("Fashion-MNIST 4k", ct.datasets.load_fashion_mnist, 4_000, 50),
    ):
        try:
            X, y = load(download=False)
        except DatasetError:
            continue
        X, y = X[:rows], y[:rows]
        yield two_classes(f"{name}, {clients} clients of two classes", X, y, clients)


def two_classes(name: str, X: Array, y: Array, n_clients: int) -> Setting:
    """Two classes at each client, dealt out anew for every seed."""
    return Setting(name, X, y, 10, lambda seed: ct.partition.by_classes(y, n_clients, seed))


def main() -> None:
    """Run, and print a table of means over the seeds."""
    table = Table("rows", "FedMGS", "rounds", "s", "one start", "rounds ", "k-means", "best of 10")
    for setting in settings():
        best, single = (fit_all(setting, n_init) for n_init in (3, 1))
        pooled = [kmeans(setting, n) for n in (1, 10)]
        table.add_row(setting.name, *best, *single[:2], *pooled)
    Console(width=130).print(table)


def fit_all(setting: Setting, n_init: int) -> tuple[str, str, str]:
    """Accuracy, rounds and seconds of FedMGS."""
    scores, n_rounds, seconds = [], [], []
    for seed in SEEDS:
        model = ct.FedMGS(n_clusters=setting.n_clusters, n_init=n_init, random_state=seed)
        began = time.perf_counter()
        model.fit(setting.X, clients=setting.owners(seed))
        seconds.append(time.perf_counter() - began)
        scores.append(ct.metrics.clustering_accuracy(setting.y, model.labels_))
        n_rounds.append(model.n_rounds_)
    means = (statistics.mean(values) for values in (scores, n_rounds, seconds))
    score, count, took = means
    return f"{score:.3f} ± {np.std(scores):.3f}", f"{count:.0f}", f"{took:.2f}"


def kmeans(setting: Setting, n_init: int) -> str:
    """Accuracy of k-means on the pooled rows."""
    scores = [
        ct.metrics.clustering_accuracy(
            setting.y,
            KMeans(setting.n_clusters, n_init=n_init, random_state=s).fit_predict(setting.X),
        )
        for s in SEEDS
    ]
    return f"{statistics.mean(scores):.3f}"


if __name__ == "__main__":
    main()

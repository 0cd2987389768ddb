"""What there is to count in a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.optimize import linear_sum_assignment

from coterie.backend import Array
from coterie.protocol import Traffic
from coterie.report.reading import Exchange, Labels, Run


@dataclass(frozen=True, eq=False)
class Grid:
    """Counts with a name for each row and a cluster for each column."""

    names: tuple[str, ...]
    clusters: tuple[int, ...]
    counts: Array
    matched: frozenset[tuple[int, int]] = frozenset()  # (row, column) that belong together

    def ordered(self, rows: Array, columns: Array) -> Grid:
        """The same in another order, or a part of it; what matches is left behind."""
        return Grid(
            tuple(self.names[i] for i in rows),
            tuple(self.clusters[j] for j in columns),
            self.counts[np.ix_(rows, columns)],
        )


@dataclass(frozen=True)
class Majority:
    """A cluster's size, and the class that most of its rows have, where classes are known."""

    cluster: int
    size: int
    name: str | None
    share: float


@dataclass(frozen=True)
class PhaseTraffic:
    """What the exchanges of a phase carried."""

    phase: str
    exchanges: int
    asked: int
    replied: int
    traffic: Traffic


def crossed(rows: Array, columns: Array, shape: tuple[int, int]) -> Array:
    """How often each pair occurs."""
    counts = np.zeros(shape, dtype=np.int64)
    np.add.at(counts, (rows, columns), 1)
    return counts


def clusters_by_client(labels: Labels, most: int) -> Grid:
    """Rows of each client in each cluster, for the `most` largest clients.

    Clients that are alike stand together, and so do clusters.
    """
    shape = (len(labels.client_ids), labels.n_clusters)
    counts = crossed(labels.clients, labels.clusters, shape)
    grid = Grid(labels.client_ids, tuple(range(labels.n_clusters)), counts)
    largest = np.argsort(-counts.sum(1), kind="stable")[:most]
    grid = grid.ordered(largest, np.arange(labels.n_clusters))
    rows = _alike(grid.counts / grid.counts.sum(1, keepdims=True))
    places = np.arange(len(rows))
    counts = grid.counts[rows]
    totals = counts.sum(0)
    centre = np.where(totals > 0, places @ counts / np.maximum(totals, 1), len(rows))
    return grid.ordered(rows, np.argsort(centre, kind="stable"))


def _alike(shares: Array) -> Array:
    """An order in which rows that are alike are neighbours."""
    if len(shares) < 3:
        return np.arange(len(shares))
    return np.asarray(leaves_list(linkage(shares, "average", optimal_ordering=True)))


def confusion(labels: Labels) -> Grid | None:
    """Rows of each class in each cluster; a class and its cluster meet on the diagonal."""
    if labels.classes is None:
        return None
    shape = (len(labels.class_names), labels.n_clusters)
    counts = crossed(labels.classes, labels.clusters, shape)
    rows, columns = linear_sum_assignment(counts, maximize=True)
    others = np.setdiff1d(np.arange(labels.n_clusters), columns)
    grid = Grid(labels.class_names, tuple(range(labels.n_clusters)), counts)
    grid = grid.ordered(np.arange(shape[0]), np.concatenate([columns, others]))
    return replace(grid, matched=frozenset((int(row), j) for j, row in enumerate(rows)))


def accuracy(labels: Labels) -> float | None:
    """Fraction of rows in the cluster of their class, where classes are known."""
    grid = confusion(labels)
    if grid is None:
        return None
    return float(sum(grid.counts[place] for place in grid.matched) / len(labels.clusters))


def majorities(labels: Labels) -> list[Majority]:
    """What each cluster holds."""
    sizes = np.bincount(labels.clusters, minlength=labels.n_clusters)
    if labels.classes is None:
        return [Majority(k, int(size), None, 0.0) for k, size in enumerate(sizes)]
    shape = (labels.n_clusters, len(labels.class_names))
    counts = crossed(labels.clusters, labels.classes, shape)
    found = []
    for k, size in enumerate(sizes.tolist()):
        first = int(counts[k].argmax())
        name = labels.class_names[first] if size else None
        found.append(Majority(k, size, name, float(counts[k, first] / max(size, 1))))
    return found


def telling_features(means: Array, labels: Labels, most: int) -> Array:
    """The features on which the clusters' means lie farthest apart, the farthest first."""
    sizes = np.bincount(labels.clusters, minlength=len(means))
    held = sizes > 0
    weights = sizes[held] / sizes.sum()
    spread = weights @ (means[held] - weights @ means[held]) ** 2
    return np.argsort(-spread, kind="stable")[:most]


def traffic_by_phase(exchanges: Iterable[Exchange]) -> list[PhaseTraffic]:
    """What each phase carried, in the order in which phases first came."""
    phases: dict[str, PhaseTraffic] = {}
    for record in (e.record for e in exchanges):
        so_far = phases.get(record.phase, PhaseTraffic(record.phase, 0, 0, 0, Traffic()))
        phases[record.phase] = PhaseTraffic(
            record.phase,
            so_far.exchanges + 1,
            so_far.asked + record.asked,
            so_far.replied + record.replied,
            so_far.traffic + record.traffic,
        )
    return list(phases.values())


@dataclass(frozen=True)
class Series:
    """A measure of a run: its value after rounds, and what had been sent up by then."""

    rounds: list[int]
    sent_up: list[int]
    values: list[float]


def series(run: Run, measure: str) -> Series:
    """The course of a measure; empty where the run does not record it."""
    rounds, sent_up, values = [], [], []
    up = 0
    for exchange in run.exchanges:
        up += exchange.record.bytes_up
        if measure in exchange.measures:
            rounds.append(exchange.record.round)
            sent_up.append(up)
            values.append(exchange.measures[measure])
    return Series(rounds, sent_up, values)

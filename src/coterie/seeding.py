"""k-means as a start: at many clients at once, and on the server over what they found."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from coterie.backend import Array, host
from coterie.block import Block
from coterie.random import Stream

SAMPLE = 1024  # rows of a client that its k-means looks at
LLOYD_STEPS = 10
TINY = 1e-30  # of a client's energy: keeps a row's chance above zero where all rows are alike
NEVER = 8.0  # of a client's energy: added to the distance of a center that it may not use


def local_centers(block: Block, n_clusters: int, rng: Stream) -> tuple[Array, Array]:
    """k-means of every client on its own rows: (C, K, M) and the rows of each center, (C, K).

    A client of n rows finds at most n // 2 centers, and the others count no rows. A client of
    more than 1,024 rows looks at that many of them. A center of one row that was looked at is
    that row: it counts none.
    """
    seen = _sample(block, rng)
    if block.n_clients == 0:
        return np.zeros((0, n_clusters, block.n_features)), np.zeros((0, n_clusters))
    most = np.clip(seen.sizes // 2, 1, n_clusters)[:, None]
    numbers = seen.put(np.arange(n_clusters))

    def kernel(x: Any, real: Any, u: Any, k: Any) -> tuple[Any, Any, Any]:
        centers = _plus_plus(x, real, u, seen)
        forbidden = (numbers >= k) * (NEVER * (x * x).sum(2).sum(1)[:, None])
        counts = u
        for _ in range(LLOYD_STEPS):
            centers, counts = _lloyd_step(x, real, centers, forbidden, numbers)
        return {}, {"centers": centers, "counts": counts}, {}

    ones = seen.put(np.ones(seen.n_rows))
    _, found, _ = seen.map_clients(kernel, ones, clients=(rng.clients(block, n_clusters), most))
    counts = host(found["counts"]).astype(np.float64)
    counts = np.where(counts < 2, 0.0, counts * (block.sizes / seen.sizes)[:, None])
    return host(found["centers"]).astype(np.float64), counts


def _sample(block: Block, rng: Stream) -> Block:
    """At most SAMPLE rows of each client, drawn evenly."""
    if block.sizes.max(initial=0) <= SAMPLE:
        return block
    chance = host(rng.rows(block))[:, 0]
    owner = block.owner
    order = np.lexsort((chance, owner))
    rank = np.arange(len(order)) - block.offsets[owner]
    return block.pick(np.sort(order[rank < SAMPLE]))


def _plus_plus(x: Any, real: Any, u: Any, block: Block) -> Any:
    """k-means++ seeds of stacked clients, (G, K, M); `real` is one for rows, zero for padding."""
    row_numbers = block.put(np.arange(x.shape[1], dtype=np.float64))
    last = real.sum(1) - 1
    energy = (x * x).sum(2)
    least = TINY * energy.sum(1)[:, None]
    centers = block.empty((x.shape[0], u.shape[1], x.shape[2]), x)
    closest = real
    for k in range(u.shape[1]):
        chance = ((closest + least) * real).cumsum(1)
        before = (chance <= u[:, k : k + 1] * chance[:, -1:]) * real
        drawn = before.sum(1).clip(max=last)
        chosen = (row_numbers == drawn[:, None]) * real
        center = chosen[:, None, :] @ x
        centers[:, k : k + 1] = center
        distance = energy - 2 * (x @ center.mT)[:, :, 0] + (center * center).sum(2)
        closer = distance if k == 0 else closest - (closest - distance).clip(min=0)
        closest = closer.clip(min=0)
    return centers


def _lloyd_step(x: Any, real: Any, centers: Any, forbidden: Any, numbers: Any) -> tuple[Any, Any]:
    """One step of Lloyd's for stacked clients; a center without rows stays where it is."""
    distance = ((centers * centers).sum(2) + forbidden)[:, None, :] - 2 * (x @ centers.mT)
    mine = (distance.argmin(2)[:, :, None] == numbers) * real[:, :, None]
    counts = mine.sum(1)
    means = (mine.mT @ x) / counts.clip(min=1)[:, :, None]
    return centers + (counts > 0)[:, :, None] * (means - centers), counts


def weighted_kmeans(
    points: Array, weights: Array, n_clusters: int, rng: np.random.Generator, restarts: int
) -> Array:
    """Centers of weighted points, (K, M), by scikit-learn's k-means on one thread.

    One thread: its threads add up in the order in which they finish, and a run must repeat. Where
    there are not more distinct points than clusters, they are the centers, and the missing ones
    are drawn around their mean.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    by_value = np.lexsort(points.T[::-1])  # so that the order of clients does not matter
    points, weights = points[by_value], weights[by_value]
    distinct = np.unique(points, axis=0)
    if len(distinct) <= n_clusters:
        missing = n_clusters - len(distinct)
        mean = np.average(points, axis=0, weights=weights)
        return np.concatenate([distinct, mean * rng.uniform(0, 2, size=(missing, len(mean)))])
    model = KMeans(n_clusters, n_init=restarts, random_state=int(rng.integers(2**31)))
    with threadpool_limits(1), warnings.catch_warnings():
        # Points that differ by rounding only: some centers are then alike, and nobody need know.
        warnings.simplefilter("ignore", ConvergenceWarning)
        centers: Array = model.fit(points, sample_weight=weights).cluster_centers_
    return centers

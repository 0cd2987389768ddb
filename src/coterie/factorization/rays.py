"""What centers of a factorisation mean for a row: the nearest ray, and memberships.

A center stands for all its multiples. The distance of a row x to the ray of w is
``min over h ≥ 0 of ‖x − h w‖²  =  ‖x‖² − [xᵀw]₊² / ‖w‖²``, so the nearest ray is that of the
largest ``[xᵀw]₊ / ‖w‖``; ties go to the lowest number. A product of matrices rounds a row's
entries differently from place to place, so what differs by rounding only is a tie: a row's label
does not depend on the rows beside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.backend import Array, host, is_torch
from coterie.block import Block
from coterie.factorization.memberships import MembershipSteps, inverse, products, split

TRANSFORM_STEPS = 500
ROUNDING = 32 * float(np.finfo(np.float64).eps)  # of a row's norm: nearer than this is a tie


def directions(centers: Array, offset: float, n_features: int) -> tuple[Array, Array]:
    """`split` of the centers at length one; a zero center stays zero."""
    length = np.sqrt((centers**2).sum(-1, keepdims=True))
    return split(centers * inverse(length), offset, n_features)


class _Nearest:
    """Finds in a kernel the ray along which each row reaches furthest, the lowest among equals.

    In float64 whatever the rows are in: rays far from the origin differ by little.
    """

    def __init__(self, block: Block, centers: Array, offset: float) -> None:
        n_clusters = centers.shape[1]
        weights, constant = directions(centers, offset, block.n_features)
        self._weights, self._constant = block.move(weights), block.move(constant)
        self._one_hot = block.move(np.eye(n_clusters))
        self._lowest_first = block.move(np.arange(n_clusters, 0.0, -1.0))
        self._offset = offset
        self._n_starts = len(centers)

    def __call__(self, x: Any, *, ahead: bool) -> tuple[Any, Any, Any]:
        """Labels and reaches, (R, n), and ‖x‖² of each row, (n,); `ahead`: no reach below 0."""
        x = x.double() if is_torch(x) else x.astype(np.float64, copy=False)
        along = products(x, self._weights, self._constant, self._n_starts)
        along = along.clip(min=0) if ahead else along
        energy = (x * x).sum(1) + self._offset**2
        furthest = self._reach(along, along.argmax(2))
        near = along >= (furthest - ROUNDING * energy**0.5)[:, :, None]
        label = (near * self._lowest_first).argmax(2)
        return label, self._reach(along, label), energy

    def _reach(self, along: Any, label: Any) -> Any:
        return (along * self._one_hot[label]).sum(2)


def nearest(block: Block, centers: Array, offset: float) -> tuple[Array, Array]:
    """The nearest ray of each row, (N, R), and the error of all rows, (R,)."""
    find = _Nearest(block, centers, offset)

    def kernel(x: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        label, reach, energy = find(x, ahead=True)
        error = energy.sum() - (reach * reach).sum(1)
        return {"label": label.swapaxes(0, 1)}, {"error": error}

    rows, sums = block.map_rows(kernel)
    return host(rows["label"]), np.asarray(sums["error"])


def soft_nearest(block: Block, centers: Array, offset: float) -> Any:
    """Memberships to start from, (N, R, K): half in the nearest ray's cluster, half spread."""
    n_clusters = centers.shape[1]
    start = block.put(0.5 * np.eye(n_clusters) + 0.5 / n_clusters)
    find = _Nearest(block, centers, offset)

    def kernel(x: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        label, _, _ = find(x, ahead=False)
        return {"h": start[label].swapaxes(0, 1)}, {}

    rows, _ = block.map_rows(kernel)
    return rows["h"]


def memberships(block: Block, centers: Array, a: Array, offset: float) -> Array:
    """Memberships with the centers (1, K, M') fixed, (N, K), for curvature `a`.

    Steps from `soft_nearest`, the same number for every row, so that a row's memberships do not
    depend on which rows are beside it.
    """
    steps = MembershipSteps(block, centers, a, offset=offset, n_steps=TRANSFORM_STEPS)

    def kernel(x: Any, start: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"h": steps(x, start.swapaxes(0, 1))[0]}, {}

    rows, _ = block.map_rows(kernel, soft_nearest(block, centers, offset))
    return host(rows["h"])

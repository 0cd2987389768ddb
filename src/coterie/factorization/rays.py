"""What centers of a factorisation mean for a row: the nearest ray, and memberships.

A center stands for all its multiples. The distance of a row x to the ray of w is
``min over h ≥ 0 of ‖x − h w‖²  =  ‖x‖² − [xᵀw]₊² / ‖w‖²``, so the nearest ray is that of the
largest ``[xᵀw]₊ / ‖w‖``; ties go to the lowest number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.backend import Array, host
from coterie.block import Block
from coterie.factorization.memberships import MembershipSteps, inverse, products, split

TRANSFORM_STEPS = 500


def directions(centers: Array, offset: float, n_features: int) -> tuple[Array, Array]:
    """`split` of the centers at length one; a zero center stays zero."""
    length = np.sqrt((centers**2).sum(-1, keepdims=True))
    return split(centers * inverse(length), offset, n_features)


def nearest(block: Block, centers: Array, offset: float) -> tuple[Array, Array]:
    """The nearest ray of each row, (N, R), and the error of all rows, (R,)."""
    weights, constant = block.put(*directions(centers, offset, block.n_features))
    one_hot = block.put(np.eye(centers.shape[1]))

    def kernel(x: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        along = products(x, weights, constant, len(centers)).clip(min=0)
        label = along.argmax(2)
        taken = (along * along * one_hot[label]).sum(2).sum(1)
        energy = (x * x).sum() + x.shape[0] * offset**2
        return {"label": label.swapaxes(0, 1)}, {"error": energy - taken}

    rows, sums = block.map_rows(kernel)
    return host(rows["label"]), np.asarray(sums["error"])


def soft_nearest(block: Block, centers: Array, offset: float) -> Any:
    """Memberships to start from, (N, R, K): half in the nearest ray's cluster, half spread."""
    weights, constant = block.put(*directions(centers, offset, block.n_features))
    n_clusters = centers.shape[1]
    start = block.put(0.5 * np.eye(n_clusters) + 0.5 / n_clusters)

    def kernel(x: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        label = products(x, weights, constant, len(centers)).argmax(2)
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

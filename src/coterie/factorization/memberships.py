"""Steps on memberships (at the clients) and on centers (at the server).

The gradient of F over the memberships of client p, times N_p/2 and with rows as samples, is
``H A − X Wᵀ`` with ``A = W Wᵀ + (N/2)(ρ(J − I) + νI)``: one step is ``[H − rate (H A − X Wᵀ)]₊``.
Scaled steps have one rate for all clients, the inverse of 0.51 λmax(A), so that a step is one
small product: ``[H T + B]₊``. Printed steps, ``1/c_p`` with c_p = ½ λmax(WᵀW) and the gradient of
F_p, come out as 2/N_p times that gradient over c_p: each client has a rate of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.backend import Array
from coterie.block import Block

MARGIN = 0.51  # of the largest eigenvalue: a half is the edge of stability
CENTER_MARGIN = 0.501


def curvature(centers: Array, penalty: Array, ridge: float, n: int) -> Array:
    """A, for each start: (R, K, K)."""
    n_clusters = centers.shape[1]
    overlap = np.ones((n_clusters, n_clusters)) - np.eye(n_clusters)
    quadratic = penalty[:, None, None] * overlap + ridge * np.eye(n_clusters)
    return centers @ centers.mT + n / 2 * quadratic


def largest_eigenvalue(matrices: Array) -> Array:
    """Of each symmetric matrix of a stack, (R,)."""
    return np.linalg.eigvalsh(matrices)[:, -1]


def inverse(values: Array) -> Array:
    """1 / values, and 0 where a value is not positive, or too small: such a step stands still."""
    least = np.finfo(np.float64).tiny
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > least)


def scaled_step(a: Array) -> tuple[Array, Array]:
    """T and the rate of a scaled step, (R, K, K) and (R,)."""
    rate = inverse(MARGIN * largest_eigenvalue(a))
    return np.eye(a.shape[1]) - rate[:, None, None] * a, rate


def printed_rate(centers: Array, sizes: Array) -> Array:
    """The rate of a printed step, (C, R): 2/N_p over ½ λmax(WᵀW)."""
    return 2 / sizes[:, None] * inverse(largest_eigenvalue(centers @ centers.mT) / 2)


def split(centers: Array, offset: float, n_features: int) -> tuple[Array, Array]:
    """Centers (R, K, M') as a matrix for products with rows, (M, R·K), and what the offset adds."""
    stacked = centers.reshape(-1, centers.shape[-1])
    constant = offset * stacked[:, n_features] if offset else np.zeros(len(stacked))
    return stacked[:, :n_features].T, constant


def products(x: Any, weights: Any, constant: Any, n_starts: int) -> Any:
    """Rows times centers, (R, n, K); a view of one product."""
    both = x @ weights + constant
    return both.reshape(x.shape[0], n_starts, both.shape[1] // n_starts).swapaxes(0, 1)


class MembershipSteps:
    """Several steps on the memberships of a block's rows, for a kernel.

    Call it with a piece of rows, their memberships (R, n, K), and its piece of `rates`, columns
    that go along with the rows (none for scaled steps).
    """

    def __init__(
        self,
        block: Block,
        centers: Array,
        a: Array,
        *,
        offset: float,
        n_steps: int,
        printed: bool = False,
    ) -> None:
        self._n_steps = n_steps
        self._n_starts = len(centers)
        self.rates: tuple[Any, ...] = ()
        if printed:
            self.rates = (block.spread(printed_rate(centers, block.sizes)),)
            self._matrix = block.put(a)
        else:
            step, rate = scaled_step(a)
            self._matrix = block.put(step)
            centers = centers * rate[:, None, None]
        self._weights, self._constant = block.put(*split(centers, offset, block.n_features))

    def __call__(self, x: Any, h: Any, *rates: Any) -> Any:
        """The memberships after the steps."""
        pull = products(x, self._weights, self._constant, self._n_starts)
        for rate in rates:
            each = rate.T[:, :, None]
            for _ in range(self._n_steps):
                h = (h - each * (h @ self._matrix - pull)).clip(min=0)
            return h
        for _ in range(self._n_steps):
            h = (h @ self._matrix + pull).clip(min=0)
        return h


def center_steps(
    centers: Array, gram: Array, cross: Array, n_steps: int, low: Array, high: Array, divisor: Array
) -> Array:
    """Projected steps of the server, with the curvature over `divisor` as their size.

    Scaled steps divide by ``0.501 λmax(gram)``. One start after another: their matrices are small,
    and a stacked product of small matrices does not use BLAS well.
    """
    out = centers.copy()
    moved = np.empty_like(out[0])
    for w, g, c, rate in zip(out, gram, cross, inverse(divisor), strict=True):
        keep, pull = np.eye(len(w)) - rate * g, rate * c
        for _ in range(n_steps):
            np.matmul(keep, w, out=moved)
            moved += pull
            np.clip(moved, low, high, out=w)
    return out

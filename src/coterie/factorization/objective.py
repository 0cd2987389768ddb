r"""The objective of the factorisation papers, from sums that the server has.

With rows as samples, memberships H (N×K), centers W (K×M), ``gram`` = HᵀH and ``cross`` = HᵀX::

    F(W, H) = ‖X − HW‖² / N + (ρ/2) Σ_j [(1ᵀh_j)² − ‖h_j‖²] + (ν/2) ‖H‖²

    ‖X − HW‖² = ‖X‖² − 2 ⟨cross, W⟩ + ⟨gram, W Wᵀ⟩
    Σ_j (1ᵀh_j)² = 1ᵀ gram 1            ‖H‖² = trace gram

so that it is exact at the server without another message. Arrays have a leading axis of starts
that run side by side.
"""

from __future__ import annotations

import numpy as np

from coterie.backend import Array

EMPTY = 1e-12  # of the largest cluster's squared norm


def trace(matrices: Array) -> Array:
    """Trace of each of a stack of matrices."""
    return np.asarray(np.einsum("rkk->r", matrices))


def objective(
    centers: Array, gram: Array, cross: Array, energy: float, n: int, penalty: Array, ridge: float
) -> Array:
    """F for each start, (R,)."""
    fit = energy - 2 * (cross * centers).sum((1, 2)) + (gram * (centers @ centers.mT)).sum((1, 2))
    overlap = gram.sum((1, 2)) - trace(gram)
    return np.asarray(fit / n + penalty / 2 * overlap + ridge / 2 * trace(gram))


def orthogonality(gram: Array) -> Array:
    """Root mean square cosine between the memberships of two clusters, (R,): 0 when hard.

    Of a cluster that all rows have left, rounding leaves something in the sums; it counts as empty.
    """
    n_clusters = gram.shape[-1]
    squares = np.einsum("rkk->rk", gram)
    norms = np.sqrt(np.where(squares > EMPTY * squares.max(1, keepdims=True), squares, 0.0))
    scale = norms[:, :, None] * norms[:, None, :]
    cosines = np.divide(gram, scale, out=np.zeros_like(gram), where=scale > 0)
    off = (cosines**2).sum((1, 2)) - np.einsum("rkk->rk", cosines**2).sum(1)
    return np.asarray(np.sqrt(np.maximum(off, 0) / max(n_clusters * (n_clusters - 1), 1)))


def relative_change(new: Array, old: Array) -> Array:
    """|new − old| / |old|, and 0 where both are 0."""
    change = np.abs(new - old)
    blank = np.where(change > 0, np.inf, 0.0)
    return np.asarray(np.divide(change, np.abs(old), out=blank, where=old != 0))

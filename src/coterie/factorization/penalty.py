"""The penalty's schedule: where it starts, when it grows, where it stops (the papers' SNCP).

Small penalties let rows spread over clusters while centers settle; growing ones drive each row
into one cluster. Arrays have an axis of starts that run side by side.
"""

from __future__ import annotations

import numpy as np

from coterie.backend import Array
from coterie.factorization.declaration import Factorization

FIRST = 0.01  # of the data's scale, 2/N · mean squared norm: the start is near a solution
FIRST_BLIND = 0.001  # the start knows nothing of the clusters
MOST = 100.0  # of the data's scale
SWEEPS = 5  # times that all rows are seen before the penalty grows


def first_penalty(p: Factorization, mean_energy: float, n: int, *, informed: bool) -> float:
    """The penalty of the first round. `mean_energy` is the mean squared norm of a row."""
    if p.penalty == "auto":
        return (FIRST if informed else FIRST_BLIND) * 2 / n * mean_energy
    return 1e-8 * mean_energy if p.penalty == "as-published" else float(p.penalty)


def most_penalty(p: Factorization, mean_energy: float, n: int, *, everyone: bool) -> float:
    """The penalty that is never passed."""
    if p.penalty_max == "auto":
        return MOST * 2 / n * mean_energy
    if p.penalty_max == "as-published":
        return mean_energy * (1 if everyone else 100)
    return float(p.penalty_max)


def grows(p: Factorization, round: int, rows_seen: float, n: int, change: Array) -> Array:  # noqa: A002
    """For which starts the penalty grows after this round.

    `rows_seen` counts rows of all cohorts since it last grew by the clock.
    """
    if p.penalty_every == "auto":
        due = rows_seen >= SWEEPS * n
    else:
        due = p.penalty_every is not None and round % p.penalty_every == 0
    by_change = change < p.penalty_tol if p.penalty_tol is not None else np.zeros(len(change), bool)
    return np.logical_or(due, by_change)


def grown(p: Factorization, penalty: Array, which: Array, most: float) -> Array:
    """The penalties of the next round."""
    larger = np.minimum(penalty * p.penalty_growth, np.maximum(penalty, most))
    return np.where(which, larger, penalty)

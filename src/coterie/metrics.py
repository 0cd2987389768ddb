"""Scores of a clustering against labels that someone knows."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics.cluster import contingency_matrix
from sklearn.utils.validation import column_or_1d

from coterie.errors import DataError


def clustering_accuracy(y_true: Any, y_pred: Any) -> float:
    """Fraction of rows whose cluster is that of their class, under the best matching of the two.

    Each cluster is matched with at most one class (Hungarian method), so extra clusters count as
    errors.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        Classes and clusters, of any type that can be told apart.

    Returns
    -------
    accuracy : float
        Between 0 and 1.

    Examples
    --------
    >>> from coterie.metrics import clustering_accuracy
    >>> clustering_accuracy(["a", "a", "b", "b"], [1, 1, 0, 2])
    0.75
    """
    try:
        true, found = column_or_1d(y_true), column_or_1d(y_pred)
    except ValueError as error:
        raise DataError(f"expected one class and one cluster a row: {error}") from error
    if len(true) != len(found) or len(true) == 0:
        raise DataError(
            f"{len(true)} classes and {len(found)} clusters were given; expected one of each for "
            "every row, and at least one row"
        )
    counts = contingency_matrix(true, found)
    rows, columns = linear_sum_assignment(counts, maximize=True)
    return float(np.asarray(counts)[rows, columns].sum() / len(true))

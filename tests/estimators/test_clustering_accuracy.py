"""Accuracy of a clustering under the best matching with classes."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import CoterieError, DataError
from coterie.metrics import clustering_accuracy


@pytest.mark.parametrize(
    ("true", "found", "expected"),
    [
        ([0], [5], 1.0),
        ([0, 0, 1, 1], [1, 1, 0, 0], 1.0),
        ([0, 0, 0, 0], [0, 1, 2, 3], 0.25),  # extra clusters are errors
        ([0, 1, 2, 3], [0, 0, 0, 0], 0.25),  # so are missing ones
        (["a", "a", "b", "b"], [1, 1, 0, 2], 0.75),
        (np.array(["x", "y"]), np.array([True, False]), 1.0),
        ([1.5, 1.5, 2.5], ["u", "u", "v"], 1.0),
        ([-1, -1, 7], [3, 3, 3], 2 / 3),
        (np.array([[0], [1]]), [1, 0], 1.0),
    ],
)
def test_by_hand(true: Any, found: Any, expected: float) -> None:
    score = clustering_accuracy(true, found)
    assert isinstance(score, float)
    assert score == pytest.approx(expected)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_it_is_the_best_of_all_matchings(pairs: list[tuple[int, int]]) -> None:
    true, found = np.array(pairs).T
    best = max(np.mean(np.array(match)[found] == true) for match in permutations(range(4)))
    assert clustering_accuracy(true, found) == pytest.approx(best)
    assert clustering_accuracy(found, true) == pytest.approx(best)


@pytest.mark.parametrize(
    ("true", "found"),
    [
        ([], []),
        ([0, 1], [0]),
        ([[0, 1], [1, 0]], [0, 1]),
        ([0, 1], np.zeros((2, 2))),
        (3, 3),
    ],
)
def test_labels_that_cannot_be_matched_are_refused(true: Any, found: Any) -> None:
    with pytest.raises(DataError) as caught:
        clustering_accuracy(true, found)
    assert isinstance(caught.value, CoterieError)
    assert isinstance(caught.value, ValueError)

"""Every partition scheme: who owns which row."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_equal
from scipy import sparse

from coterie.backend import Array
from coterie.data import partition
from coterie.errors import CoterieError, DataError, InputTypeError, ParameterError

Scheme = Callable[..., Array]


def anchors(X: Any, n_clients: int, random_state: Any = None) -> Array:
    return partition.by_similarity(X, n_clients, random_state, method="anchors")


def skewed(y: Any, n_clients: int, random_state: Any = None) -> Array:
    return partition.dirichlet(y, n_clients, random_state, alpha=0.01)


LABEL_SCHEMES: list[Scheme] = [
    partition.iid,
    partition.power_law,
    partition.sorted_by_label,
    partition.by_classes,
    partition.dirichlet,
    skewed,
]
ROW_SCHEMES: list[Scheme] = [partition.by_similarity, anchors]
LABELS = np.repeat(np.arange(10), np.arange(5, 105, 10))  # classes of 5, 15 ... 95 rows
ROWS = np.random.default_rng(0).normal(size=(60, 3))


def what_it_sees(scheme: Scheme) -> Array:
    return ROWS if scheme in ROW_SCHEMES else LABELS


def classes_of_clients(y: Array, clients: Array) -> list[int]:
    return [len(np.unique(y[clients == c])) for c in range(clients.max() + 1)]


# -- what all schemes promise ---------------------------------------------------------------------


@pytest.mark.parametrize("scheme", LABEL_SCHEMES)
@settings(max_examples=60, deadline=None)
@given(
    labels=st.lists(st.integers(0, 5), min_size=2, max_size=60).filter(lambda y: len(set(y)) > 1),
    data=st.data(),
)
def test_every_row_has_a_client_and_every_client_a_row(
    scheme: Scheme, labels: list[int], data: st.DataObject
) -> None:
    n_clients = data.draw(st.integers(1, len(labels)))
    clients = scheme(labels, n_clients, data.draw(st.integers(0, 9)))
    assert clients.shape == (len(labels),)
    assert clients.dtype == np.int64
    assert np.unique(clients).tolist() == list(range(n_clients))


@pytest.mark.parametrize("scheme", ROW_SCHEMES)
@settings(max_examples=20, deadline=None)
@given(n_rows=st.integers(1, 30), data=st.data())
def test_rows_that_are_alike_too(scheme: Scheme, n_rows: int, data: st.DataObject) -> None:
    n_clients = data.draw(st.integers(1, n_rows))
    clients = scheme(ROWS[:n_rows], n_clients, data.draw(st.integers(0, 9)))
    assert clients.dtype == np.int64
    assert np.unique(clients).tolist() == list(range(n_clients))


@pytest.mark.parametrize("scheme", LABEL_SCHEMES + ROW_SCHEMES)
def test_a_seed_names_one_result(scheme: Scheme) -> None:
    seen = what_it_sees(scheme)
    first = scheme(seen, 7, 3)
    before = deepcopy(np.random.get_state(legacy=False))  # noqa: NPY002
    assert np.array_equal(first, scheme(seen, 7, 3))
    assert np.array_equal(first, scheme(seen, 7, np.random.default_rng(3)))
    assert_equal(np.random.get_state(legacy=False), before)  # noqa: NPY002
    assert not np.array_equal(first, scheme(seen, 7, 4))
    assert len(scheme(seen, 7)) == len(seen)


@pytest.mark.parametrize("scheme", LABEL_SCHEMES + ROW_SCHEMES)
def test_generators_move_on(scheme: Scheme) -> None:
    seen = what_it_sees(scheme)
    legacy = np.random.RandomState(3)
    again = np.random.RandomState(3)
    first = scheme(seen, 7, legacy)
    assert np.array_equal(first, scheme(seen, 7, again))
    assert not np.array_equal(first, scheme(seen, 7, legacy))


@pytest.mark.parametrize("scheme", LABEL_SCHEMES + ROW_SCHEMES)
@pytest.mark.parametrize("n_clients", [0, -1, 2.0, "2", None, True])
def test_refuses_a_number_of_clients(scheme: Scheme, n_clients: Any) -> None:
    with pytest.raises(ParameterError, match="n_clients="):
        scheme(what_it_sees(scheme), n_clients, 0)


@pytest.mark.parametrize("scheme", LABEL_SCHEMES + ROW_SCHEMES)
def test_refuses_more_clients_than_rows(scheme: Scheme) -> None:
    with pytest.raises(DataError, match="3 rows were given for n_clients=4"):
        scheme(what_it_sees(scheme)[-3:], 4, 0)


@pytest.mark.parametrize("random_state", [-1, 0.5, "seed"])
def test_refuses_a_random_state(random_state: Any) -> None:
    with pytest.raises(ParameterError, match="random_state="):
        partition.iid(10, 2, random_state)


@pytest.mark.parametrize(
    "scheme", [partition.sorted_by_label, partition.by_classes, partition.dirichlet]
)
def test_labels_may_be_words(scheme: Scheme) -> None:
    words = np.array([f"class {label}" for label in LABELS])
    expected = scheme(LABELS, 6, 0)
    assert np.array_equal(expected, scheme(words, 6, 0))
    assert np.array_equal(expected, scheme(words.tolist(), 6, 0))
    assert np.array_equal(expected, scheme(words.astype(object), 6, 0))


@pytest.mark.parametrize(
    "scheme", [partition.sorted_by_label, partition.by_classes, partition.dirichlet]
)
def test_refuses_labels(scheme: Scheme) -> None:
    with pytest.raises(InputTypeError, match="several types"):
        scheme(["a", 1, "b", 2], 2, 0)
    with pytest.raises(CoterieError):
        scheme([0.0, np.nan, 1.0], 2, 0)
    with pytest.raises(InputTypeError):
        scheme(None, 2, 0)


# -- each on its own ------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [103, np.int64(103), LABELS[:103], sparse.eye_array(103).tocsr()])
def test_iid_is_balanced(rows: Any) -> None:
    sizes = np.bincount(partition.iid(rows, 10, 0))
    assert sizes.sum() == 103
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("rows", ["a text", True, 1.5, object()])
def test_iid_refuses_what_has_no_number_of_rows(rows: Any) -> None:
    with pytest.raises(InputTypeError, match="number of rows"):
        partition.iid(rows, 1, 0)


def test_sorted_by_label_cuts_equal_runs() -> None:
    y = np.random.default_rng(0).permutation(LABELS)
    clients = partition.sorted_by_label(y, 7, 0)
    sizes = np.bincount(clients)
    assert sizes.max() - sizes.min() <= 1
    lowest = [y[clients == c].min() for c in range(7)]
    highest = [y[clients == c].max() for c in range(7)]
    assert all(high <= low for high, low in zip(highest[:-1], lowest[1:], strict=True))


@pytest.mark.parametrize("classes_per_client", [1, 2, 3, 10])
@pytest.mark.parametrize("n_clients", [10, 17, 50])
def test_by_classes_gives_so_many_classes(n_clients: int, classes_per_client: int) -> None:
    y = np.repeat(np.arange(10), 200)
    clients = partition.by_classes(y, n_clients, 0, classes_per_client=classes_per_client)
    assert set(classes_of_clients(y, clients)) == {classes_per_client}


def test_by_classes_cuts_shards_of_about_one_size() -> None:
    y = np.repeat(np.arange(10), np.arange(100, 1100, 100))
    sizes = np.bincount(partition.by_classes(y, 50, 0))
    assert sizes.min() > 0.75 * len(y) / 50
    assert sizes.max() < 1.25 * len(y) / 50


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=2, max_size=8),
    classes_per_client=st.integers(1, 8),
    data=st.data(),
)
def test_by_classes_comes_as_near_as_it_can(
    sizes: list[int], classes_per_client: int, data: st.DataObject
) -> None:
    y = np.repeat(np.arange(len(sizes)), sizes)
    n_clients = data.draw(st.integers(1, len(y)))
    wanted = min(classes_per_client, len(sizes))
    clients = partition.by_classes(y, n_clients, 0, classes_per_client=wanted)
    counts = classes_of_clients(y, clients)
    possible = sum(min(size, n_clients) for size in sizes)
    assert sum(counts) == min(max(n_clients * wanted, len(sizes)), possible)
    assert max(counts) - min(counts) <= 1


def test_by_classes_mixes_its_pairs() -> None:
    clients = partition.by_classes(np.repeat(np.arange(10), 100), 50, 0)
    y = np.repeat(np.arange(10), 100)
    pairs = {tuple(np.unique(y[clients == c])) for c in range(50)}
    assert len(pairs) > 15


@pytest.mark.parametrize("classes_per_client", [0, 11, 1.5])
def test_by_classes_refuses(classes_per_client: Any) -> None:
    with pytest.raises(ParameterError, match="classes_per_client="):
        partition.by_classes(LABELS, 5, 0, classes_per_client=classes_per_client)


def test_large_alpha_is_as_iid_and_small_alpha_gives_few_classes() -> None:
    y = np.repeat(np.arange(10), 200)
    even = partition.dirichlet(y, 10, 0, alpha=1e5)
    assert set(classes_of_clients(y, even)) == {10}
    assert np.ptp(np.bincount(even)) < 0.1 * 200
    skew = partition.dirichlet(y, 10, 0, alpha=0.01)
    assert np.mean(classes_of_clients(y, skew)) < 3


@pytest.mark.parametrize("alpha", [1e-300, 1e300])
def test_extreme_alphas_leave_no_client_empty(alpha: float) -> None:
    clients = partition.dirichlet(LABELS, 20, 0, alpha=alpha)
    assert np.bincount(clients, minlength=20).min() >= 1


@pytest.mark.parametrize("value", [0, -1, np.nan, np.inf, "1", True, None])
def test_dirichlet_and_power_law_refuse(value: Any) -> None:
    with pytest.raises(ParameterError, match="alpha="):
        partition.dirichlet(LABELS, 5, 0, alpha=value)
    with pytest.raises(ParameterError, match="exponent="):
        partition.power_law(LABELS, 5, 0, exponent=value)


def test_power_law_sizes() -> None:
    sizes = np.sort(np.bincount(partition.power_law(100_000, 20, 0, exponent=2.0)))[::-1]
    share = np.arange(1, 21) ** -2.0
    assert np.allclose(sizes, 1 + (100_000 - 20) * share / share.sum(), atol=1)
    sizes = np.bincount(partition.power_law(1_000, 10, 0, exponent=1e-9))
    assert np.ptp(sizes) <= 1
    sizes = np.bincount(partition.power_law(1_000, 10, 0, exponent=1e9))
    assert sorted(sizes) == [1] * 9 + [991]


@pytest.mark.parametrize("scheme", ROW_SCHEMES)
def test_by_similarity_keeps_blobs_together(scheme: Scheme) -> None:
    blobs = np.repeat(np.eye(3) * 100, 20, axis=0) + ROWS
    clients = partition.by_similarity(blobs, 3, 0)
    assert all(len(np.unique(clients[20 * b : 20 * b + 20])) == 1 for b in range(3))
    near = anchors(blobs, 30, 0)
    for client in range(30):
        assert len(np.unique(np.flatnonzero(near == client) // 20)) == 1


@pytest.mark.parametrize("scheme", ROW_SCHEMES)
@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_by_similarity_takes_csr(scheme: Scheme, index_type: type) -> None:
    rows = np.abs(ROWS) * (ROWS > 0)
    csr = sparse.csr_array(rows)
    csr.indices, csr.indptr = csr.indices.astype(index_type), csr.indptr.astype(index_type)
    assert np.array_equal(scheme(csr, 5, 0), scheme(rows, 5, 0))


def test_by_similarity_refuses() -> None:
    with pytest.raises(ParameterError, match="method="):
        partition.by_similarity(ROWS, 3, 0, method="spectral")
    with pytest.raises(DataError, match="NaN"):
        partition.by_similarity(np.where(ROWS[0, 0] == ROWS, np.nan, ROWS), 3, 0)
    with pytest.raises(DataError, match="2 are distinct"):
        partition.by_similarity(np.repeat([[0.0], [1.0]], 10, axis=0), 3, 0)


def test_equal_anchors_keep_a_row_each() -> None:
    clients = anchors(np.zeros((10, 2)), 4, 0)
    assert np.unique(clients).tolist() == [0, 1, 2, 3]

"""What a fitted FedMGS says of rows: nearest rays, and memberships with the centers fixed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import nnls

import coterie as ct
from coterie.data.federation import Federation
from coterie.factorization.fedmgs import FedMGSAlgorithm
from coterie.protocol import Request
from twins.fedmgs import nearest_ray, ray_errors

Array = npt.NDArray[Any]
often = settings(max_examples=60, deadline=None, derandomize=True)

X, Y = ct.datasets.make_onmf(200, 9, 4, snr_db=5, random_state=0)
IDS = np.random.default_rng(0).integers(7, size=200)


def assign(rows: Any, centers: Any, offset: float = 0.0) -> list[int]:
    """Labels by centers that a model publishes."""
    model = Request(
        "model", 1, {"centers": np.array(centers, dtype=float), "offset": np.array(offset)}
    )
    block = Federation.from_arrays(np.asarray(rows, dtype=np.float64)).block()
    labels: list[int] = FedMGSAlgorithm().assign(model, block).tolist()
    return labels


# -- labels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [None, 1.0, 5.0])
def test_predict_is_the_nearest_ray(offset: float | None) -> None:
    model = ct.FedMGS(4, offset=offset, random_state=0).fit(X, clients=IDS)
    rows = np.random.default_rng(1).standard_normal((300, 9))
    centers = model.cluster_centers_
    rows_seen = rows
    if offset is not None:
        centers = np.hstack([centers, offset_column(model)])
        rows_seen = np.hstack([rows, np.full((300, 1), offset)])
    np.testing.assert_array_equal(model.predict(rows), nearest_ray(rows_seen, centers))
    assert len(np.unique(model.predict(rows))) == 4


def offset_column(model: ct.FedMGS) -> Array:
    """The offset's entry of each center, which a model publishes with the others."""
    column: Array = model._model["centers"][:, -1:]
    return column


@often
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 60),
    m=st.integers(1, 9),
    k=st.integers(1, 12),
    offset=st.sampled_from([0.0, 0.5, 3.0]),
)
def test_labels_are_the_twins(seed: int, n: int, m: int, k: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    rows, centers = rng.standard_normal((n, m)), rng.standard_normal((k, m + (offset > 0)))
    seen = np.hstack([rows, np.full((n, 1), offset)]) if offset else rows
    errors = ray_errors(seen, centers)
    labels = assign(rows, centers, offset)
    chosen = errors[np.arange(n), labels]
    np.testing.assert_allclose(chosen, errors.min(1), rtol=1e-9, atol=1e-12)
    clear = np.sort(errors, axis=1)
    apart = clear[:, min(1, k - 1)] - clear[:, 0] > 1e-9
    np.testing.assert_array_equal(np.asarray(labels)[apart], nearest_ray(seen, centers)[apart])


def test_ties_go_to_the_lowest_cluster() -> None:
    centers = [[0, 0], [3, 0], [0, 1], [1, 0], [0, 7]]
    rows = [[5, 0], [0, 5], [1, 1], [0, 0], [-1, -2], [2, -1]]
    assert assign(rows, centers) == [1, 2, 1, 0, 0, 1]


@often
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 400),
    m=st.integers(1, 80),
    k=st.integers(2, 24),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_equal_centers_are_a_tie_to_the_last_bit(
    seed: int, n: int, m: int, k: int, dtype: str
) -> None:
    """A matrix product may round equal columns differently."""
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((k, m))
    low, high = np.sort(rng.choice(k, 2, replace=False))
    centers[high] = centers[low]
    rows = np.abs(rng.standard_normal((n, 1))) * centers[low] + 0.1 * rng.standard_normal((n, m))
    labels = assign(rows.astype(dtype), centers)
    assert high not in labels
    assert low in labels or n < 20


@often
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 500),
    m=st.integers(1, 60),
    k=st.integers(2, 20),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_labels_do_not_depend_on_the_rows_beside(
    seed: int, n: int, m: int, k: int, dtype: str
) -> None:
    """Even for rows half way between two rays, which rounding could send either way."""
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((k, m))
    rays = centers / np.linalg.norm(centers, axis=1, keepdims=True)
    pairs = rng.integers(k, size=(n, 2))
    rows = (rng.uniform(0.5, 2, (n, 1)) * rays[pairs].sum(1)).astype(dtype)
    model = Request("model", 1, {"centers": centers, "offset": np.array(0.0)})
    algorithm = FedMGSAlgorithm()
    whole = algorithm.assign(model, Federation.from_arrays(rows).block())
    some = np.flatnonzero(rng.uniform(size=n) > 0.5)
    if len(some):
        part = algorithm.assign(model, Federation.from_arrays(rows[some]).block())
        np.testing.assert_array_equal(part, whole[some])
    gathered = Federation.from_arrays(rows, clients=rng.integers(3, size=n))
    np.testing.assert_array_equal(
        gathered.scatter(algorithm.assign(model, gathered.block())), whole
    )


@pytest.mark.parametrize("dtype", [None, "float32", "float64"])
@pytest.mark.parametrize("given_as", ["float32", "float64"])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "CSR"])
@pytest.mark.parametrize("n_clusters", [1, 2, 40, 200])
def test_labels_are_what_predict_says_of_the_same_rows(
    dtype: Any, given_as: str, kind: Any, n_clusters: int
) -> None:
    rng = np.random.default_rng(n_clusters)
    rows = kind(rng.uniform(size=(200, 3)).astype(given_as))
    model = ct.FedMGS(n_clusters, dtype=dtype, random_state=0, max_rounds=4, n_init=1)
    model.fit(rows, clients=IDS)
    np.testing.assert_array_equal(model.labels_, model.predict(rows))
    assert model.memberships_.dtype == model.transform(rows).dtype == (dtype or given_as)


# -- memberships --------------------------------------------------------------------------------


def test_transform_without_a_penalty_is_non_negative_least_squares() -> None:
    model = ct.FedMGS(
        4, penalty=0.0, ridge=0.0, penalty_growth=1.0, offset=None, max_rounds=3, random_state=0
    ).fit(X)
    rows = np.random.default_rng(1).uniform(-0.5, 1.5, (40, 9))
    expected = [nnls(model.cluster_centers_.T, row)[0] for row in rows]
    np.testing.assert_allclose(model.transform(rows), expected, atol=1e-4)


def test_transform_of_a_hard_model_has_one_membership_a_row_at_the_label() -> None:
    model = ct.FedMGS(4, random_state=0, offset=None).fit(X, clients=IDS)
    memberships = model.transform(X)
    np.testing.assert_array_equal((memberships > 0).sum(1), 1)
    np.testing.assert_array_equal(memberships.argmax(1), model.labels_)
    centers = model.cluster_centers_
    expected = (X * centers[model.labels_]).sum(1) / (centers[model.labels_] ** 2).sum(1)
    np.testing.assert_allclose(memberships.max(1), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_rows_memberships_do_not_depend_on_the_rows_beside(dtype: str) -> None:
    rows = X.astype(dtype)
    model = ct.FedMGS(4, random_state=0, max_rounds=8).fit(rows, clients=IDS)
    whole = model.transform(rows)
    assert whole.shape == (200, 4)
    assert whole.dtype == dtype
    close = 1e-9 if dtype == "float64" else 1e-5
    for some in (slice(0, 1), slice(10, 50), np.arange(199, -1, -3)):
        np.testing.assert_allclose(model.transform(rows[some]), whole[some], atol=close)
    np.testing.assert_array_equal(model.transform(rows), whole)


def test_using_a_model_does_not_change_it() -> None:
    model = ct.FedMGS(4, random_state=0).fit(X)
    before = model.cluster_centers_.copy()
    model.predict(-X)
    model.transform(3 * X)
    np.testing.assert_array_equal(model.cluster_centers_, before)
    np.testing.assert_array_equal(model.predict(X), model.labels_)

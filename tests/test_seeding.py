"""k-means of many clients at once, and of what they found."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from coterie.block import Block
from coterie.random import Stream, client_keys
from coterie.seeding import SAMPLE, local_centers, weighted_kmeans

Array = npt.NDArray[Any]

STREAM = Stream(3, 1, "client")
CENTERS = np.array([[0.0, 0, 9], [9, 0, 0], [0, 9, 0]])


def block_of(sizes: list[int], seed: int = 0, **how: Any) -> Block:
    """Rows around three far centers."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    x = CENTERS[rng.integers(3, size=n)] + rng.uniform(size=(n, 3))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Block(x, offsets, keys=client_keys(range(len(sizes))), **how)


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    n_clusters=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_centers_are_means_and_counts_are_rows(
    sizes: list[int], n_clusters: int, seed: int
) -> None:
    block = block_of(sizes, seed)
    centers, counts = local_centers(block, n_clusters, STREAM)
    assert centers.shape == (len(sizes), n_clusters, 3)
    assert centers.dtype == counts.dtype == np.float64
    assert not ((counts > 0) & (counts < 2)).any()  # a center of one row would be that row
    lonely = block.sizes - counts.sum(1)
    assert (lonely >= 0).all()
    assert (lonely + (counts > 0).sum(1) <= np.clip(block.sizes // 2, 1, n_clusters)).all()
    whole = lonely == 0
    np.testing.assert_allclose(
        (counts[:, :, None] * centers).sum(1)[whole],
        block.per_client(block.dense())[whole],
        atol=1e-9,
    )


@given(
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=7),
    order=st.randoms(use_true_random=False),
)
def test_a_client_finds_alone_what_it_finds_in_any_company(sizes: list[int], order: Any) -> None:
    block = block_of(sizes)
    centers, counts = local_centers(block, 4, STREAM)
    chosen = list(range(len(sizes)))
    order.shuffle(chosen)
    chosen = chosen[: max(1, len(sizes) // 2)]
    some_centers, some_counts = local_centers(block.take(np.array(chosen)), 4, STREAM)
    np.testing.assert_allclose(some_centers, centers[chosen], atol=1e-12)
    np.testing.assert_array_equal(some_counts, counts[chosen])


@pytest.mark.parametrize("form", ["float32", "CSR", "torch"])
def test_the_kind_of_rows_does_not_matter(form: str) -> None:
    plain, other = block_of([30, 12, 41]), block_of([30, 12, 41])
    if form == "float32":
        other.x = other.x.astype(np.float32)
    else:
        other.x = sparse.csr_array(other.x) if form == "CSR" else torch.from_numpy(other.x)
    centers, counts = local_centers(plain, 3, STREAM)
    found, rows = local_centers(other, 3, STREAM)
    np.testing.assert_allclose(found, centers, atol=1e-5 if form == "float32" else 1e-12)
    np.testing.assert_allclose(rows, counts)


def test_far_clusters_are_found() -> None:
    block = block_of([60] * 100)
    centers, counts = local_centers(block, 3, STREAM)
    nearest = np.linalg.norm(centers[:, :, None] - (CENTERS + 0.5), axis=3).min(axis=1)
    assert ((nearest < 1).all(axis=1) & (counts > 0).all(axis=1)).mean() > 0.95


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("value", [0.0, 1e-12, 1.0, 1e12])
def test_rows_that_are_all_alike_are_one_center(value: float, dtype: str) -> None:
    block = block_of([6])
    block.x = np.full((6, 3), value, dtype=dtype)
    centers, counts = local_centers(block, 3, STREAM)
    assert counts.tolist() == [[6, 0, 0]]
    np.testing.assert_allclose(centers[0, 0], value, rtol=1e-6)


def test_scale_does_not_matter() -> None:
    plain = block_of([9, 30, 4])
    centers, counts = local_centers(plain, 4, STREAM)
    for scale in (1e-20, 1e20):
        other = block_of([9, 30, 4])
        other.x = plain.x * scale
        found, rows = local_centers(other, 4, STREAM)
        np.testing.assert_allclose(found / scale, centers, atol=1e-9)
        np.testing.assert_array_equal(rows, counts)


def test_large_clients_look_at_a_sample_and_count_all_rows() -> None:
    sizes = [SAMPLE, 3 * SAMPLE, 5]
    block = block_of(sizes)
    centers, counts = local_centers(block, 3, STREAM)
    np.testing.assert_allclose(counts.sum(1), sizes)
    alone, _ = local_centers(block.take(np.array([1])), 3, STREAM)
    np.testing.assert_allclose(alone[0], centers[1], atol=1e-12)
    mean = (counts[1, :, None] * centers[1]).sum(0) / counts[1].sum()
    truth = block.dense()[SAMPLE : 4 * SAMPLE].mean(0)
    assert 1e-6 < np.abs(mean - truth).max() < 0.6


def test_nobody_finds_nothing() -> None:
    nobody = block_of([3]).take(np.zeros(0, dtype=np.int64))
    centers, counts = local_centers(nobody, 4, STREAM)
    assert centers.shape == (0, 4, 3)
    assert counts.shape == (0, 4)


def test_the_callers_rows_stay_as_they_were() -> None:
    block = block_of([9, 4])
    before = block.x.copy()
    local_centers(block, 3, STREAM)
    np.testing.assert_array_equal(block.x, before)


# -- on the server --------------------------------------------------------------------------------


def generator() -> np.random.Generator:
    return np.random.default_rng(5)


def points(n: int = 40) -> tuple[Array, Array]:
    rng = np.random.default_rng(2)
    return CENTERS[np.arange(n) % 3] + rng.uniform(size=(n, 3)), rng.uniform(0.5, 3, size=n)


@settings(max_examples=15)
@given(order=st.permutations(range(40)))
def test_the_order_of_points_does_not_matter(order: list[int]) -> None:
    x, w = points()
    one = weighted_kmeans(x, w, 3, generator(), 1)
    other = weighted_kmeans(x[order], w[order], 3, generator(), 1)
    np.testing.assert_array_equal(one, other)


def test_centers_are_weighted_means() -> None:
    x, w = points()
    found = weighted_kmeans(x, w, 3, generator(), 3)
    by_cluster = [np.average(x[k::3], axis=0, weights=w[k::3]) for k in range(3)]
    order = np.argsort(found @ [1, 2, 3])
    want = np.array(by_cluster)
    np.testing.assert_allclose(found[order], want[np.argsort(want @ [1, 2, 3])])


@pytest.mark.parametrize("n_clusters", [3, 5])
def test_few_distinct_points_are_the_centers(n_clusters: int) -> None:
    x = np.repeat(CENTERS, 4, axis=0)
    found = weighted_kmeans(x, np.ones(12), n_clusters, generator(), 1)
    assert found.shape == (n_clusters, 3)
    np.testing.assert_array_equal(found[:3], np.unique(CENTERS, axis=0))
    assert (found[3:] >= 0).all()
    assert (found[3:] <= 2 * x.mean(0)).all()
    again = weighted_kmeans(x, np.ones(12), n_clusters, generator(), 1)
    np.testing.assert_array_equal(found, again)

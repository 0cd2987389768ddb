"""`make_onmf`: the papers' synthetic model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coterie.backend import Array
from coterie.data.datasets import make_onmf
from coterie.data.datasets.synthetic import _add_noise, _published_sizes
from coterie.errors import ParameterError


def snr(signal: Array, rows: Array) -> float:
    return float(10 * np.log10(np.sum(signal**2) / np.sum((rows - signal) ** 2)))


@pytest.mark.parametrize("snr_db", [-20.0, -3.0, 0.0, 3.0, 20.0])
def test_the_ratio_is_met(snr_db: float) -> None:
    rng = np.random.default_rng(0)
    signal = rng.random((5, 40))[rng.integers(5, size=200)]
    rows = _add_noise(signal, rng.standard_normal(signal.shape), snr_db)
    assert rows.min() >= 0
    assert snr(signal, rows) == pytest.approx(snr_db, abs=2e-10)


def test_a_ratio_that_cannot_be() -> None:
    signal = np.ones((2, 3))
    with pytest.raises(ParameterError, match="snr_db=-3"):
        _add_noise(signal, -np.ones((2, 3)), -3.0)  # clipped, such noise is the signal at most


def test_by_default_rows_are_clean() -> None:
    X, y = make_onmf(3_000, 30, 6, snr_db=10, random_state=0)
    assert X.shape == (3_000, 30)
    assert X.dtype == np.float64
    assert y.dtype == np.int64
    assert X.min() >= 0
    assert X.any(axis=1).all()
    assert np.bincount(y).tolist() == pytest.approx([500] * 6, rel=0.2)
    means = np.array([X[y == k].mean(axis=0) for k in range(6)])
    assert 0 <= means.min() < 0.2
    assert 0.8 < means.max() < 1.2
    assert means.mean() == pytest.approx(0.5, abs=0.1)


def test_rows_are_in_random_order() -> None:
    _, y = make_onmf(500, 2, 3, random_state=0)
    assert 100 < np.count_nonzero(np.diff(y)) < 450


@pytest.mark.parametrize("seed", range(5))
def test_every_cluster_has_a_row(seed: int) -> None:
    _, y = make_onmf(20, 3, 20, random_state=seed)
    assert sorted(y) == list(range(20))


def test_outliers_are_rows_of_their_own() -> None:
    clean, labels = make_onmf(400, 50, 4, random_state=0)
    X, y = make_onmf(400, 50, 4, outliers=0.1, random_state=0)
    assert_array_equal(y, labels)
    hit = (clean != X).any(axis=1)
    assert hit.sum() == 40
    assert X[hit].mean() == pytest.approx(2.5, abs=0.1)
    assert X[hit].max() < 5


def test_as_published_leaves_rows_without_a_cluster() -> None:
    X, y = make_onmf(4_000, 20, 10, as_published=True, random_state=0)
    assert np.unique(y).tolist() == list(range(10))
    zero = ~X.any(axis=1)
    assert zero.sum() > 40
    assert (y[zero] == 0).all()
    outlier = X.mean(axis=1) > 1.7
    assert 0.9 * 120 < outlier.sum() <= 120  # 3 %, and some were drawn twice


def test_as_published_has_the_sizes_of_the_papers_data() -> None:
    stream = np.random.RandomState(0)  # the program's own seed
    stream.uniform(size=(2_000, 20))  # the centers come first
    sizes = _published_sizes(10_000, 20, stream)
    assert sizes[:5] == [277, 414, 548, 345, 590]
    assert 10_000 - sum(sizes) == 1_028


def test_as_published_draws_again_where_the_program_stops() -> None:
    for seed in range(30):
        sizes = _published_sizes(10_000, 20, np.random.RandomState(seed))
        assert min(sizes) >= 1
        assert sum(sizes) <= 10_000


def test_as_published_in_small() -> None:
    """Follows the program line by line, in its orientation."""
    M, N, K, seed = 30, 400, 4, 0
    stream = np.random.RandomState(seed)
    W = stream.uniform(0.0, 1.0, size=(M, K))
    sizes, left = [], N
    for i in range(K):
        low, high = max(1, 0.01 * left / (K - i)), 1.5 * left / (K - i)
        sizes.append(stream.randint(int(low), int(high)))
        left -= sizes[-1]
    assert left > 0
    H = np.zeros((K, N))
    E = np.zeros((N, M))
    ends = np.cumsum(sizes)
    for i, (end, size) in enumerate(zip(ends, sizes, strict=True)):
        H[i, end - size : end] = 1
        E[end - size : end] = stream.standard_normal((size, M))
    order = stream.choice(N, N, replace=False)
    H, E = H[:, order], E.T[:, order]
    for _ in range(60):
        E = np.maximum(0, W @ H + E) - W @ H
        E *= np.sqrt(np.sum((W @ H) ** 2) / np.sum(E**2) / 10**-0.3)
    expected = np.maximum(0, W @ H + E)
    hit = stream.randint(0, N, size=int(0.03 * N))
    outliers = stream.uniform(size=(M, len(hit)))
    for j, column in enumerate(hit):
        expected[:, column] = outliers[:, j] * 5

    X, y = make_onmf(N, M, K, as_published=True, random_state=seed)
    assert_allclose(X, expected.T, atol=1e-9)
    assert_array_equal(y, np.argmax(H, axis=0))
    assert np.count_nonzero(~X.any(axis=1)) == pytest.approx(left, abs=len(hit))


@pytest.mark.parametrize("as_published", [False, True])
def test_seeded(as_published: bool) -> None:
    def draw(random_state: Any) -> Array:
        return make_onmf(300, 4, 3, as_published=as_published, random_state=random_state)[0]

    assert_array_equal(draw(5), draw(5))
    assert (draw(5) != draw(6)).any()
    assert_array_equal(draw(np.random.default_rng(5)), draw(np.random.default_rng(5)))
    assert_array_equal(draw(np.random.RandomState(5)), draw(np.random.RandomState(5)))
    assert (draw(None) != draw(None)).any()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_samples": 2}, "n_samples=2"),
        ({"n_features": 0}, "n_features=0"),
        ({"n_clusters": 0}, "n_clusters=0"),
        ({"snr_db": np.nan}, "snr_db=nan"),
        ({"snr_db": 1e6}, "snr_db="),
        ({"outliers": 1.0}, "outliers=1.0"),
        ({"outliers": 0.1, "as_published": True}, "as_published"),
        ({"n_samples": 3, "as_published": True}, "more rows"),
        ({"random_state": -1}, "random_state=-1"),
        ({"random_state": -1, "as_published": True}, "random_state=-1"),
    ],
)
def test_refuses(wrong: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"n_samples": 30, "n_features": 4, "n_clusters": 3, "random_state": 0}
    with pytest.raises(ParameterError, match=message):
        make_onmf(**(given | wrong))

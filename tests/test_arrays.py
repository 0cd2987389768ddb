"""One kernel text, many kinds of rows: the array layer against plain NumPy."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

from coterie.arrays import Rows, spans
from coterie.backend import host

Array = npt.NDArray[Any]

RNG = np.random.default_rng(0)
SIZES = (3, 1, 40, 2, 7, 41, 38)
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
N, M, K = int(OFFSETS[-1]), 5, 3
X = RNG.normal(size=(N, M)) * (RNG.random((N, M)) < 0.6)
W = RNG.normal(size=(K, M))
H = RNG.uniform(size=(N, K))
SHUFFLED = RNG.permutation(N)

TOLERANCE = {"float64": 1e-12, "float32": 1e-5}


def memory_map(x: Array, folder: Path) -> Any:
    path = folder / "rows.npy"
    np.save(path, x)
    return np.load(path, mmap_mode="r")


FORMS: dict[str, Callable[[Array, Path], Any]] = {
    "dense": lambda x, folder: x,
    "read-only": lambda x, folder: np.broadcast_to(x, x.shape),
    "memory map": memory_map,
    "CSR": lambda x, folder: sparse.csr_array(x),
    "torch": lambda x, folder: torch.from_numpy(x.copy()),
    "NumPy for torch": lambda x, folder: x,
}


@pytest.fixture(params=["as they lie", "gathered"])
def gathered(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "gathered")


@pytest.fixture(params=list(FORMS))
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def rows_of(
    form: str,
    folder: Path,
    *,
    gathered: bool = False,
    dtype: str = "float64",
    x: Array = X,
    offsets: Array = OFFSETS,
    **how: Any,
) -> Rows:
    """`x` in one of the forms; gathered rows lie shuffled, among others, behind an index."""
    x = x.astype(dtype)
    index = None
    if gathered:
        place = np.random.default_rng(len(x)).permutation(len(x) + 4)[: len(x)]
        scattered = np.full((len(x) + 4, x.shape[1]), 99, dtype=dtype)
        scattered[place] = x
        x, index = scattered, place
    kind = OnTorch if form == "NumPy for torch" else Rows
    return kind(FORMS[form](x, folder), offsets, index, **how)


class OnTorch(Rows):
    """NumPy rows that are streamed to torch, as to an accelerator, but on a CPU."""

    @property
    def on_torch(self) -> bool:
        return True


def work(rows: Rows) -> tuple[dict[str, Any], dict[str, Any]]:
    """All that a kernel may use, in one text."""
    w, numbers = rows.put(W, np.arange(K))
    h = rows.put(H)

    def kernel(x: Any, h: Any, size: Any) -> tuple[Any, Any]:
        b = (x @ w.T + h).clip(min=0)
        label = b.argmax(1)
        mine = (label[:, None] == numbers) * size[:, None]
        sums = {
            "gram": b.T @ b,
            "cross": b.T @ x,
            "energy": (x * x).sum(),
            "columns": x.sum(0),
            "counts": mine.sum(0),
            "least": b[:, :1].sum(),
        }
        return {"b": b, "label": label, "total": x.sum(1)}, sums

    return rows.map_rows(kernel, h, rows.spread(np.asarray(rows.sizes, dtype=float)))


def expected() -> tuple[dict[str, Array], dict[str, Array]]:
    """The same, row by row."""
    b = np.array([[max(0.0, float(x @ w) + h) for w, h in zip(W, hs)] for x, hs in zip(X, H)])  # noqa: B905
    label = np.array([int(np.argmax(row)) for row in b])
    owner = np.repeat(np.arange(len(SIZES)), SIZES)
    counts = np.zeros(K)
    for row in range(N):
        counts[label[row]] += SIZES[owner[row]]
    sums = {
        "gram": sum(np.outer(row, row) for row in b),
        "cross": sum(np.outer(row, x) for row, x in zip(b, X, strict=True)),
        "energy": sum(float(v) ** 2 for v in X.ravel()),
        "columns": np.array([sum(X[:, j]) for j in range(M)]),
        "counts": counts,
        "least": sum(b[:, 0]),
    }
    total = np.array([sum(x) for x in X])
    return {"b": b, "label": label, "total": total}, {k: np.asarray(v) for k, v in sums.items()}


def same(got: Any, want: Any, dtype: str = "float64") -> None:
    got, want = host(got), np.asarray(want)
    assert got.shape == want.shape
    scale = max(1.0, float(np.abs(want).max(initial=0.0)))
    np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE[dtype] * scale)


# -- pieces of rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("piece", [None, 1, 7, N])
def test_one_text_gives_the_same_whatever_the_rows_are(
    form: str, gathered: bool, dtype: str, piece: int | None, tmp_path: Path
) -> None:
    rows = rows_of(form, tmp_path, gathered=gathered, dtype=dtype, piece=piece)
    by_row, sums = work(rows)
    want_rows, want_sums = expected()
    for name, want in want_rows.items():
        same(by_row[name], want, dtype)
    for name, want in want_sums.items():
        same(sums[name], want, dtype)
        assert sums[name].dtype == np.float64
    assert host(by_row["b"]).dtype == np.dtype(dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_threads_do_not_change_a_bit(form: str, gathered: bool, dtype: str, tmp_path: Path) -> None:
    one, two, many = (
        work(rows_of(form, tmp_path, gathered=gathered, dtype=dtype, piece=11, threads=threads))
        for threads in (1, 2, 5)
    )
    for other in (two, many):
        for a, b in zip(one, other, strict=True):
            assert a.keys() == b.keys()
            for name in a:
                assert host(a[name]).tobytes() == host(b[name]).tobytes()


def test_threads_do_not_change_a_bit_of_large_products() -> None:
    x = RNG.normal(size=(3000, 60))
    offsets = np.array([0, 3000])

    def gram(threads: int) -> bytes:
        rows = Rows(x, offsets, threads=threads, piece=500)
        return bytes(rows.map_rows(lambda x: ({}, {"g": x.T @ x}))[1]["g"].tobytes())

    assert gram(1) == gram(2) == gram(3)


@pytest.mark.parametrize("threads", [1, 3])
def test_every_piece_runs_with_one_blas_thread(threads: int) -> None:
    seen: set[int] = set()

    def kernel(x: Any) -> tuple[Any, Any]:
        blas = (pool for pool in threadpool_info() if pool["user_api"] == "blas")
        seen.update(pool["num_threads"] for pool in blas)
        return {}, {}

    with threadpool_limits(2, user_api="blas"):
        Rows(X, OFFSETS, threads=threads, piece=30).map_rows(kernel)
        after = {p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"}
    assert seen == {1}
    assert after == {2}


@given(piece=st.integers(1, 200), cut=st.integers(0, N))
def test_any_size_of_a_piece_gives_the_same(piece: int, cut: int) -> None:
    whole = Rows(X[:cut], np.array([0, cut]), piece=N + 1)
    pieces = Rows(X[:cut], np.array([0, cut]), piece=piece, threads=1)

    def kernel(x: Any, h: Any) -> tuple[Any, Any]:
        return {"xw": x @ W.T}, {"gram": h.T @ x}

    (a, sums_a), (b, sums_b) = (rows.map_rows(kernel, H[:cut]) for rows in (whole, pieces))
    same(b["xw"], a["xw"])
    same(sums_b["gram"], sums_a["gram"])


def test_no_rows_still_have_shapes(form: str, tmp_path: Path) -> None:
    rows = rows_of(form, tmp_path, x=X[:0], offsets=np.array([0]))
    by_row, sums = rows.map_rows(lambda x: ({"b": x @ rows.put(W).T}, {"s": x.sum(0)}))
    assert tuple(by_row["b"].shape) == (0, K)
    assert sums["s"].tolist() == [0.0] * M
    assert rows.per_client(by_row["b"]).shape == (0, K)
    low, high = rows.extremes()
    assert (low.shape, high.shape) == ((0,), (0,))
    _, clients, _ = rows.map_clients(lambda x: ({}, {"c": x.sum(1)}, {}))
    assert tuple(clients["c"].shape) == (0, M)


def test_float32_rows_keep_what_is_put_beside_them_float32(form: str, tmp_path: Path) -> None:
    rows = rows_of(form, tmp_path, dtype="float32")
    assert "float32" in str(rows.put(W).dtype)
    assert "float32" in str(rows.spread(np.ones(len(SIZES))).dtype)
    assert "int64" in str(rows.put(np.arange(3)).dtype)


def test_a_memory_map_is_copied_piece_by_piece(tmp_path: Path, gathered: bool) -> None:
    rows = rows_of("memory map", tmp_path, gathered=gathered, piece=10)
    seen: list[int] = []

    def kernel(x: Any) -> tuple[Any, Any]:
        assert not np.shares_memory(x, rows.x)
        assert x.flags.writeable
        seen.append(len(x))
        return {}, {}

    rows.map_rows(kernel)
    assert sorted(seen) == sorted([10] * (N // 10) + [N % 10])


def test_pieces_of_csr_rows_are_views() -> None:
    x = sparse.csr_array(X)
    rows = Rows(x, OFFSETS, piece=20, threads=1)

    def kernel(piece: Any) -> tuple[Any, Any]:
        assert np.shares_memory(piece.data, x.data)
        return {}, {}

    rows.map_rows(kernel)


def test_an_error_in_a_kernel_is_the_callers(tmp_path: Path) -> None:
    def kernel(x: Any) -> tuple[Any, Any]:
        raise ZeroDivisionError("of the kernel")

    for threads in (1, 2):
        with pytest.raises(ZeroDivisionError, match="of the kernel"):
            Rows(X, OFFSETS, piece=10, threads=threads).map_rows(kernel)


def test_extremes_are_the_least_and_the_greatest_entry(
    form: str, gathered: bool, tmp_path: Path
) -> None:
    for x in (X, X - 50, X + 50):  # zeros of sparse rows count where there are any
        rows = rows_of(form, tmp_path, gathered=gathered, x=x, piece=9)
        low, high = rows.extremes()
        assert (low.tolist(), high.tolist()) == ([x.min()], [x.max()])


def test_dense_shows_all_rows(form: str, gathered: bool, tmp_path: Path) -> None:
    np.testing.assert_array_equal(rows_of(form, tmp_path, gathered=gathered).dense(), X)


# -- rows and clients -----------------------------------------------------------------------------


@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=8), on_torch=st.booleans())
def test_per_client_and_spread_are_loops(sizes: list[int], on_torch: bool) -> None:
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    n = int(offsets[-1])
    x = X[:n]
    rows = Rows(torch.from_numpy(x.copy()) if on_torch else x, offsets)
    values = H[:n]
    sums = rows.per_client(rows.put(values))
    assert isinstance(sums, np.ndarray)
    loop = [values[a:b].sum(axis=0) for a, b in pairwise(offsets)]
    same(sums, np.array(loop).reshape(len(sizes), K))
    per_client = np.arange(2.0 * len(sizes)).reshape(-1, 2)
    spread = [per_client[i] for i, size in enumerate(sizes) for _ in range(size)]
    same(rows.spread(per_client), np.array(spread).reshape(n, 2))
    np.testing.assert_array_equal(rows.owner, np.repeat(np.arange(len(sizes)), sizes))


def test_per_client_counts_booleans(form: str, tmp_path: Path) -> None:
    rows = rows_of(form, tmp_path)
    counts = rows.per_client(rows.put(H)[:, 0] > 0.5)
    loop = [(H[a:b, 0] > 0.5).sum() for a, b in pairwise(OFFSETS)]
    assert counts.tolist() == loop


@given(
    sizes=st.lists(st.integers(0, 6), max_size=6),
    starts=st.lists(st.integers(0, 100), min_size=6, max_size=6),
)
def test_spans_are_ranges_end_to_end(sizes: list[int], starts: list[int]) -> None:
    begun = starts[: len(sizes)]
    loop = [a + i for n, a in zip(sizes, begun, strict=True) for i in range(n)]
    got = spans(np.array(sizes, dtype=np.int64), np.array(begun, dtype=np.int64))
    assert got.tolist() == loop


# -- stacked clients ------------------------------------------------------------------------------


def stacked_work(rows: Rows) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    h, real = rows.put(H, np.ones(rows.n_rows))
    scale = np.arange(1.0, rows.n_clients + 1)

    def kernel(x: Any, h: Any, real: Any, scale: Any) -> tuple[Any, Any, Any]:
        shifted = (x + 1) * real[:, :, None]  # where padding would show
        gram = h.mT @ shifted
        return (
            {"y": x * scale[:, None, None], "h": h},
            {"gram": gram, "n": real.sum(1), "scale": scale},
            {"all": gram.sum(0), "rows": real.sum(), "pads": (h * (1 - real[:, :, None])).sum()},
        )

    return rows.map_clients(kernel, h, real, clients=(scale,))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("piece", [None, 1, 50])
def test_stacked_clients_are_a_loop_over_clients(
    form: str, gathered: bool, dtype: str, piece: int | None, tmp_path: Path
) -> None:
    rows = rows_of(form, tmp_path, gathered=gathered, dtype=dtype, piece=piece)
    by_row, by_client, sums = stacked_work(rows)
    pairs = list(pairwise(OFFSETS))
    grams = np.array([H[a:b].T @ (X[a:b] + 1) for a, b in pairs])
    same(by_client["gram"], grams, dtype)
    assert host(by_client["n"]).tolist() == list(SIZES)
    assert host(by_client["scale"]).tolist() == list(range(1, len(SIZES) + 1))
    same(by_row["y"], np.concatenate([X[a:b] * (i + 1) for i, (a, b) in enumerate(pairs)]), dtype)
    same(by_row["h"], H, dtype)
    same(sums["all"], grams.sum(0), dtype)
    assert float(sums["rows"]) == N
    assert float(sums["pads"]) == 0
    assert host(by_row["y"]).dtype == np.dtype(dtype)
    assert all(value.dtype == np.float64 for value in sums.values())


def test_threads_do_not_change_a_bit_of_stacked_clients(gathered: bool, tmp_path: Path) -> None:
    one, two = (
        stacked_work(rows_of("dense", tmp_path, gathered=gathered, piece=50, threads=threads))
        for threads in (1, 2)
    )
    for a, b in zip(one, two, strict=True):
        for name in a:
            assert host(a[name]).tobytes() == host(b[name]).tobytes()


@given(sizes=st.lists(st.integers(0, 60), min_size=1, max_size=12), piece=st.integers(1, 100))
def test_any_sizes_stack_with_little_padding(sizes: list[int], piece: int) -> None:
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    n = int(offsets[-1])
    x = np.arange(1.0, n + 1)[:, None]
    rows = Rows(x, offsets, piece=piece, threads=1)

    def kernel(x: Any, real: Any) -> tuple[Any, Any, Any]:
        real = real[:, :, None]
        np.testing.assert_array_equal(x * (1 - real), 0 * x)
        lengths = real.sum((1, 2))
        assert (lengths + lengths // 8 >= x.shape[1]).all()
        return {"x": x}, {"sum": x.sum((1, 2))}, {"sum": x.sum()}

    by_row, by_client, sums = rows.map_clients(kernel, np.ones(n))
    np.testing.assert_array_equal(by_row["x"], x)
    loop = [x[a:b].sum() for a, b in pairwise(offsets)]
    assert by_client["sum"].tolist() == loop
    assert float(sums["sum"]) == x.sum()


# -- what is not ours is not written to -----------------------------------------------------------


def test_read_only_numpy_rows_work_with_torch(gathered: bool) -> None:
    x = np.broadcast_to(X, X.shape)
    index = np.broadcast_to(SHUFFLED, (N,)) if gathered else None
    want = X[SHUFFLED] if gathered else X
    rows = OnTorch(x, OFFSETS, index, piece=10)
    assert not x.flags.writeable

    def kernel(piece: Any) -> tuple[Any, Any]:
        piece += 1  # its own copy
        return {"x": piece}, {}

    by_row, _ = rows.map_rows(kernel)
    same(by_row["x"], want + 1)
    _, _, sums = rows.map_clients(lambda x: ({}, {}, {"s": x.sum()}))
    same(sums["s"], X.sum())


def test_stacking_leaves_the_callers_columns_alone() -> None:
    x, h = X.copy(), H.copy()
    Rows(x, OFFSETS).map_clients(lambda x, h: ({"h": h}, {}, {}), h)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(h, H)

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from coterie.data.federation import Federation
from coterie.errors import CoterieError, DataError, InputTypeError
from coterie.random import client_key

IDS = ["b", "a", "b", "c", "a"]  # rows of clients in no order
X = np.arange(10.0).reshape(5, 2)
PACKED = X[[0, 2, 1, 4, 3]]

FORMS = [
    pytest.param(np.asarray, id="dense"),
    pytest.param(sparse.csr_array, id="CSR"),
    pytest.param(torch.from_numpy, id="torch"),
]


# -- what it is ---------------------------------------------------------------------------------


def test_rows_lie_client_by_client() -> None:
    fed = Federation.from_arrays(X, clients=IDS, y=list("vwxyz"))
    assert (fed.n_clients, fed.n_samples, fed.n_features) == (3, 5, 2)
    assert fed.client_ids.tolist() == ["b", "a", "c"]
    assert fed.sizes.tolist() == [2, 2, 1]
    assert fed.offsets.tolist() == [0, 2, 4, 5]
    assert fed.order.tolist() == [0, 2, 1, 4, 3]
    assert fed.y is not None
    assert fed.y.tolist() == ["v", "x", "w", "z", "y"]
    np.testing.assert_array_equal(fed.X, PACKED)
    np.testing.assert_array_equal(fed.client(1), X[[1, 4]])
    assert fed.minimum() == 0


def test_without_clients_all_rows_are_one_clients() -> None:
    fed = Federation.from_arrays(X)
    assert fed.client_ids.tolist() == [0]
    assert fed.sizes.tolist() == [5]
    assert fed.y is None
    assert fed.X is X


def test_one_row() -> None:
    fed = Federation.from_arrays([[1.0]], clients=["a"])
    assert fed.scatter(fed.gather([7])).tolist() == [7]


def test_its_picture_says_what_it_holds() -> None:
    assert repr(Federation.from_arrays(X, clients=IDS)) == (
        "Federation(3 clients, 5 x 2 rows, dense float64, sizes 1 to 2)"
    )
    assert "CSR float32" in repr(Federation.from_arrays(sparse.csr_array(X, dtype=np.float32)))
    assert "torch float64" in repr(Federation.from_arrays(torch.from_numpy(X)))


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"age": [1.0], "height": [2.0]}),
        pl.DataFrame({"age": [1.0], "height": [2.0]}),
        pa.table({"age": [1.0], "height": [2.0]}),
    ],
)
def test_columns_keep_their_names(frame: Any) -> None:
    assert Federation.from_arrays(frame).feature_names == ["age", "height"]


def test_columns_that_are_numbered_have_no_names() -> None:
    assert Federation.from_arrays(pd.DataFrame(X)).feature_names is None
    assert Federation.from_arrays(X).feature_names is None


# -- nothing is copied --------------------------------------------------------------------------


@pytest.mark.parametrize("clients", [None, list("aabbc"), IDS])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_are_not_copied(clients: list[str] | None, dtype: Any) -> None:
    rows = X.astype(dtype)
    fed = Federation.from_arrays(rows, clients=clients)
    assert fed.x is rows
    assert fed.X.dtype == dtype


def test_rows_that_are_grouped_need_no_index() -> None:
    grouped = Federation.from_arrays(X, clients=list("aabbc"))
    assert grouped.index is None
    assert np.shares_memory(grouped.X, X)
    assert np.shares_memory(grouped.client(1), X)
    assert Federation.from_arrays(X, clients=IDS).index is not None


@pytest.mark.parametrize("clients", [list("aabbc"), IDS])
def test_a_memory_map_stays_on_disk(tmp_path: Path, clients: list[str]) -> None:
    np.save(tmp_path / "x.npy", X)
    on_disk = np.load(tmp_path / "x.npy", mmap_mode="r")
    fed = Federation.from_arrays(on_disk, clients=clients)
    assert fed.x is on_disk
    np.testing.assert_array_equal(fed.X, Federation.from_arrays(X, clients=clients).X)


@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csr_array])
def test_csr_stays_csr(form: Any) -> None:
    rows = form(X.astype(np.float32))
    fed = Federation.from_arrays(rows, clients=IDS)
    assert isinstance(fed.X, sparse.csr_array)
    assert fed.X.dtype == np.float32
    assert np.shares_memory(fed.x.data, rows.data)
    np.testing.assert_array_equal(fed.X.toarray(), PACKED)
    np.testing.assert_array_equal(fed.client(1).toarray(), X[[1, 4]])
    assert fed.minimum() == 0


def test_torch_rows_stay_torch() -> None:
    fed = Federation.from_arrays(torch.from_numpy(X), clients=IDS)
    assert isinstance(fed.X, torch.Tensor)
    np.testing.assert_array_equal(fed.X.numpy(), PACKED)


# -- the caller's order -------------------------------------------------------------------------


@given(st.lists(st.one_of(st.integers(-3, 3), st.text(max_size=2)), min_size=1, max_size=30))
def test_the_callers_order_comes_back(clients: list[Any]) -> None:
    rows = np.arange(2.0 * len(clients)).reshape(-1, 2)
    fed = Federation.from_arrays(rows, clients=clients)
    np.testing.assert_array_equal(fed.gather(rows), fed.X)
    np.testing.assert_array_equal(fed.scatter(fed.X), rows)
    owner = np.repeat(np.arange(fed.n_clients), fed.sizes)
    ids = fed.client_ids.tolist()
    assert [ids[i] for i in fed.scatter(owner)] == clients
    assert ids == list(dict.fromkeys(clients))  # in the order of first appearance


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30))
def test_a_clients_rows_stay_in_order(clients: list[int]) -> None:
    fed = Federation.from_arrays(np.ones((len(clients), 1)), clients=clients)
    for start, stop in zip(fed.offsets[:-1], fed.offsets[1:], strict=True):
        assert np.all(np.diff(fed.order[start:stop]) > 0)


def test_values_of_any_shape_and_make_go_back_and_forth() -> None:
    fed = Federation.from_arrays(X, clients=IDS)
    values = np.arange(30.0).reshape(5, 3, 2)
    np.testing.assert_array_equal(fed.scatter(torch.from_numpy(fed.gather(values))), values)
    assert fed.gather(IDS).tolist() == ["b", "b", "a", "a", "c"]


@pytest.mark.parametrize("values", [np.ones(4), np.ones(6), np.ones((2, 5)), np.float64(1)])
def test_values_of_another_length_are_refused(values: Any) -> None:
    fed = Federation.from_arrays(X, clients=IDS)
    for move in (fed.scatter, fed.gather):
        with pytest.raises(DataError, match="for 5 rows; expected one for each row"):
            move(values)


# -- ids ----------------------------------------------------------------------------------------


def test_a_number_and_its_text_are_two_clients() -> None:
    fed = Federation.from_arrays(np.ones((3, 1)), clients=[1, "1", 1])
    assert fed.client_ids.tolist() == [1, "1"]
    assert fed.sizes.tolist() == [2, 1]
    assert fed.keys[0] != fed.keys[1]


@pytest.mark.parametrize(
    "clients",
    [
        [7, 1],
        np.array([7, 1], dtype=np.uint8),
        [np.int64(7), 1],
        np.array([np.int32(7), "x"], dtype=object),
        pd.Series([7, 1], dtype="Int64"),
        pl.Series([7, 1]),
        pa.array([7, 1]),
    ],
)
def test_an_integer_is_one_client_whatever_it_came_in(clients: Any) -> None:
    fed = Federation.from_arrays(np.ones((2, 1)), clients=clients)
    assert fed.keys[0] == np.uint64(client_key(7)).astype(np.int64)


@pytest.mark.parametrize(
    "clients",
    [
        ["a", "b"],
        np.array(["a", "b"]),
        pd.Series(["a", "b"], dtype="category"),
        pl.Series(["a", "b"]),
    ],
)
def test_text_is_one_client_whatever_it_came_in(clients: Any) -> None:
    fed = Federation.from_arrays(np.ones((2, 1)), clients=clients)
    assert fed.client_ids.dtype.kind == "U"
    assert fed.keys[0] == np.uint64(client_key("a")).astype(np.int64)


def test_tuples_are_ids() -> None:
    fed = Federation.from_arrays(np.ones((3, 1)), clients=[("eu", 1), ("us", 1), ("eu", 1)])
    assert fed.client_ids.shape == (2,)
    assert fed.client_ids.tolist() == [("eu", 1), ("us", 1)]


def test_grouping_a_million_rows_takes_well_under_a_second() -> None:
    clients = np.random.default_rng(0).integers(0, 100_000, 1_000_000)
    rows = np.zeros((1_000_000, 1), dtype=np.float32)
    start = time.process_time()
    fed = Federation.from_arrays(rows, clients=clients)
    assert time.process_time() - start < 1  # 0.25 s on two cores
    assert fed.n_clients == len(np.unique(clients))


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("clients", "client"), [(IDS, "a"), (list("xxyzz"), "z"), (None, 0)])
def test_an_entry_that_is_not_finite_is_named(
    value: float, form: Any, clients: list[str] | None, client: object
) -> None:
    rows = X.copy()
    rows[4, 1] = value
    with pytest.raises(DataError, match=rf"row 4 \(client {client!r}\), column 1\. "):
        Federation.from_arrays(form(rows), clients=clients)


def test_an_entry_that_is_not_finite_is_named_on_disk(tmp_path: Path) -> None:
    rows = X.copy()
    rows[2, 0] = np.nan
    np.save(tmp_path / "x.npy", rows)
    on_disk = np.load(tmp_path / "x.npy", mmap_mode="r")
    with pytest.raises(DataError, match=r"contains NaN: row 2 \(client 'b'\), column 0\. "):
        Federation.from_arrays(on_disk, clients=IDS)


def test_an_entry_that_is_not_finite_is_named_by_its_column() -> None:
    frame = pd.DataFrame({"age": [1.0, 2.0], "height": [1.0, None]})
    with pytest.raises(DataError, match=r"row 1 \(client 'b'\), column 'height'\. "):
        Federation.from_arrays(frame, clients=["a", "b"])


def test_ids_and_labels_of_another_length_are_refused() -> None:
    with pytest.raises(DataError, match="4 client ids were given for 5 rows"):
        Federation.from_arrays(X, clients=IDS[:4])
    with pytest.raises(DataError, match="6 labels were given for 5 rows"):
        Federation.from_arrays(X, y=np.zeros(6))


def test_a_client_without_rows_is_refused() -> None:
    with pytest.raises(DataError, match="client 'b' has no rows"):
        Federation(X, np.array([0, 5, 5]), np.array(["a", "b"]), np.arange(5))


# -- from clients -------------------------------------------------------------------------------


def test_clients_are_laid_end_to_end() -> None:
    fed = Federation.from_clients([X[:2], X[2:].tolist()], ids=["b", "a"], ys=[[0, 1], [2, 3, 4]])
    assert fed.client_ids.tolist() == ["b", "a"]
    assert fed.offsets.tolist() == [0, 2, 5]
    assert fed.index is None
    assert fed.order.tolist() == [0, 1, 2, 3, 4]
    assert fed.y is not None
    assert fed.y.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(fed.X, X)


def test_clients_are_numbered_unless_they_are_named() -> None:
    assert Federation.from_clients([X, X, X]).client_ids.tolist() == [0, 1, 2]


@pytest.mark.parametrize("ids", [["a", 1], [("eu", 1), ("eu", 2)], [1, "1"], iter("ab")])
def test_clients_may_have_any_names(ids: Any) -> None:
    expected = ["a", "b"] if not isinstance(ids, list) else ids
    fed = Federation.from_clients([X, X], ids=ids)
    assert fed.client_ids.shape == (2,)
    assert fed.client_ids.tolist() == expected


@pytest.mark.parametrize("form", FORMS)
def test_the_rows_of_a_single_client_are_not_copied(form: Any) -> None:
    given = form(X)
    fed = Federation.from_clients([given])
    same = (lambda a: a.data) if sparse.issparse(given) else np.asarray
    assert np.shares_memory(same(fed.x), same(given))


@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csr_array])
def test_csr_clients_become_one_csr(form: Any) -> None:
    fed = Federation.from_clients([form(X[:2], dtype=np.float32), form(X[2:], dtype=np.float32)])
    assert isinstance(fed.X, sparse.csr_array)
    assert fed.X.dtype == np.float32
    np.testing.assert_array_equal(fed.X.toarray(), X)


def test_torch_clients_become_one_tensor() -> None:
    fed = Federation.from_clients([torch.from_numpy(X[:2]), torch.from_numpy(X[2:])])
    assert isinstance(fed.X, torch.Tensor)
    np.testing.assert_array_equal(fed.X.numpy(), X)


def test_integers_and_float64_go_together_as_do_float16_and_float32() -> None:
    assert Federation.from_clients([X.astype(int), X]).X.dtype == np.float64
    halves = [X.astype(np.float16), X.astype(np.float32)]
    assert Federation.from_clients(halves).X.dtype == np.float32


def test_frames_of_clients_keep_the_names_of_their_columns() -> None:
    frame = pd.DataFrame({"age": [1.0], "height": [2.0]})
    assert Federation.from_clients([frame, X]).feature_names == ["age", "height"]
    with pytest.raises(DataError, match="client 1 gave 'height' as column 0, client 0 gave 'age'"):
        Federation.from_clients([frame, frame[["height", "age"]]])


def test_from_clients_equals_from_arrays() -> None:
    apart = Federation.from_clients([X[[0, 2]], X[[1, 4]], X[[3]]], ids=["b", "a", "c"])
    together = Federation.from_arrays(X, clients=IDS)
    np.testing.assert_array_equal(apart.X, together.X)
    np.testing.assert_array_equal(apart.keys, together.keys)
    np.testing.assert_array_equal(apart.offsets, together.offsets)


@pytest.mark.parametrize(
    ("Xs", "more", "error", "words"),
    [
        ([], {}, DataError, "no clients were given"),
        (3, {}, InputTypeError, "rows of type int"),
        ({"a": X}, {}, InputTypeError, "rows of type dict"),
        ([X, X[:0]], {"ids": ["a", "b"]}, DataError, r"client 'b': found array with 0 sample\(s\)"),
        ([X, X[:, :1]], {}, DataError, "client 1 gave 1 columns, client 0 gave 2 columns"),
        ([X, sparse.csr_array(X)], {}, DataError, "client 1 gave sparse rows, client 0 .* dense"),
        ([X, torch.from_numpy(X)], {}, DataError, "client 1 gave torch rows, client 0 .* dense"),
        ([X, X.astype("f4")], {}, DataError, "client 1 gave float32 rows, client 0 .* float64"),
        ([X.astype("f4"), X.astype(int)], {}, DataError, "client 1 gave float64 rows"),
        ([X, X * 1j], {"ids": ["a", "b"]}, DataError, "client 'b': Complex data not supported"),
        ([X, X[0]], {"ids": ["a", "b"]}, DataError, r"client 'b': rows of shape \(2,\)"),
        ([X, [[{}]]], {"ids": ["a", "b"]}, InputTypeError, "client 'b': rows hold dict"),
        ([X, X * np.nan], {"ids": "ab"}, InputTypeError, "client ids of type str"),
        ([X, X * np.nan], {"ids": ["a", "b"]}, DataError, r"row 5 \(client 'b'\), column 0"),
        ([X, X], {"ids": ["a"]}, DataError, "1 client ids were given for the rows of 2 clients"),
        (
            [X, X, X],
            {"ids": [2, 1, 1]},
            DataError,
            "client 1 was given twice, at positions 1 and 2",
        ),
        ([X, X], {"ids": ["a", None]}, DataError, "client ids hold no value"),
        ([X, X], {"ys": [np.zeros(5)]}, DataError, "labels of 1 clients were given .* rows of 2"),
        ([X, X], {"ys": [IDS, IDS[1:]]}, DataError, "client 1: 4 labels were given for 5 rows"),
        (
            [X, X],
            {"ys": [IDS, range(5)]},
            DataError,
            "client 1 gave numbers as labels, client 0 gave text",
        ),
        ([X, X], {"ys": [IDS, [None] * 5]}, DataError, "client 1: labels hold no value"),
    ],
)
def test_clients_that_cannot_be_used(
    Xs: Any, more: dict[str, Any], error: type[CoterieError], words: str
) -> None:
    with pytest.raises(error, match=words):
        Federation.from_clients(Xs, **more)


def test_many_clients_take_no_time() -> None:
    rows = np.ones((3, 4), dtype=np.float32)
    start = time.process_time()
    fed = Federation.from_clients([rows] * 10_000, ys=[[0, 1, 2]] * 10_000)
    assert time.process_time() - start < 1  # 0.1 s on two cores
    assert fed.n_samples == 30_000


def test_neither_pyarrow_nor_narwhals_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys; from coterie.data.federation import Federation; "
        "Federation.from_clients([[[1.0]]]); Federation.from_arrays([[1.0]], clients=['a']); "
        "print(*{'pyarrow', 'narwhals', 'torch', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""

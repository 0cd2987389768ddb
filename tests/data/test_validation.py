from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from scipy import sparse

from coterie.data.validation import as_ids, as_labels, as_rows, check_finite
from coterie.errors import CoterieError, DataError, InputTypeError

EYE = np.eye(3)
FORMS = [
    pytest.param(np.asarray, id="dense"),
    pytest.param(sparse.csr_array, id="CSR"),
    pytest.param(torch.from_numpy, id="torch"),
]


# -- rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_float_arrays_are_not_copied(dtype: Any, order: Any) -> None:
    X = np.ones((3, 2), dtype=dtype, order=order)
    rows = as_rows(X)
    assert rows.dtype == dtype
    assert np.shares_memory(rows, X)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.float16, np.float32),
        (np.int8, np.float64),
        (np.uint64, np.float64),
        (np.bool_, np.float64),
        (np.longdouble, np.float64),
        (np.dtype(">f8"), np.float64),
    ],
)
def test_other_numbers_become_floats(given: Any, expected: Any) -> None:
    rows = as_rows(EYE.astype(given))
    assert rows.dtype == expected
    np.testing.assert_array_equal(rows, EYE)


def test_a_memory_map_stays_on_disk(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", EYE)
    X = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert as_rows(X) is X


@pytest.mark.parametrize(
    "X",
    [
        [[1, 2], [3, 4]],
        [[True, 2.0], [3, 4]],
        np.array([[True, np.float32(2)], [3, np.int64(4)]], dtype=object),
        np.matrix([[1, 2], [3, 4]]),
        pd.DataFrame({"a": [1, 3], "b": [2.0, 4.0]}),
        pl.DataFrame({"a": [1, 3], "b": [2.0, 4.0]}),
        pa.table({"a": [1, 3], "b": [2.0, 4.0]}),
    ],
    ids=lambda X: type(X).__name__,
)
def test_tables_of_any_make(X: Any) -> None:
    rows = as_rows(X)
    assert type(rows) is np.ndarray
    np.testing.assert_array_equal(rows, [[1, 2], [3, 4]])


@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csr_array])
def test_csr_is_not_copied(form: Any) -> None:
    X = form(EYE.astype(np.float32))
    rows = as_rows(X)
    assert isinstance(rows, sparse.csr_array)
    assert rows.dtype == np.float32
    assert np.shares_memory(rows.data, X.data)


@pytest.mark.parametrize("form", [sparse.csc_array, sparse.coo_matrix, sparse.dia_array])
def test_other_sparse_forms_become_csr(form: Any) -> None:
    rows = as_rows(form(EYE.astype(np.int64)))
    assert isinstance(rows, sparse.csr_array)
    assert rows.dtype == np.float64
    np.testing.assert_array_equal(rows.toarray(), EYE)


def test_entries_given_twice_are_added_in_a_copy() -> None:
    X = sparse.csr_array((np.array([1.0, 2.0]), np.array([0, 0]), np.array([0, 2])), shape=(1, 2))
    rows = as_rows(X)
    assert rows.data.tolist() == [3.0]
    assert X.data.tolist() == [1.0, 2.0]


def test_torch_rows_share_memory_and_leave_the_graph() -> None:
    X = torch.ones((2, 2), dtype=torch.float32, requires_grad=True)
    rows = as_rows(X)
    assert rows.data_ptr() == X.data_ptr()
    assert not rows.requires_grad


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.int32, torch.float64),
        (torch.bool, torch.float64),
    ],
)
def test_other_torch_numbers_become_floats(given: torch.dtype, expected: torch.dtype) -> None:
    assert as_rows(torch.ones((2, 2), dtype=given)).dtype == expected


@pytest.mark.parametrize(
    ("X", "error", "words"),
    [
        (EYE * 1j, DataError, "Complex data not supported"),
        (sparse.csr_array(EYE * 1j), DataError, "Complex data not supported"),
        (torch.ones((2, 2), dtype=torch.complex64), DataError, "Complex data not supported"),
        (np.array([["1", "2"]]), DataError, "type <U1"),
        (np.array([["1", 2]], dtype=object), DataError, r"text '1' at \(0, 0\)"),
        (np.array([["2020-01-01"]], dtype="M8[D]"), DataError, "datetime64"),
        (
            np.array([[1.0, {"a": 1}]], dtype=object),
            InputTypeError,
            r"dict at \(0, 1\).*argument must be .* string.* number",
        ),
        ([[1, 2], [3]], DataError, "different lengths"),
        (np.ones(3), DataError, r"shape \(3,\).*Reshape your data"),
        (np.ones((2, 2, 2)), DataError, r"shape \(2, 2, 2\)"),
        (sparse.coo_array(np.ones(3)), DataError, r"shape \(3,\)"),
        (torch.ones(3), DataError, r"shape \(3,\)"),
        (3.0, DataError, r"shape \(\)"),
        ("rows", DataError, "type <U4"),
        (np.ones((0, 2)), DataError, r"0 sample\(s\) \(shape=\(0, 2\)\) .* minimum of 1 is req"),
        (sparse.csr_array((0, 2)), DataError, r"0 sample\(s\)"),
        (np.ones((2, 0)), DataError, r"0 feature\(s\) \(shape=\(2, 0\)\) .* minimum of 1 is req"),
    ],
)
def test_rows_that_cannot_be_used(X: Any, error: type[CoterieError], words: str) -> None:
    with pytest.raises(error, match=words):
        as_rows(X)


@pytest.mark.parametrize(
    "X",
    [
        np.array([[1.0, None]], dtype=object),
        pd.DataFrame({"a": [1.0], "b": [pd.NA]}),
        pd.DataFrame({"a": [1, 2], "b": pd.Series([1, None], dtype="Int64")})[1:],
        pl.DataFrame({"a": [1], "b": [None]}, schema={"a": pl.Int64, "b": pl.Boolean}),
        pa.table({"a": [1], "b": pa.array([None], pa.int64())}),
        np.ma.masked_array([[1, 2]], mask=[[False, True]]),
    ],
    ids=["None", "NA", "Int64", "polars", "pyarrow", "masked"],
)
def test_what_is_missing_becomes_nan(X: Any) -> None:
    assert np.isnan(as_rows(X)).tolist() == [[False, True]]


# -- finite -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")]
)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_first_entry_that_is_not_finite_is_found(
    value: float, word: str, form: Any, dtype: Any
) -> None:
    X = np.zeros((4, 3), dtype=dtype)
    X[0, 0], X[2, 1], X[3, 0] = 1, value, value
    with pytest.raises(DataError, match=f"Input X contains {word}: row 2, column 1"):
        check_finite(form(X))


def test_it_is_found_beyond_the_first_piece() -> None:
    X = np.zeros((1200, 1000))
    X[1100, 7] = np.nan
    with pytest.raises(DataError, match="row 1100, column 'f7'"):
        check_finite(X, names=[f"f{i}" for i in range(1000)])


def test_large_numbers_whose_sum_overflows_are_finite() -> None:
    check_finite(np.full((4, 4), np.finfo(np.float32).max, dtype=np.float32))


def test_images_may_be_checked_too() -> None:
    X = np.zeros((2, 3, 4))
    X[1, 2, 3] = np.nan
    with pytest.raises(DataError, match="row 1, column 11"):
        check_finite(X)


# -- ids and labels -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "clients",
    [
        ["b", "a", "b"],
        ("b", "a", "b"),
        np.array(["b", "a", "b"]),
        np.array([["b"], ["a"], ["b"]]),
        np.array(["b", "a", "b"], dtype=object),
        pd.Series(["b", "a", "b"], index=[7, 8, 9]),
        pd.Series(["b", "a", "b"], dtype="category"),
        pd.Series(["b", "a", "b"], dtype="string"),
        pd.DataFrame({"client": ["b", "a", "b"]}),
        pl.Series(["b", "a", "b"]),
        pl.Series(["b", "a", "b"], dtype=pl.Categorical),
        pa.array(["b", "a", "b"]),
        pa.array(["b", "a", "b"]).dictionary_encode(),
        pa.chunked_array([["b"], ["a", "b"]]),
        iter(["b", "a", "b"]),
    ],
)
def test_text_ids_of_any_make(clients: Any) -> None:
    ids = as_ids(clients, 3)
    assert ids.tolist() == ["b", "a", "b"]
    assert ids.dtype.kind == "U"


@pytest.mark.parametrize(
    "clients",
    [
        [2, 1],
        [np.int64(2), 1],
        np.array([2, 1], dtype=np.int16),
        np.array([np.int64(2), 1], dtype=object),
        pd.Series([2, 1], dtype="Int64"),
        pd.Series([2, 1], dtype="category"),
        pl.Series([2, 1]),
        pa.array([2, 1]),
        torch.tensor([2, 1]),
        range(2, 0, -1),
    ],
)
def test_integer_ids_of_any_make(clients: Any) -> None:
    ids = as_ids(clients, 2)
    assert ids.dtype.kind == "i"
    assert ids.tolist() == [2, 1]


@pytest.mark.parametrize(
    "clients",
    [
        [1, "1"],
        [(1, "a"), (2, "b")],
        [("a",), ("a", "b")],
        [2**53 + 1, 0.5],
        [2**70, 1],
        ["a", "a\0"],
        [frozenset({1}), b"bytes"],
    ],
)
def test_no_id_is_bent_to_fit_an_array(clients: list[Any]) -> None:
    ids = as_ids(clients, 2)
    assert ids.ndim == 1
    assert ids.tolist() == clients
    assert [type(i) for i in ids.tolist()] == [type(i) for i in clients]


def test_numpy_scalars_inside_tuples_become_python_numbers() -> None:
    (first,) = as_ids([(np.int64(1), np.str_("a"))], 1).tolist()
    assert repr(first) == "(1, 'a')"


def test_booleans_are_ids() -> None:
    assert as_ids([True, False], 2).dtype == np.bool_


@pytest.mark.parametrize(
    "missing",
    [
        ["a", None],
        ["a", np.nan],
        [1.0, np.nan],
        [("a", 1), ("a", None)],
        np.array([1.0, np.nan]),
        np.array(["2020-01-01", "NaT"], dtype="M8[D]"),
        pd.Series(["a", None]),
        pd.Series(["a", None], dtype="category"),
        pd.Series([1, None], dtype="Int64"),
        pd.Series(["a", pd.NA], dtype="string"),
        pl.Series(["a", None]),
        pl.Series([1, None]),
        pa.array(["a", None]),
        pa.array([1, None]),
    ],
)
def test_missing_ids_and_labels_are_refused(missing: Any) -> None:
    with pytest.raises(DataError, match=r"client ids hold no value .* at row 1"):
        as_ids(missing, 2)
    with pytest.raises(DataError, match=r"labels hold no value .* at row 1"):
        as_labels(missing, 2)


@pytest.mark.parametrize(
    ("clients", "error", "words"),
    [
        (["a"], DataError, "1 client ids were given for 2 rows"),
        (np.ones((2, 2)), DataError, r"shape \(2, 2\)"),
        (np.array("a"), DataError, r"shape \(\)"),
        ([["a"], ["b"]], InputTypeError, r"\['a'\] at row 0; expected something hashable"),
        ([(1, 2), (1, [2])], InputTypeError, r"at row 1; expected something hashable"),
        ("ab", InputTypeError, "type str"),
        ({"a", "b"}, InputTypeError, "type set"),
        ({"a": 1, "b": 2}, InputTypeError, "type dict"),
        (3, InputTypeError, "type int"),
    ],
)
def test_ids_that_cannot_be_used(clients: Any, error: type[CoterieError], words: str) -> None:
    with pytest.raises(error, match=words):
        as_ids(clients, 2)


def test_labels_may_be_text_or_numbers() -> None:
    assert as_labels(["cat", "dog"], 2).tolist() == ["cat", "dog"]
    assert as_labels([0, 1.5], 2).dtype == np.float64
    assert as_labels(torch.tensor([0, 1]), 2).tolist() == [0, 1]
    with pytest.raises(DataError, match="2 labels were given for 3 rows"):
        as_labels([0, 1], 3)

"""What callers hand us, made into rows, ids and labels, or refused in words.

Nothing here copies rows that are already as they must be: float32 stays float32, a memory map
stays on disk, CSR stays CSR.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from scipy import sparse

from coterie.arrays import PIECE_BYTES
from coterie.backend import Array, host, is_torch, torch_module
from coterie.errors import DataError, InputTypeError

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
SURE_IDS = {str, bytes, int, bool}  # never missing, always hashable: no need to look at each
ENCODE = "Encode categories as numbers first (sklearn.preprocessing has the means)"


def as_rows(X: Any) -> Any:
    """Rows as (N, M) float32 or float64: ndarray, memory map, csr_array or torch tensor."""
    if is_torch(X):
        rows = _as_tensor(X)
    elif sparse.issparse(X):
        rows = _as_csr(X)
    else:
        rows = as_floats(X)
    if rows.ndim != 2:
        raise DataError(
            f"rows of shape {tuple(rows.shape)} were given; expected 2 dimensions, one row a "
            "sample. Reshape your data: X.reshape(-1, 1) if it has one feature, "
            "X.reshape(1, -1) if it is one sample"
        )
    advice = {"sample": "Leave out clients that have no rows", "feature": "Give a column"}
    for what, size in zip(advice, rows.shape, strict=True):
        if size == 0:
            raise DataError(
                f"found array with 0 {what}(s) (shape={tuple(rows.shape)}) while a minimum of 1 "
                f"is required. {advice[what]}"
            )
    return rows


def _refuse_complex(is_complex: bool) -> None:
    if is_complex:
        raise DataError(
            "Complex data not supported: rows must be real numbers. Give real and imaginary parts "
            "as two columns"
        )


def _as_tensor(X: Any) -> Any:
    _refuse_complex(X.is_complex())
    torch = torch_module()
    rows = X.detach()
    if rows.dtype in (torch.float32, torch.float64):
        return rows
    return rows.float() if rows.is_floating_point() else rows.double()


def _as_csr(X: Any) -> Any:
    _refuse_complex(X.dtype.kind == "c")
    rows = sparse.csr_array(X)
    if not rows.has_canonical_format:  # SciPy would sum duplicates later, in the caller's arrays
        rows = rows.copy()
        rows.sum_duplicates()
    return rows if rows.dtype in FLOATS else rows.astype(np.float64)


def as_floats(X: Any) -> Array:
    """Anything dense, of any shape, as float32 or float64."""
    rows = _as_ndarray(X)
    kind = rows.dtype.kind
    _refuse_complex(kind == "c")
    if rows.dtype in FLOATS:
        return rows
    if rows.dtype == np.float16:
        return rows.astype(np.float32)
    if kind in "biuf":
        return rows.astype(np.float64)
    if kind == "O":
        return _as_numbers(rows)
    raise DataError(f"rows of type {rows.dtype} were given; expected numbers. {ENCODE}")


def _as_ndarray(X: Any) -> Array:
    """Any dense thing as an array; a memory map stays one, masked entries become NaN."""
    if isinstance(X, np.memmap):
        return X
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        return np.where(X.mask, np.nan, X.data)
    try:
        return np.asarray(X)
    except ValueError as error:
        raise DataError(
            "rows of different lengths were given; expected a table, with as many entries in "
            f"every row ({error})"
        ) from error


def _as_numbers(rows: Array) -> Array:
    """Objects as float64: None and its like as NaN, text refused."""
    numbers = np.empty(rows.shape)
    for place, value in np.ndenumerate(rows):
        if isinstance(value, str | bytes):
            raise DataError(
                f"rows hold the text {value!r} at {place}; expected a number. {ENCODE}, or "
                "convert text that spells numbers: X.astype(float)"
            )
        try:
            numbers[place] = np.nan if is_missing(value) else float(value)
        except (TypeError, ValueError) as error:
            raise InputTypeError(
                f"rows hold {type(value).__name__} at {place}; expected a number ({error}). "
                f"{ENCODE}"
            ) from error
    return numbers


def is_missing(value: object) -> bool:
    """Whether an object says that there is no value: None, NaN, NaT, pandas' NA."""
    value = _plain(value)
    if isinstance(value, tuple):
        return any(map(is_missing, value))
    return value is None or (value == value) is not True


def check_finite(
    x: Any,
    describe: Callable[[int], str] = "row {}".format,
    names: Sequence[str] | None = None,
) -> None:
    """Refuse NaN and infinity, and say where the first one is.

    `describe` turns a row number into words; `names` are the columns'.
    """
    bad = _first_not_finite(x)
    if bad is None:
        return
    row, column, value = bad
    what = "NaN" if np.isnan(value) else "infinity"
    where = f"{describe(row)}, column {column if names is None else repr(names[column])}"
    raise DataError(
        f"Input X contains {what}: {where}. Every entry must be a finite number; drop or impute "
        "such rows at their client first (sklearn.impute has the means)"
    )


def _first_not_finite(x: Any) -> tuple[int, int, float] | None:
    if sparse.issparse(x):
        wrong = np.flatnonzero(~np.isfinite(x.data))
        if not len(wrong):
            return None
        first = int(wrong[0])
        row = int(np.searchsorted(x.indptr, first, side="right")) - 1
        return row, int(x.indices[first]), float(x.data[first])
    if is_torch(x):
        flat = x.reshape(len(x), -1)
        finite = flat.isfinite()
        if bool(finite.all()):
            return None
        row, column = (int(v) for v in (~finite).nonzero()[0])
        return row, column, float(flat[row, column])
    step = max(1, PIECE_BYTES // max(1, x.itemsize * math.prod(x.shape[1:])))
    for start in range(0, len(x), step):
        piece = np.asarray(x[start : start + step])
        piece = piece.reshape(len(piece), -1)  # images count as their pixels
        # A sum is finite only if all its terms are, and costs a tenth of looking at each;
        # a sum of finite numbers may still overflow, so only the slow look condemns.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(piece.sum()):
                continue
        places = np.argwhere(~np.isfinite(piece))
        if len(places):
            row, column = (int(v) for v in places[0])
            return start + row, column, float(piece[row, column])
    return None


def as_ids(clients: Any, n_rows: int) -> Array:
    """One client id a row, as a one-dimensional array."""
    return _one_a_row(clients, n_rows, "client ids")


def as_labels(y: Any, n_rows: int) -> Array:
    """One label a row; labels may be strings."""
    return _one_a_row(y, n_rows, "labels")


def _one_a_row(values: Any, n_rows: int, what: str) -> Array:
    array = one_dimensional(values, what)
    if len(array) != n_rows:
        raise DataError(
            f"{len(array)} {what} were given for {n_rows} rows; expected one for each row"
        )
    return array


def one_dimensional(values: Any, what: str) -> Array:
    """Ids or labels as a one-dimensional array, none of them missing.

    NumPy scalars among objects become what Python calls them, so that equal ids are one client
    with one key whatever they came in.
    """
    array = _as_column(values, what)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(f"{what} of shape {array.shape} were given; expected one dimension")
    if array.dtype.kind == "O":
        return _from_objects(array.tolist(), what)
    if array.dtype.kind in "fcmM":
        missing = array != array
        if missing.any():
            raise no_value(what, int(missing.argmax()))
    return array


def _as_column(values: Any, what: str) -> Array:
    if is_torch(values):
        return host(values)
    if hasattr(values, "__array__"):  # NumPy, pandas, polars, pyarrow
        return np.asarray(values)
    unordered = isinstance(values, str | bytes | Set | Mapping)
    if unordered or not isinstance(values, Iterable):
        raise InputTypeError(
            f"{what} of type {type(values).__name__} were given; expected a list or an array"
        )
    return _objects(list(values))


def _from_objects(items: list[Any], what: str) -> Array:
    if not set(map(type, items)) <= SURE_IDS:
        items = [_hashable(value, row, what) for row, value in enumerate(items)]
    kinds = set(map(type, items))
    if kinds <= {str} or kinds <= {bool, int, float}:
        compact = np.asarray(items)
        if compact.tolist() == items:  # not so for 2**53 + 1 among floats, or "a\0"
            return compact
    return _objects(items)


def _objects(items: list[Any]) -> Array:
    return np.fromiter(items, dtype=object, count=len(items))


def _hashable(value: Any, row: int, what: str) -> Hashable:
    value = _plain(value)
    try:
        hash(value)
    except TypeError as error:
        raise InputTypeError(
            f"{what} hold {value!r} at row {row}; expected something hashable: a string, a number, "
            "a tuple"
        ) from error
    if is_missing(value):
        raise no_value(what, row)
    return value  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


def no_value(what: str, row: int) -> DataError:
    """Make the error for an id or a label that is missing."""
    return DataError(
        f"{what} hold no value (NaN or None) at row {row}; every row needs one. Drop such rows, "
        "or give them a value of their own"
    )

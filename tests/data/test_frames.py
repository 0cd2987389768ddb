from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coterie.data.federation import Federation
from coterie.data.frames import FILL_BYTES
from coterie.errors import (
    CoterieError,
    DataError,
    DatasetError,
    InputTypeError,
    ParameterError,
)

Read = Callable[..., Federation]

TABLE = pa.table(
    {
        "hospital": ["b", "a", "b", "c", "a"],
        "age": [30, 41, 52, 63, 74],
        "smokes": [True, False, False, True, False],
        "weight": pa.array([60.5, 71, 82, 93, 104.25], pa.float32()),
        "ill": ["no", "yes", "no", "yes", "yes"],
    }
)
X = np.array(
    [[30, 1, 60.5], [41, 0, 71], [52, 0, 82], [63, 1, 93], [74, 0, 104.25]], dtype=np.float64
)


@pytest.fixture(params=["pandas", "pandas-nullable", "polars", "pyarrow", "parquet"])
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Read:
    """Read an arrow table into a federation, by the way of each kind of frame."""
    frames: dict[str, Callable[[pa.Table], Any]] = {
        "pandas": lambda table: table.to_pandas(),
        "pandas-nullable": lambda table: table.to_pandas().convert_dtypes(),
        "polars": pl.from_arrow,
        "pyarrow": lambda table: table,
    }

    def from_frame(table: pa.Table, *columns: str) -> Federation:
        return Federation.from_frame(frames[request.param](table), *columns)

    def from_parquet(table: pa.Table, *columns: str) -> Federation:
        pq.write_table(table, tmp_path / "table.parquet", row_group_size=2)
        return Federation.from_parquet(tmp_path / "table.parquet", *columns)

    return from_parquet if request.param == "parquet" else from_frame


def same(one: Federation, other: Federation) -> None:
    np.testing.assert_array_equal(one.X, other.X, strict=True)
    np.testing.assert_array_equal(one.offsets, other.offsets)
    np.testing.assert_array_equal(one.order, other.order)
    assert one.client_ids.tolist() == other.client_ids.tolist()
    np.testing.assert_array_equal(one.keys, other.keys)
    assert one.feature_names == other.feature_names
    assert (one.y is None) == (other.y is None)
    if one.y is not None and other.y is not None:
        assert one.y.tolist() == other.y.tolist()


# -- every kind of frame ------------------------------------------------------------------------


def test_frames_equal_arrays(read: Read) -> None:
    fed = read(TABLE, "hospital", "ill")
    arrays = Federation.from_arrays(X, clients=TABLE["hospital"], y=TABLE["ill"])
    arrays.feature_names = ["age", "smokes", "weight"]
    same(fed, arrays)
    np.testing.assert_array_equal(fed.scatter(fed.X), X)


def test_rows_lie_client_by_client_without_an_index(read: Read) -> None:
    fed = read(TABLE.drop_columns("ill"), "hospital")
    assert fed.index is None
    assert fed.y is None
    assert fed.x.flags.c_contiguous
    assert fed.order.tolist() == [0, 2, 1, 4, 3]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (pa.array([0.5, 1], pa.float32()), np.float32),
        (pa.array([0.5, 1], pa.float64()), np.float64),
        (pa.array([0, 1], pa.int8()), np.float64),
        (pa.array([False, True]), np.float64),
    ],
)
def test_float32_is_kept_where_all_features_are(
    read: Read, second: pa.Array, expected: Any
) -> None:
    first = pa.array([0.5, 1], pa.float32())
    fed = read(pa.table({"client": [1, 2], "a": first, "b": second}), "client")
    assert fed.X.dtype == expected
    assert fed.X.tolist() == [[0.5, float(second[0].as_py())], [1, 1]]


@pytest.mark.parametrize("make", [pl.from_arrow, lambda table: table], ids=["polars", "pyarrow"])
def test_decimals_are_numbers(make: Callable[[pa.Table], Any]) -> None:
    table = pa.table({"client": [1, 2], "a": pa.array([Decimal("0.25"), None])})
    assert Federation.from_frame(make(table[:1]), "client").X.tolist() == [[0.25]]
    with pytest.raises(DataError, match=r"row 1 \(client 2\), column 'a'"):
        Federation.from_frame(make(table), "client")


def test_float16_becomes_float32() -> None:
    half = pa.table({"client": [1, 2], "a": np.array([0.5, 1], dtype=np.float16)})
    assert Federation.from_frame(half, "client").X.dtype == np.float32
    assert Federation.from_frame(half.to_pandas(), "client").X.dtype == np.float32


def test_large_integers_become_the_nearest_float() -> None:
    table = pa.table({"client": [1], "a": [2**53 + 1]})
    assert Federation.from_frame(table, "client").X.tolist() == [[2.0**53]]


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([3, 1, 3, 2, 1]),
        pa.DictionaryArray.from_arrays([2, 1, 2, 3, 1], ["unused", "a", "b", "c"]),
        pa.array([True, False, True, True, False]),
        pa.array([0.5, 0.25, 0.5, 1, 0.25]),
    ],
    ids=["integers", "categories", "booleans", "floats"],
)
def test_ids_of_any_type(read: Read, ids: pa.Array) -> None:
    table = TABLE.select(["age"]).append_column("client", ids)
    fed = read(table, "client")
    expected = Federation.from_arrays(X[:, :1], clients=ids)
    expected.feature_names = ["age"]
    same(fed, expected)


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_an_entry_that_is_not_finite_is_named(read: Read, value: float | None) -> None:
    table = TABLE.select(["hospital", "age"]).append_column(
        "weight", pa.array([1, 2, 3, 4, value], pa.float64())
    )
    with pytest.raises(DataError, match=r"row 4 \(client 'a'\), column 'weight'"):
        read(table, "hospital")


@pytest.mark.parametrize("type_", [pa.int64(), pa.bool_()])
def test_a_missing_whole_number_is_named(read: Read, type_: pa.DataType) -> None:
    table = TABLE.select(["hospital"]).append_column("n", pa.array([1, 0, None, 1, 0]).cast(type_))
    # pandas has no booleans with gaps, and calls them objects
    with pytest.raises(DataError, match=r"row 2 \(client 'b'\), column 'n'|'n' \(Object\)"):
        read(table, "hospital")


@pytest.mark.parametrize("ids", [["a", "a", None], [1, 1, None], [0.5, 0.5, float("nan")]])
def test_a_missing_client_is_named(read: Read, ids: list[Any]) -> None:
    table = pa.table({"client": ids, "age": [1.0, 2.0, 3.0]})
    with pytest.raises(DataError, match=r"client ids hold no value .* at row 2"):
        read(table, "client")


def test_a_missing_label_is_named(read: Read) -> None:
    table = pa.table({"client": [1, 2], "age": [1.0, 2.0], "ill": ["yes", None]})
    with pytest.raises(DataError, match=r"labels hold no value .* at row 1"):
        read(table, "client", "ill")


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        (["hospitl"], ParameterError, "client='hospitl' was given.*did you mean 'hospital'"),
        (["hospital", "il"], ParameterError, "label='il' was given.*did you mean 'ill'"),
        (["zzz"], ParameterError, "client='zzz' .* there are 'hospital', 'age', .*'ill'"),
        (["hospital", "hospital"], ParameterError, "client and label are both 'hospital'"),
        (["hospital"], DataError, r"not numbers were given as features: 'ill' \(String\)"),
        (["age", "ill"], DataError, r"not numbers were given as features: 'hospital' \(String\)"),
    ],
)
def test_columns_that_cannot_be_used(
    read: Read, columns: list[str], error: type[CoterieError], words: str
) -> None:
    with pytest.raises(error, match=words):
        read(TABLE, *columns)


def test_a_frame_needs_features(read: Read) -> None:
    with pytest.raises(DataError, match=r"no features: the only columns are .*hospital.*ill"):
        read(TABLE.select(["hospital", "ill"]), "hospital", "ill")


def test_a_frame_needs_rows(read: Read) -> None:
    with pytest.raises(DataError, match="without rows"):
        read(TABLE[:0], "hospital", "ill")


@pytest.mark.parametrize("make", [pl.from_arrow, lambda table: table], ids=["polars", "pyarrow"])
def test_lists_are_no_ids(make: Callable[[pa.Table], Any]) -> None:
    with pytest.raises(InputTypeError, match="client='ids' is a column of List"):
        Federation.from_frame(make(pa.table({"ids": [[1], [2]], "age": [1, 2]})), "ids")


def test_many_text_columns_are_counted() -> None:
    frame = pl.DataFrame({"client": [1], "a": [1.0], **{f"t{i}": ["x"] for i in range(7)}})
    with pytest.raises(DataError, match=r"'t4' \(String\) and 2 more;"):
        Federation.from_frame(frame, "client")


# -- frames -------------------------------------------------------------------------------------


@pytest.mark.parametrize("df", [[1, 2], X, pl.LazyFrame({"a": [1]}), pd.Series([1])], ids=type)
def test_what_is_no_frame_is_refused(df: Any) -> None:
    with pytest.raises(InputTypeError, match=f"frame of type {type(df).__name__} was given"):
        Federation.from_frame(df, "a")


@pytest.mark.parametrize(
    "df",
    [
        pd.DataFrame([[1, 2, 3]], columns=["client", "a", "a"]),
        pa.table([[1], [2], [3]], names=["client", "a", "a"]),
    ],
    ids=type,
)
def test_columns_of_one_name_are_refused(df: Any) -> None:
    with pytest.raises(DataError, match="columns of one name"):
        Federation.from_frame(df, "client")


def test_the_index_of_pandas_is_neither_a_feature_nor_an_order(tmp_path: Path) -> None:
    frame = pd.DataFrame({"client": ["b", "a", "b"], "age": [1.0, 2, 3]}, index=[10, 7, 10])
    expected = Federation.from_frame(frame, "client")
    assert expected.feature_names == ["age"]
    assert expected.order.tolist() == [0, 2, 1]
    frame.to_parquet(tmp_path / "frame.parquet")
    same(Federation.from_parquet(tmp_path / "frame.parquet", "client"), expected)
    same(Federation.from_frame(pa.Table.from_pandas(frame), "client"), expected)


def test_numbered_columns_of_pandas() -> None:
    frame: Any = pd.DataFrame([["b", 1.0, 0], ["a", 2.0, 1]])
    columns: Any = (0, 2)
    fed = Federation.from_frame(frame, *columns)
    assert fed.client_ids.tolist() == ["b", "a"]
    assert fed.X.tolist() == [[1.0], [2.0]]
    assert fed.feature_names == ["1"]


def test_a_frame_is_read_in_pieces() -> None:
    ages = np.arange(2.0 * FILL_BYTES / 8)
    clients = np.arange(len(ages)) % 3
    fed = Federation.from_frame(pa.table({"client": clients, "age": ages}), "client")
    np.testing.assert_array_equal(fed.scatter(fed.X)[:, 0], ages)
    np.testing.assert_array_equal(fed.client(1)[:, 0], ages[1::3])


# -- Parquet ------------------------------------------------------------------------------------


def random_table(n_rows: int, n_features: int) -> pa.Table:
    rng = np.random.default_rng(0)
    features = {f"f{j}": rng.random(n_rows) for j in range(n_features)}
    ids = [f"client-{i}" for i in rng.integers(0, 20, n_rows)]
    return pa.table({**features, "client": ids, "label": rng.integers(0, 3, n_rows)})


@pytest.mark.parametrize("row_group_size", [1, 7, 64, 1000])
def test_parquet_equals_its_frame(tmp_path: Path, row_group_size: int) -> None:
    table = random_table(100, 5)
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=row_group_size)
    fed = Federation.from_parquet(str(tmp_path / "t.parquet"), "client", "label")
    same(fed, Federation.from_frame(table, "client", label="label"))


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    table = random_table(100, 5)
    (tmp_path / "2" / "deep").mkdir(parents=True)
    (tmp_path / "README.md").write_text("not rows")
    pq.write_table(table[90:], tmp_path / "3.parquet")
    pq.write_table(table[40:90], tmp_path / "2" / "deep" / "part.parquet", row_group_size=16)
    pq.write_table(table[:40].select(table.column_names[::-1]), tmp_path / "1.parquet")
    fed = Federation.from_parquet(tmp_path, "client", "label")
    columns = [f"f{j}" for j in reversed(range(5))]
    same(fed, Federation.from_frame(table.select([*columns, "client", "label"]), "client", "label"))


def test_files_may_have_dictionaries_of_their_own(tmp_path: Path) -> None:
    for part, ids in enumerate((["b", "a"], ["c", "b"])):
        table = pa.table({"client": pa.array(ids).dictionary_encode(), "age": [1.0, 2.0]})
        pq.write_table(table, tmp_path / f"{part}.parquet")
    fed = Federation.from_parquet(tmp_path, "client")
    assert fed.client_ids.tolist() == ["b", "a", "c"]
    assert fed.sizes.tolist() == [2, 1, 1]


def test_a_file_may_be_without_rows(tmp_path: Path) -> None:
    table = random_table(10, 2)
    pq.write_table(table[:0], tmp_path / "1.parquet")
    pq.write_table(table, tmp_path / "2.parquet")
    same(
        Federation.from_parquet(tmp_path, "client", "label"),
        Federation.from_frame(table, "client", "label"),
    )


def test_a_column_whose_name_begins_anothers(tmp_path: Path) -> None:
    table = pa.table({"a": ["x", "y"], "a.b": [1.0, 2.0], "a.b.c": [3.0, 4.0]})
    pq.write_table(table[:1], tmp_path / "1.parquet")
    pq.write_table(table[1:].select(["a.b.c", "a.b", "a"]), tmp_path / "2.parquet")
    fed = Federation.from_parquet(tmp_path, "a")
    assert fed.feature_names == ["a.b", "a.b.c"]
    assert fed.X.tolist() == [[1.0, 3.0], [2.0, 4.0]]


PEAK = """
import sys, tracemalloc
import pandas, pyarrow, pyarrow.parquet
from coterie.data.federation import Federation

Federation.from_parquet(sys.argv[2], "client")  # imports are not counted
before = pyarrow.total_allocated_bytes()
tracemalloc.start()
fed = Federation.from_parquet(sys.argv[1], "client")
numpy_peak = tracemalloc.get_traced_memory()[1]
arrow_peak = pyarrow.default_memory_pool().max_memory() - before
print(fed.x.nbytes, numpy_peak, arrow_peak)
"""


def test_peak_memory_is_the_rows_and_a_row_group(tmp_path: Path) -> None:
    table = random_table(40_000, 16).drop_columns("label")
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=1000)
    pq.write_table(table[:10], tmp_path / "small.parquet")
    paths = [str(tmp_path / name) for name in ("t.parquet", "small.parquet")]
    command = [sys.executable, "-c", PEAK, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows, numpy_peak, arrow_peak = map(int, done.stdout.split())
    assert rows == 40_000 * 16 * 8
    assert numpy_peak < 1.5 * rows  # one array of all rows, and the numbers of rows
    assert arrow_peak < 0.5 * rows  # never a second copy of them


@pytest.mark.parametrize("name", ["missing.parquet", "missing"])
def test_a_path_that_does_not_exist(tmp_path: Path, name: str) -> None:
    with pytest.raises(DatasetError, match=f"{name} was given; expected a Parquet file"):
        Federation.from_parquet(tmp_path / name, "client")


def test_a_folder_without_parquet(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("client,age\n1,2\n")
    with pytest.raises(DatasetError, match=r"holds no file named \*\.parquet"):
        Federation.from_parquet(tmp_path, "client")


def test_a_file_that_is_not_parquet(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_text("client,age\n1,2\n")
    with pytest.raises(DatasetError, match=r"rows\.parquet could not be read as Parquet"):
        Federation.from_parquet(path, "client")


def test_a_file_that_is_damaged_inside(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(random_table(1000, 2), path, compression="zstd", use_dictionary=False)
    damaged = bytearray(path.read_bytes())
    damaged[100:4000] = bytes(3900)
    path.write_bytes(damaged)
    with pytest.raises(DatasetError, match=r"rows\.parquet could not be read as Parquet"):
        Federation.from_parquet(path, "client", "label")


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"client": [2], "age": [2]}, "'age' is double in .*1.parquet and int64 in .*2.parquet"),
        ({"client": [2], "agee": [2.0]}, "'age' is double in .* and missing in .*2.parquet"),
        ({"client": [2], "age": [2.0], "x": [1.0]}, "'x' is missing in .* and double in .*"),
    ],
)
def test_files_whose_schemas_differ(tmp_path: Path, second: dict[str, Any], words: str) -> None:
    pq.write_table(pa.table({"client": [1], "age": [1.0]}), tmp_path / "1.parquet")
    pq.write_table(pa.table(second), tmp_path / "2.parquet")
    with pytest.raises(DataError, match=words):
        Federation.from_parquet(tmp_path, "client")

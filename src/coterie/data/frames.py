"""`Federation.from_frame` and `Federation.from_parquet`: a column says whose a row is.

Both allocate one array of the final size and scatter the features to their place client by
client, some rows at a time; nothing else is ever as large as the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.backend import Array
from coterie.data.federation import Federation, group, lay_out
from coterie.data.validation import as_floats, as_labels, no_value, one_dimensional
from coterie.errors import DataError, DatasetError, InputTypeError, ParameterError

if TYPE_CHECKING:
    import narwhals as nw
    import pyarrow as pa
    import pyarrow.parquet as pq

FILL_BYTES = 8 << 20  # of features that are scattered at once
READ_BYTES = 1 << 16  # of each column of a row group that are read at once, however large it is

_Grouped = tuple[Array, Array, Array]  # client ids, offsets, order: what `group` returns


@dataclass(frozen=True)
class _Columns:
    """What each column is for."""

    client: str
    label: str | None
    features: list[str]
    dtype: np.dtype[Any]

    @property
    def facts(self) -> list[str]:
        """The columns that say something about a row, and are not features."""
        return [self.client] if self.label is None else [self.client, self.label]

    @property
    def rows_at_once(self) -> int:
        return max(1, FILL_BYTES // (self.dtype.itemsize * len(self.features)))


def read_frame(df: Any, client: str, label: str | None = None) -> Federation:
    """Read a pandas, polars or pyarrow frame."""
    frame = _as_narwhals(df)
    columns = _columns(frame.schema, client, label, _index_columns(getattr(df, "schema", None)))
    grouped = group(frame.get_column(client).to_native(), len(frame))
    labels = None if label is None else as_labels(frame.get_column(label).to_native(), len(frame))
    step = columns.rows_at_once
    pieces = (frame[start : start + step] for start in range(0, len(frame), step))
    return _federation(pieces, columns, grouped, labels)


def read_parquet(path: Path, client: str, label: str | None = None) -> Federation:
    """Read a Parquet file, or all those in a folder, by row groups."""
    paths = _parquet_files(path)
    columns = _columns_of_files(paths, client, label)
    grouped, labels = _survey(paths, columns)
    return _federation(_batches(paths, columns), columns, grouped, labels)


def _federation(
    pieces: Iterable[nw.DataFrame[Any]],
    columns: _Columns,
    grouped: _Grouped,
    labels: Array | None,
) -> Federation:
    ids, offsets, order = grouped
    if len(order) == 0:
        raise DataError("a frame without rows was given; expected at least one row")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    x = np.empty((len(order), len(columns.features)), dtype=columns.dtype)
    start = 0
    for piece in pieces:
        x[place[start : start + len(piece)]] = _numbers(piece, columns)
        start += len(piece)
    return Federation(
        x,
        offsets,
        ids,
        order,
        y=None if labels is None else labels[order],
        feature_names=list(map(str, columns.features)),
    )


def _numbers(piece: nw.DataFrame[Any], columns: _Columns) -> Array:
    """Return the features of some rows; what is missing is NaN."""
    numbers = np.empty((len(piece), len(columns.features)), columns.dtype, order="F")
    for position, name in enumerate(columns.features):
        numbers[:, position] = as_floats(piece.get_column(name).to_native())
    return numbers


# -- columns ------------------------------------------------------------------------------------


def _as_narwhals(df: Any) -> nw.DataFrame[Any]:
    import narwhals as nw
    from narwhals.exceptions import DuplicateError

    try:
        frame: nw.DataFrame[Any] = nw.from_native(df, eager_only=True)
    except TypeError as error:
        raise InputTypeError(
            f"a frame of type {type(df).__name__} was given; expected a pandas or polars "
            f"DataFrame or a pyarrow Table (of a lazy frame: frame.collect()): {error}"
        ) from error
    except DuplicateError as error:
        raise DataError(f"a frame with columns of one name was given: {error}") from error
    return frame


def _columns(
    schema: Mapping[str, Any], client: str, label: str | None, index: set[str]
) -> _Columns:
    """Tell what each column of a narwhals schema is for; `index` are pandas' row names."""
    for argument, name in {"client": client, "label": label}.items():
        if name is not None and name not in schema:
            raise ParameterError(_no_such_column(argument, name, list(schema)))
    if client == label:
        raise ParameterError(f"client and label are both {client!r}; expected two columns")
    features = [name for name in schema if name not in {client, label} | index]
    if not features:
        raise DataError(
            f"no features: the only columns are {list(schema)}; expected others besides"
        )
    if schema[client].is_nested():
        raise InputTypeError(
            f"client={client!r} is a column of {schema[client]}; expected text or numbers, one id "
            "for each row"
        )
    other = [f"{n!r} ({schema[n]})" for n in features if not _is_number(schema[n])]
    if other:
        raise DataError(
            f"columns that are not numbers were given as features: {_listed(other)}; expected "
            "numbers or booleans. Encode them as numbers, or leave them out"
        )
    narrow = {str(schema[n]) for n in features} <= {"Float16", "Float32"}
    return _Columns(client, label, features, np.dtype(np.float32 if narrow else np.float64))


def _is_number(dtype: Any) -> bool:
    import narwhals as nw

    return bool(dtype.is_numeric() or dtype == nw.Boolean)


def _no_such_column(argument: str, name: str, columns: list[str]) -> str:
    nearest = get_close_matches(str(name), map(str, columns), n=1)
    if nearest:
        hint = f"did you mean {nearest[0]!r}?"
    else:
        hint = f"there are {_listed([repr(c) for c in columns])}"
    return f"{argument}={name!r} was given, but no column has that name; {hint}"


def _listed(words: list[str], most: int = 5) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def _index_columns(schema: Any) -> set[str]:
    """Columns in which pandas keeps the names of the rows: no features, like in pandas."""
    metadata = getattr(schema, "pandas_metadata", None) or {}
    return {name for name in metadata.get("index_columns", []) if isinstance(name, str)}


# -- Parquet ------------------------------------------------------------------------------------


def _parquet_files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(path.rglob("*.parquet"))
        if not found:
            raise DatasetError(f"folder {path} was given, and holds no file named *.parquet")
        return found
    if not path.exists():
        raise DatasetError(f"{path} was given; expected a Parquet file, or a folder of them")
    return [path]


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=READ_BYTES) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(
            f"{path} could not be read as Parquet ({error}); write it with DataFrame.to_parquet, "
            "or read it with another library and give its frame to Federation.from_frame"
        ) from error


def _columns_of_files(paths: list[Path], client: str, label: str | None) -> _Columns:
    """Tell what each column is for, in files that must agree."""
    with _opened(paths[0]) as file:
        first = file.schema_arrow
    for path in paths[1:]:
        with _opened(path) as file:
            _check_same_schema(paths[0], first, path, file.schema_arrow)
    return _columns(_as_narwhals(first.empty_table()).schema, client, label, _index_columns(first))


def _check_same_schema(path: Path, schema: pa.Schema, other_path: Path, other: pa.Schema) -> None:
    types = dict(zip(schema.names, schema.types, strict=True))
    other_types = dict(zip(other.names, other.types, strict=True))
    for name in types | other_types:
        here, there = types.get(name, "missing"), other_types.get(name, "missing")
        if here != there:
            raise DataError(
                f"column {name!r} is {here} in {path} and {there} in {other_path}; expected files "
                "with the same columns: convert one of them, or leave it out of the folder"
            )


def _survey(paths: list[Path], columns: _Columns) -> tuple[_Grouped, Array | None]:
    """Read only the client and the label of every row of every file."""
    import pyarrow as pa

    tables = []
    for path in paths:
        with _opened(path) as file:
            tables.append(file.read(columns=columns.facts))
    facts = pa.concat_tables(tables)
    ids, owner = _owners(facts[columns.client])
    labels = None if columns.label is None else as_labels(facts[columns.label], len(owner))
    return (ids, *lay_out(owner, len(ids))), labels


def _owners(column: pa.ChunkedArray) -> tuple[Array, Array]:
    """Ids in the order of first appearance, and the client of each row.

    Arrow does what `group` does, without a Python object for each row.
    """
    import pyarrow as pa

    missing = np.asarray(column.is_null(nan_is_null=True))
    if missing.any():
        raise no_value("client ids", int(missing.argmax()))
    if pa.types.is_dictionary(column.type):  # each chunk may have a dictionary of its own
        column = column.cast(column.type.value_type)
    encoded = column.dictionary_encode().combine_chunks()
    return one_dimensional(encoded.dictionary, "client ids"), np.asarray(encoded.indices)


def _batches(paths: list[Path], columns: _Columns) -> Iterator[nw.DataFrame[Any]]:
    """Read the features of every file, some rows of one row group at a time."""
    import pyarrow as pa

    for path in paths:
        with _opened(path) as file:
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(
                    columns.rows_at_once, row_groups=[group], columns=columns.features
                ):
                    yield _as_narwhals(pa.Table.from_batches([batch]))

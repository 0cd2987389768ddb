"""`Federation.from_clients`: one array of rows a client, laid end to end."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy import sparse

from coterie.backend import Array, dtype_name, is_torch, torch_module
from coterie.data.federation import Federation, column_names, group
from coterie.data.validation import as_labels, as_rows, one_dimensional
from coterie.errors import DataError, InputTypeError

OTHER_LABELS = {"U": "text", "O": "objects", "M": "dates"}  # NumPy would make them all text


def concatenate(
    Xs: Iterable[Any], ids: Iterable[Hashable] | None = None, ys: Iterable[Any] | None = None
) -> Federation:
    """Lay all clients' rows end to end, in the order of the clients."""
    given = _as_list(Xs, "rows")
    client_ids = _client_ids(ids, len(given))
    names = client_ids.tolist()
    rows = [_rows(name, X) for name, X in zip(names, given, strict=True)]
    _check_alike(names, rows)
    sizes = [r.shape[0] for r in rows]
    return Federation(
        _end_to_end(rows),
        np.concatenate([[0], np.cumsum(sizes)]),
        client_ids,
        np.arange(sum(sizes)),
        y=None if ys is None else _labels(names, _as_list(ys, "labels"), sizes),
        feature_names=_shared_columns(names, [column_names(X) for X in given]),
    )


def _as_list(values: Iterable[Any], what: str) -> list[Any]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InputTypeError(
            f"{what} of type {type(values).__name__} were given; expected a list with one array "
            "for each client"
        )
    return list(values)


def _client_ids(ids: Iterable[Hashable] | None, n_clients: int) -> Array:
    if n_clients == 0:
        raise DataError("no clients were given; expected the rows of at least one")
    if ids is None:
        return np.arange(n_clients)
    client_ids = one_dimensional(ids, "client ids")
    if len(client_ids) != n_clients:
        raise DataError(
            f"{len(client_ids)} client ids were given for the rows of {n_clients} clients; "
            "expected one for each client"
        )
    _, offsets, order = group(client_ids, n_clients)
    twice = np.flatnonzero(np.diff(offsets) > 1)
    if len(twice):
        first, again = order[offsets[twice[0]] :][:2].tolist()
        raise DataError(
            f"client {client_ids.tolist()[again]!r} was given twice, at positions {first} and "
            f"{again}; expected ids that differ: join the rows of one client, or rename it"
        )
    return client_ids


@contextmanager
def _naming(name: Hashable) -> Iterator[None]:
    """Errors inside name the client."""
    try:
        yield
    except (DataError, InputTypeError) as error:
        raise type(error)(f"client {name!r}: {error}") from error


def _rows(name: Hashable, X: Any) -> Any:
    with _naming(name):
        return as_rows(X)


def _labels(names: list[Hashable], ys: list[Any], sizes: list[int]) -> Array:
    if len(ys) != len(names):
        raise DataError(
            f"labels of {len(ys)} clients were given with the rows of {len(names)}; expected one "
            "array of labels for each client"
        )
    labels = []
    for name, y, size in zip(names, ys, sizes, strict=True):
        with _naming(name):
            labels.append(as_labels(y, size))
    kinds = [OTHER_LABELS.get(y.dtype.kind, "numbers") for y in labels]
    _check_same(names, kinds, "{} as labels", "convert them all to numbers, or all to text")
    return np.concatenate(labels)


def _check_alike(names: list[Hashable], rows: list[Any]) -> None:
    _check_same(
        names,
        [_kind(r) for r in rows],
        "{} rows",
        "X.toarray() makes sparse rows dense, scipy.sparse.csr_array(X) makes dense rows sparse",
    )
    _check_same(
        names,
        [dtype_name(r) for r in rows],
        "{} rows",
        "convert one of them, for example with X.astype(np.float32)",
    )
    _check_same(
        names,
        [r.shape[1] for r in rows],
        "{} columns",
        "a column is one feature, and every client needs all of them",
    )


def _shared_columns(names: list[Hashable], columns: list[list[str] | None]) -> list[str] | None:
    """Return the names of the columns, which all clients that name theirs agree on."""
    named = [(n, c) for n, c in zip(names, columns, strict=True) if c is not None]
    for position, same in enumerate(zip(*(c for _, c in named), strict=True)):
        _check_same(
            [n for n, _ in named],
            list(same),
            f"{{!r}} as column {position}",
            "bring every client's columns into one order",
        )
    return named[0][1] if named else None


def _check_same(names: list[Hashable], facts: list[Any], words: str, advice: str) -> None:
    """Refuse the first client that differs from the first of all."""
    for name, fact in zip(names, facts, strict=True):
        if fact != facts[0]:
            raise DataError(
                f"client {name!r} gave {words.format(fact)}, client {names[0]!r} gave "
                f"{words.format(facts[0])}; expected the same from every client: {advice}"
            )


def _kind(rows: Any) -> str:
    return "sparse" if sparse.issparse(rows) else "torch" if is_torch(rows) else "dense"


def _end_to_end(rows: list[Any]) -> Any:
    """All rows as one array; those of a single client are not copied."""
    if len(rows) == 1:
        return rows[0]
    if sparse.issparse(rows[0]):
        return sparse.vstack(rows, format="csr")
    return torch_module().cat(rows) if is_torch(rows[0]) else np.concatenate(rows)

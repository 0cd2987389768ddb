"""`Federation`: the rows of all clients, as one array with offsets.

A caller's rows come in any order. A federation lays them end to end by client, but does not copy
them for that: it remembers an index and lets the array layer gather pieces. `Federation.scatter`
brings results back to the caller's order.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Hashable, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from coterie.arrays import spans
from coterie.backend import Array, Arrays, dtype_name, host, is_torch, to_device, torch_module
from coterie.block import Block
from coterie.data.validation import as_ids, as_labels, as_rows, check_finite
from coterie.errors import DataError
from coterie.protocol import Spec
from coterie.random import client_keys


class Federation:
    """Rows of many clients: one array, offsets, ids, and the order in which they were given.

    Build one with `from_arrays`, `from_clients`, `from_frame` or `from_parquet`.

    Attributes
    ----------
    X : ndarray, memmap, csr_array or torch tensor of shape (n_samples, n_features)
        All rows, client by client. Where the caller's rows were not grouped by client this is a
        copy, made at each access; algorithms gather pieces instead.
    y : ndarray of shape (n_samples,) or None
        Labels, client by client.
    offsets : ndarray of shape (n_clients + 1,)
        Client i owns rows ``offsets[i]:offsets[i + 1]``.
    client_ids : ndarray of shape (n_clients,)
        In the order of first appearance.
    sizes : ndarray of shape (n_clients,)
        Rows of each client.
    feature_names : list of str or None
    order : ndarray of shape (n_samples,)
        The caller's row number of each row.
    x, index
        The rows where they lie, and which of them is each row of the federation, for the array
        layer; without `index` they lie client by client.
    """

    def __init__(
        self,
        x: Any,
        offsets: Array,
        client_ids: Array,
        order: Array,
        *,
        index: Array | None = None,
        y: Array | None = None,
        feature_names: Sequence[str] | None = None,
        extra: Arrays | None = None,
    ) -> None:
        self.x = x
        self.index = index
        self.offsets = offsets
        self.client_ids = client_ids
        self.order = order
        self.y = y
        self.feature_names = None if feature_names is None else list(feature_names)
        self.extra = dict(extra or {})
        empty = np.flatnonzero(self.sizes == 0)
        if len(empty):
            raise DataError(
                f"client {self._id(int(empty[0]))!r} has no rows; every client needs at least one: "
                "leave such clients out"
            )
        check_finite(x, self._describe, self.feature_names)

    # -- from what callers have -------------------------------------------------------------------

    @classmethod
    def from_arrays(cls, X: Any, clients: Any = None, y: Any = None) -> Federation:
        """Build a federation from rows and one client id a row.

        Parameters
        ----------
        X : array-like, memmap or sparse matrix of shape (n_samples, n_features)
            Kept as it is where it is float32 or float64; nothing is copied. Other numbers become
            float64, and float16 becomes float32.
        clients : array-like of shape (n_samples,), optional
            Who owns each row: strings, integers, tuples, or anything hashable. ``1`` and ``"1"``
            are two clients. Without it all rows are one client's.
        y : array-like of shape (n_samples,), optional
            Labels, for evaluation.

        Examples
        --------
        >>> import numpy as np, coterie as ct
        >>> fed = ct.Federation.from_arrays(np.eye(4), clients=["b", "a", "b", "a"])
        >>> fed.client_ids.tolist(), fed.sizes.tolist()
        (['b', 'a'], [2, 2])
        """
        rows = as_rows(X)
        labels = None if y is None else as_labels(y, rows.shape[0])
        names = column_names(X)
        ids, offsets, order = group(clients, rows.shape[0])
        grouped = bool(np.all(order[:-1] < order[1:]))
        return cls(
            rows,
            offsets,
            ids,
            order,
            index=None if grouped else order,
            y=None if labels is None else labels[order],
            feature_names=names,
        )

    @classmethod
    def from_clients(
        cls,
        Xs: Sequence[Any],
        ids: Sequence[Hashable] | None = None,
        ys: Sequence[Any] | None = None,
    ) -> Federation:
        """Build a federation from one array of rows a client.

        Parameters
        ----------
        Xs : sequence of array-likes of shape (n_i, n_features)
            All dense or all sparse, of one type and with the same columns.
        ids : sequence of hashables, optional
            By default 0, 1, 2 ...
        ys : sequence of array-likes of shape (n_i,), optional
            Labels of each client.

        Examples
        --------
        >>> import numpy as np, coterie as ct
        >>> fed = ct.Federation.from_clients([np.eye(2), np.ones((1, 2))], ids=["b", "a"])
        >>> fed.sizes.tolist()
        [2, 1]
        """
        from coterie.data.clients import concatenate

        return concatenate(Xs, ids, ys)

    @classmethod
    def from_frame(cls, df: Any, client: str, label: str | None = None) -> Federation:
        """Build a federation from a pandas, polars or pyarrow frame.

        Parameters
        ----------
        df : DataFrame or Table
        client : str
            The column that says who owns a row.
        label : str, optional
            The column of labels. All other columns are features, and must be numbers or booleans.
            They become float32 where all of them are float32 (or float16), else float64.
        """
        from coterie.data.frames import read_frame

        return read_frame(df, client, label)

    @classmethod
    def from_parquet(cls, path: str | Path, client: str, label: str | None = None) -> Federation:
        """Read a federation from a Parquet file, or a folder of them, by row groups.

        Peak memory is the rows and one row group. The caller's row order is that of the files,
        sorted by name.

        Parameters
        ----------
        path : str or Path
            A file, or a folder with ``*.parquet`` files in it or in its subfolders.
        client : str
            The column that says who owns a row.
        label : str, optional
            The column of labels. All other columns are features, as in `from_frame`.
        """
        from coterie.data.frames import read_parquet

        return read_parquet(Path(path), client, label)

    # -- what it is -------------------------------------------------------------------------------

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return len(self.client_ids)

    @property
    def n_samples(self) -> int:
        """Number of rows of all clients."""
        return int(self.offsets[-1])

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.x.shape[1])

    @property
    def sizes(self) -> Array:
        """Rows of each client."""
        return np.diff(self.offsets)

    @property
    def X(self) -> Any:  # noqa: N802
        """All rows, client by client."""
        return self.x if self.index is None else self.x[self.index]

    @cached_property
    def keys(self) -> Array:
        """64-bit hashes of the client ids: the roots of their randomness."""
        return client_keys(self.client_ids.tolist())

    def client(self, position: int) -> Any:
        """Return the rows of one client, by position."""
        rows = slice(int(self.offsets[position]), int(self.offsets[position + 1]))
        return self.x[rows if self.index is None else self.index[rows]]

    def minimum(self) -> float:
        """Return the smallest entry; of sparse rows, zeros count."""
        return float(self.x.min())

    # -- for algorithms ---------------------------------------------------------------------------

    def spec(self) -> Spec:
        """Return what is public of the clients before any row is touched."""
        return Spec(self.sizes, tuple(self.x.shape[1:]), dtype_name(self.x))

    def block(self, *, device: str = "cpu", threads: int | None = None) -> Block:
        """Return all clients as one block."""
        return Block(
            to_device(self.x, device),
            self.offsets,
            keys=self.keys,
            index=self.index,
            extra=self.extra,
            device=device,
            threads=threads,
        )

    def prepared(self, *, dtype: str | None = None, extra: Arrays | None = None) -> Federation:
        """Return the same federation with rows of another type, or with more columns beside them.

        `extra` is client by client, as `gather` gives it.
        """
        if extra is None and dtype in (None, dtype_name(self.x)):
            return self
        prepared = copy.copy(self)
        if dtype is not None and dtype != dtype_name(self.x):
            prepared.x = (
                self.x.to(getattr(torch_module(), dtype))
                if is_torch(self.x)
                else self.x.astype(dtype)
            )
        prepared.extra = {**self.extra, **(extra or {})}
        return prepared

    def select(self, positions: Array) -> Federation:
        """Return a federation of some of these clients, by position, in the order given.

        Rows are not copied; row numbers are those of the rows that are kept.
        """
        sizes = self.sizes[positions]
        rows = spans(sizes, self.offsets[positions])
        return Federation(
            self.x,
            np.concatenate([[0], np.cumsum(sizes)]),
            self.client_ids[positions],
            np.argsort(np.argsort(self.order[rows])),
            index=rows if self.index is None else self.index[rows],
            y=None if self.y is None else self.y[rows],
            feature_names=self.feature_names,
            extra={name: column[rows] for name, column in self.extra.items()},
        )

    # -- the caller's order -----------------------------------------------------------------------

    def scatter(self, values: Any) -> Array:
        """Values client by client, (N, ...), as an array in the caller's row order."""
        packed = self._one_a_row(host(values))
        out = np.empty_like(packed)
        out[self.order] = packed
        return out

    def gather(self, values: Any) -> Array:
        """Values in the caller's row order, (N, ...), as an array client by client."""
        return self._one_a_row(host(values))[self.order]

    def _one_a_row(self, values: Array) -> Array:
        if values.shape[:1] != (self.n_samples,):
            raise DataError(
                f"values of shape {values.shape} were given for {self.n_samples} rows; expected "
                "one for each row"
            )
        return values

    def _id(self, position: int) -> Hashable:
        """Return the id as Python calls it: 'a', not np.str_('a')."""
        name: Hashable = self.client_ids[position : position + 1].tolist()[0]
        return name

    def _describe(self, row: int) -> str:
        """Words for a row of `x`, which is in the caller's order if there is an index."""
        packed = row if self.index is None else int(np.flatnonzero(self.index == row)[0])
        owner = int(np.searchsorted(self.offsets, packed, side="right")) - 1
        return f"row {int(self.order[packed])} (client {self._id(owner)!r})"

    def __repr__(self) -> str:
        kind = "CSR" if sparse.issparse(self.x) else "torch" if is_torch(self.x) else "dense"
        return (
            f"Federation({self.n_clients:,} clients, {self.n_samples:,} x {self.n_features:,} "
            f"rows, {kind} {dtype_name(self.x)}, "
            f"sizes {self.sizes.min():,} to {self.sizes.max():,})"
        )


def group(clients: Any, n_rows: int) -> tuple[Array, Array, Array]:
    """Ids in the order of first appearance, offsets, and the row numbers client by client."""
    if clients is None:
        return np.array([0]), np.array([0, n_rows]), np.arange(n_rows)
    ids = as_ids(clients, n_rows)
    # A dict tells 1 from "1", takes any hashable, and is as quick as a sort.
    positions: defaultdict[Hashable, int] = defaultdict(count().__next__)
    owner = np.fromiter(map(positions.__getitem__, ids.tolist()), np.int64, count=n_rows)
    offsets, order = lay_out(owner, len(positions))
    return ids[order[offsets[:-1]]], offsets, order


def lay_out(owner: Array, n_clients: int) -> tuple[Array, Array]:
    """Offsets, and the row numbers client by client, from the client of each row."""
    sizes = np.bincount(owner, minlength=n_clients)
    return np.concatenate([[0], np.cumsum(sizes)]), np.argsort(owner, kind="stable")


def column_names(X: Any) -> list[str] | None:
    """Names of the columns of a pandas, polars or pyarrow frame, where all are strings."""
    names = getattr(X, "column_names", getattr(X, "columns", None))
    if names is None or callable(names):
        return None
    names = list(names)
    return names if all(isinstance(n, str) for n in names) else None

"""Rows wherever they lie: one kernel text for NumPy, memory maps, CSR and torch (CPU or GPU).

`Rows` holds rows of one or more clients end to end, with `offsets` that say where each client
begins. An algorithm hands it a *kernel*, a function of a few rows, and gets back what the kernel
computed for every row (or every client) and the sums over all of them:

* `Rows.map_rows` cuts the rows into pieces that fit a cache and runs the kernel on each;
* `Rows.map_clients` stacks clients of about one size, so that a kernel sees ``(G, n, ...)``.

Inside a kernel use only what NumPy and torch share: ``+ * @ .T .mT .swapaxes .reshape
.clip(min=) .sum(0) .argmax(1) .min()``, comparisons and slices. In `map_rows`, ``x`` may be CSR,
so it appears only in ``x @ a``, ``a @ x``, ``x * x`` and ``x.sum``. Small matrices enter by
`Rows.put` and leave as sums; outside of kernels they are always NumPy float64.

Sums are added in float64 in the order of the rows, and every piece runs with one BLAS thread:
the result is the same, bit for bit, for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
from scipy import sparse

from coterie.backend import (
    Array,
    as_tensor,
    available_threads,
    dtype_name,
    host,
    is_torch,
    one_blas_thread,
    thread_pool,
    torch_module,
)

Kernel = Callable[..., tuple[dict[str, Any], dict[str, Any]]]
ClientKernel = Callable[..., tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]

PIECE_BYTES = 4 << 20  # of x on a CPU: a piece, and what a kernel makes of it, stays in cache
PIECE_ROWS = (256, 8192)  # on a CPU, whatever the width of a row
DEVICE_PIECE_ROWS = 1 << 19  # on an accelerator launches cost more than caches save
PADDING = 8  # stacked clients are padded by at most one row in eight


def spans(sizes: Array, starts: Array) -> Array:
    """Row numbers ``starts[i] ... starts[i] + sizes[i] - 1`` for every i, end to end."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    first: Array = starts - (ends - sizes)
    return np.asarray(np.arange(total) + np.repeat(first, sizes))


class Rows:
    """Rows of one or more clients, end to end.

    Parameters
    ----------
    x : ndarray, memmap, csr_array or torch tensor of shape (n, n_features)
        The rows, or an array that holds them among others (see `index`).
    offsets : int array of shape (n_clients + 1,)
        Client i owns rows ``offsets[i] : offsets[i + 1]``.
    index : int array, optional
        Which rows of `x` these are, in order. They are gathered piece by piece, never all at once.
    device : str
        "cpu" for NumPy; else a torch device. Rows that are not there yet are streamed to it.
    threads : int, optional
        Threads over pieces on a CPU; by default all processors of this process.
    piece : int, optional
        Rows in a piece; by default as many as fit a cache.
    """

    def __init__(
        self,
        x: Any,
        offsets: Array,
        index: Array | None = None,
        *,
        device: str = "cpu",
        threads: int | None = None,
        piece: int | None = None,
    ) -> None:
        self.x = x
        self.offsets = offsets
        self.index = index
        self.device = device
        self.threads = threads or available_threads()
        self._piece_rows = piece

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.offsets[-1])

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return len(self.offsets) - 1

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.x.shape[1])

    @property
    def sizes(self) -> Array:
        """Rows of each client."""
        return np.diff(self.offsets)

    @property
    def owner(self) -> Array:
        """The client, by position, of each row."""
        return np.repeat(np.arange(self.n_clients), self.sizes)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's name for the type of the rows."""
        return np.dtype(dtype_name(self.x))

    @property
    def on_torch(self) -> bool:
        """Whether kernels see torch tensors."""
        return is_torch(self.x) or self.device != "cpu"

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are CSR."""
        return bool(sparse.issparse(self.x))

    @property
    def xp(self) -> ModuleType:
        """The array module of the kernels: numpy or torch."""
        return torch_module() if self.on_torch else np

    @property
    def _place(self) -> dict[str, Any]:
        return {"device": self.x.device if is_torch(self.x) else self.device}

    def dense(self) -> Array:
        """All rows as one dense host array: for tests and small things."""
        x = self.x if self.index is None else self.x[self.index]
        return x.toarray() if self.is_sparse else host(x)

    # -- in and out ---------------------------------------------------------------------------

    def put(self, *small: Array) -> Any:
        """Small host arrays as kernels want them: in the type and on the device of the rows."""
        moved = tuple(self._put(a) for a in small)
        return moved[0] if len(moved) == 1 else moved

    def _put(self, array: Array) -> Any:
        array = np.asarray(array)
        return self.move(array.astype(self.dtype, copy=False) if array.dtype.kind == "f" else array)

    def move(self, array: Array) -> Any:
        """A host array where the kernels are, in its own type."""
        if not self.on_torch:
            return array
        return self.xp.as_tensor(np.array(array), **self._place)

    def spread(self, per_client: Array) -> Any:
        """One value a client, (C, ...), as one value a row, (N, ...)."""
        return self._put(np.repeat(np.asarray(per_client), self.sizes, axis=0))

    def per_client(self, rows: Any) -> Array:
        """Sums over each client's rows: (N, ...) to (C, ...), on the host."""
        if self.n_clients == 0:
            return np.zeros((0, *rows.shape[1:]))
        if is_torch(rows):
            lengths = self.xp.as_tensor(self.sizes, device=rows.device)
            kind = self.xp.float64 if not rows.dtype.is_floating_point else rows.dtype
            return host(self.xp.segment_reduce(rows.to(kind), "sum", lengths=lengths, axis=0))
        kind = np.int64 if rows.dtype == np.bool_ else rows.dtype
        sums = np.zeros((self.n_clients, *rows.shape[1:]), dtype=kind)
        some = np.flatnonzero(self.sizes)  # reduceat has no sum of nothing
        if len(some):
            sums[some] = np.add.reduceat(rows, self.offsets[some], axis=0, dtype=kind)
        return sums

    def empty(self, shape: tuple[int, ...], like: Any) -> Any:
        """An uninitialised array of the type and at the place of `like`."""
        if is_torch(like):
            return self.xp.empty(shape, dtype=like.dtype, device=like.device)
        return np.empty(shape, dtype=like.dtype)

    # -- a kernel over pieces of rows -----------------------------------------------------------

    def map_rows(self, kernel: Kernel, *aligned: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Run ``kernel(x, *aligned) -> (rows, sums)`` on pieces of the rows.

        Parameters
        ----------
        kernel : callable
            Sees a piece of the rows and of each of `aligned`; returns arrays with one entry a
            row, and arrays to be summed over all pieces. It sees an empty piece when there are
            no rows, so that shapes are known.
        *aligned : arrays of shape (N, ...)
            More columns, cut like the rows.

        Returns
        -------
        rows : dict of arrays of shape (N, ...)
            In the type that the kernel gave, where the rows are.
        sums : dict of float64 arrays
            On the host.
        """
        pieces = list(self._pieces())

        def run(piece: slice) -> tuple[dict[str, Any], dict[str, Any]]:
            return kernel(self._rows(piece), *(a[piece] for a in aligned))

        rows: dict[str, Any] = {}
        sums: dict[str, Any] = {}
        for piece, (given, partial) in zip(pieces, self._run(run, pieces), strict=True):
            for name, value in given.items():
                if len(pieces) == 1:
                    rows[name] = value
                    continue
                if name not in rows:
                    rows[name] = self.empty((self.n_rows, *value.shape[1:]), value)
                rows[name][piece] = value
            _accumulate(sums, partial)
        return rows, {name: host(value) for name, value in sums.items()}

    def _pieces(self) -> Iterator[slice]:
        step = self._piece_rows or self._default_piece_rows()
        if self.n_rows == 0:
            yield slice(0, 0)
        for start in range(0, self.n_rows, step):
            yield slice(start, min(start + step, self.n_rows))

    def _default_piece_rows(self) -> int:
        if self.on_torch and str(self._place["device"]) != "cpu":
            return DEVICE_PIECE_ROWS
        least, most = PIECE_ROWS
        if self.is_sparse:
            width = (self.x.nnz // max(self.x.shape[0], 1)) * (self.x.dtype.itemsize + 4)
        else:
            width = self.n_features * self.dtype.itemsize
        return int(np.clip(PIECE_BYTES // max(width, 1), least, most))

    def _rows(self, which: slice) -> Any:
        """One piece of x, ready for a kernel."""
        x = self.x
        if self.index is not None:
            return self._placed(x[self.index[which]])
        if self.is_sparse:
            return _csr_view(x, which)
        piece = x[which]
        return self._placed(np.array(piece) if isinstance(piece, np.memmap) else piece)

    def _placed(self, piece: Any) -> Any:
        return as_tensor(piece, self.device) if self.on_torch and not is_torch(piece) else piece

    def _run(self, work: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
        """Results of `work` in the order of `items`, on threads where that pays."""
        if self.on_torch:
            yield from map(work, items)
            return
        with one_blas_thread():
            if self.threads == 1 or len(items) == 1:
                yield from map(work, items)
            else:
                yield from thread_pool(self.threads).map(work, items)

    def extremes(self) -> tuple[Array, Array]:
        """The least and the greatest entry of all rows, each (1,); nothing where there are none."""
        if self.n_rows == 0:
            return np.zeros(0), np.zeros(0)

        def run(piece: slice) -> tuple[float, float]:
            x = self._rows(piece)
            return float(x.min()), float(x.max())

        low, high = zip(*self._run(run, list(self._pieces())), strict=True)
        return np.array([min(low)]), np.array([max(high)])

    # -- a kernel over stacked clients ----------------------------------------------------------

    def map_clients(
        self, kernel: ClientKernel, *aligned: Any, clients: tuple[Array, ...] = ()
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Run ``kernel(x, *aligned, *clients) -> (rows, clients, sums)`` on stacked clients.

        The kernel sees ``x`` as (G, n, M): G clients of about one size, dense, each padded with
        zero rows to n rows, and `aligned` padded alike; a kernel that must tell rows from padding
        takes a column of ones as one of `aligned`. `clients` are arrays of shape (C, ...), seen
        as (G, ...).

        Returns
        -------
        rows : dict of arrays of shape (N, ...)
        clients : dict of arrays of shape (C, ...)
        sums : dict of float64 arrays
        """
        groups = list(self._groups())
        columns = tuple(self._put(c) for c in clients)

        def run(group: _Group) -> Any:
            x = _stack(group, self._stacked_x(group))
            return kernel(
                x,
                *(_stack(group, a[self._pick(group.rows)]) for a in aligned),
                *(c[self._pick(group.clients)] for c in columns),
            )

        rows: dict[str, Any] = {}
        per_client: dict[str, Any] = {}
        sums: dict[str, Any] = {}
        for group, (by_row, by_client, partial) in zip(groups, self._run(run, groups), strict=True):
            self._scatter(rows, by_row, group.real_rows, self.n_rows, group.keep)
            self._scatter(per_client, by_client, group.clients, self.n_clients, None)
            _accumulate(sums, partial)
        return rows, per_client, {name: host(value) for name, value in sums.items()}

    def _groups(self) -> Iterator[_Group]:
        sizes = self.sizes
        if len(sizes) == 0:
            none = np.zeros(0, dtype=np.int64)
            yield _Group(none, none, np.zeros((0, 0), dtype=np.bool_))
            return
        order = np.argsort(sizes, kind="stable")
        ordered = sizes[order]
        budget = self._piece_rows or self._default_piece_rows()
        start = 0
        while start < len(order):
            longest = ordered[start] + ordered[start] // PADDING
            stop = int(np.searchsorted(ordered, longest, side="right"))
            stop = min(stop, start + max(1, budget // max(1, int(longest))))
            chosen = np.sort(order[start:stop])
            n = np.arange(ordered[stop - 1])
            keep = n < sizes[chosen][:, None]
            rows = np.where(keep, self.offsets[chosen][:, None] + n, self.offsets[chosen][:, None])
            yield _Group(chosen, rows.ravel(), keep)
            start = stop

    def _stacked_x(self, group: _Group) -> Any:
        where = group.rows if self.index is None else self.index[group.rows]
        picked = self.x[where if self.is_sparse else self._pick(where, self.x)]
        return self._put(picked.toarray()) if self.is_sparse else self._placed(picked)

    def _pick(self, index: Array, of: Any = None) -> Any:
        """An index that the arrays of the kernels understand, where they are."""
        if not self.on_torch or (of is not None and not is_torch(of)):
            return index
        return self.xp.as_tensor(index, **self._place)

    def _scatter(
        self, out: dict[str, Any], given: dict[str, Any], where: Array, n: int, keep: Array | None
    ) -> None:
        for name, value in given.items():
            flat = value if keep is None else value[self._pick(keep)]
            if name not in out:
                out[name] = self.empty((n, *flat.shape[1:]), flat)
            out[name][self._pick(where)] = flat


class _Group:
    """Clients that are stacked: their row numbers with padding, and which are real."""

    def __init__(self, clients: Array, rows: Array, keep: Array) -> None:
        self.clients = clients
        self.rows = rows
        self.keep = keep

    @property
    def real_rows(self) -> Array:
        return self.rows[self.keep.ravel()]


def _stack(group: _Group, flat: Any) -> Any:
    """Padded rows, (G·n, ...), as (G, n, ...) with zeros where the padding is."""
    stacked = flat.reshape(*group.keep.shape, *flat.shape[1:])
    if not group.keep.all():
        stacked[~group.keep if not is_torch(stacked) else _like(stacked, ~group.keep)] = 0
    return stacked


def _like(tensor: Any, array: Array) -> Any:
    return torch_module().as_tensor(array, device=tensor.device)


def _csr_view(x: Any, which: slice) -> Any:
    """Rows of a CSR array that share its memory."""
    first, last = int(x.indptr[which.start]), int(x.indptr[which.stop])
    view = sparse.csr_array((which.stop - which.start, x.shape[1]), dtype=x.dtype)
    view.data, view.indices = x.data[first:last], x.indices[first:last]  # its own makers copy
    view.indptr = x.indptr[which.start : which.stop + 1] - x.indptr[which.start]
    return view


def _accumulate(sums: dict[str, Any], partial: dict[str, Any]) -> None:
    for name, value in partial.items():
        wide = value.double() if is_torch(value) else np.asarray(value, dtype=np.float64)
        sums[name] = wide if name not in sums else sums[name] + wide

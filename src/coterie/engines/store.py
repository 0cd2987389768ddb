"""Private state of all clients of one process, packed: one array and places, no list of clients.

Room is made for clients when they join, in the order in which they join. Where everyone joins at
once, and so in most runs, the arrays are in the order of the roster: reading them is a view and
writing them a change of reference. What an algorithm returned may be someone else's too, so it is
copied before a few clients are written into it. With a folder the arrays are memory maps in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from coterie.arrays import spans
from coterie.backend import Array, Arrays, host, is_torch
from coterie.block import Private


class PrivateStore:
    """Where private state lives in a simulation.

    Parameters
    ----------
    sizes : int array of shape (n_clients,)
        Rows of each client.
    folder : Path, optional
        Keep arrays in files here instead of in memory.
    """

    def __init__(self, sizes: Array, folder: Path | None = None) -> None:
        self._sizes = sizes
        self._folder = folder
        self._place = np.full(len(sizes), -1)  # of each client among those that joined
        self._start = np.zeros(len(sizes), dtype=np.int64)  # of its first row
        self._n_clients = 0
        self._n_rows = 0
        self._rows: dict[str, Any] = {}
        self._clients: dict[str, Any] = {}
        self._owned = True  # whether nobody else may have a hand on the arrays
        self._files = 0  # made so far

    def joined(self, clients: Array) -> Array:
        """Which of these clients have joined."""
        return self._place[clients] >= 0

    def add(self, clients: Array, private: Private) -> None:
        """Make room for newcomers and keep a copy of what they start from."""
        sizes = self._sizes[clients]
        first = self._n_clients == 0
        self._place[clients] = self._n_clients + np.arange(len(clients))
        self._start[clients] = self._n_rows + np.cumsum(sizes) - sizes
        self._n_clients += len(clients)
        self._n_rows += int(sizes.sum())
        for kept, given, n in (
            (self._rows, private.rows, self._n_rows),
            (self._clients, private.clients, self._n_clients),
        ):
            for name, value in given.items():
                kept[name] = self._grown(name, None if first else kept[name], value, n)
        self._owned = True

    def read(self, clients: Array) -> Private:
        """Private state of these clients, aligned with a block of them."""
        if self._is_everyone(clients):
            return Private(
                {name: a[: self._n_rows] for name, a in self._rows.items()},
                {name: a[: self._n_clients] for name, a in self._clients.items()},
            )
        rows, places = self._rows_of(clients), self._place[clients]
        return Private(
            {name: a[rows] for name, a in self._rows.items()},
            {name: a[places] for name, a in self._clients.items()},
        )

    def write(self, clients: Array, private: Private) -> None:
        """Keep the new private state of these clients."""
        if self._is_everyone(clients):
            self._replace(private)
            return
        rows, places = self._rows_of(clients), self._place[clients]
        for kept, given, where in (
            (self._rows, private.rows, rows),
            (self._clients, private.clients, places),
        ):
            for name, value in given.items():
                if not self._owned:
                    kept[name] = _copy(kept[name])
                kept[name][where] = value
        self._owned = True

    def _replace(self, private: Private) -> None:
        """Everyone's new private state; what was read of the old one stays as it was."""
        if self._folder is None:
            self._rows, self._clients = dict(private.rows), dict(private.clients)
            self._owned = False
            return
        for kept, given in ((self._rows, private.rows), (self._clients, private.clients)):
            for name, value in given.items():
                new = self._allocate(name, value.shape, value)
                new[:] = value
                _drop_file(kept[name])
                kept[name] = new

    def everyone(self) -> Private:
        """Private state in the order of the roster; zeros for those who never joined."""
        clients = np.flatnonzero(self._place >= 0)
        if len(clients) == len(self._place):
            return self.read(clients)
        known = self.read(clients)
        ends = np.cumsum(self._sizes)
        rows = spans(self._sizes[clients], (ends - self._sizes)[clients])
        return Private(
            {name: _spread(a, rows, int(ends[-1])) for name, a in known.rows.items()},
            {name: _spread(a, clients, len(self._place)) for name, a in known.clients.items()},
        )

    # -- checkpoints ------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Array]:
        """Everything, as host arrays: a copy, which later exchanges do not change."""
        out: dict[str, Array] = {"place": self._place.copy(), "start": self._start.copy()}
        private = self.read(np.argsort(self._place)[len(self._place) - self._n_clients :])
        out |= {f"rows.{name}": _host_copy(a) for name, a in private.rows.items()}
        for name, a in private.clients.items():
            kind = "moved" if is_torch(a) else "clients"
            out[f"{kind}.{name}"] = _host_copy(a)
        return out

    def restore(self, arrays: Arrays, place: Any) -> None:
        """Go back to a snapshot, or from an empty one to nobody.

        `place` moves a host array to where the kernels are; arrays of clients that were on the
        host stay there.
        """
        nobody = np.full(len(self._sizes), -1)
        self._place = np.array(arrays.get("place", nobody))
        self._start = np.array(arrays.get("start", np.zeros_like(nobody)))
        self._n_clients = int((self._place >= 0).sum())
        self._n_rows = int(self._sizes[self._place >= 0].sum())
        for old in (*self._rows.values(), *self._clients.values()):
            _drop_file(old)
        self._rows, self._clients, self._owned = {}, {}, True
        for full, array in arrays.items():
            kind, _, name = full.partition(".")
            if kind == "rows":
                self._rows[name] = self._grown(name, None, place(array), self._n_rows)
            elif kind in ("clients", "moved"):
                there = array if kind == "clients" else place(array)
                self._clients[name] = self._grown(name, None, there, self._n_clients)

    # -- places -----------------------------------------------------------------------------------

    def _is_everyone(self, clients: Array) -> bool:
        """Whether these are all who joined, in the order in which they are kept."""
        return len(clients) == self._n_clients and bool(
            np.array_equal(self._place[clients], np.arange(self._n_clients))
        )

    def _rows_of(self, clients: Array) -> Array:
        return spans(self._sizes[clients], self._start[clients])

    def _grown(self, name: str, old: Any, new: Any, n: int) -> Any:
        """`old` with `new` behind it; capacity doubles, so that joining one by one stays cheap."""
        if self._folder is None and old is None:
            return _copy(new)
        have = 0 if old is None else n - len(new)
        if old is None or len(old) < n:
            capacity = n if old is None else max(n, 2 * len(old))
            grown = self._allocate(name, (capacity, *new.shape[1:]), new)
            if old is not None:
                grown[:have] = old[:have]
                _drop_file(old)
            old = grown
        old[have:n] = new
        return old

    def _allocate(self, name: str, shape: tuple[int, ...], like: Any) -> Any:
        if is_torch(like):
            return like.new_empty(shape)
        if self._folder is None:
            return np.empty(shape, dtype=like.dtype)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._files += 1
        path = self._folder / f"{name}-{self._files}.private"
        return np.memmap(path, dtype=like.dtype, mode="w+", shape=shape)


def _copy(array: Any) -> Any:
    return array.clone() if is_torch(array) else np.array(array)


def _host_copy(array: Any) -> Array:
    return np.array(host(array))


def _drop_file(array: Any) -> None:
    """Remove the file of an array that is kept no more; who still reads it may go on."""
    if isinstance(array, np.memmap):
        Path(str(array.filename)).unlink(missing_ok=True)


def _spread(known: Any, where: Array, n: int) -> Array:
    out = np.zeros((n, *known.shape[1:]), dtype=host(known).dtype)
    out[where] = host(known)
    return out

"""What a client has: a block of rows, and private state beside it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coterie.arrays import Rows, spans
from coterie.backend import Array, Arrays


class Block(Rows):
    """The rows of some clients end to end, as a client half sees them.

    Parameters
    ----------
    x, offsets, index, **where
        As for `coterie.arrays.Rows`.
    keys : int64 array of shape (n_clients,)
        Hashes of the client ids, the root of their randomness.
    weights : float array of shape (n_clients,), optional
        Importance of each client's reply: times drawn over the chance of being drawn; one for
        all by default.
    extra : mapping, optional
        More columns, aligned with the rows (memberships that the caller starts from).
    """

    def __init__(
        self,
        x: Any,
        offsets: Array,
        *,
        keys: Array,
        index: Array | None = None,
        weights: Array | None = None,
        extra: Arrays | None = None,
        **where: Any,
    ) -> None:
        super().__init__(x, offsets, index, **where)
        self.keys = keys
        self.weights = np.ones(self.n_clients) if weights is None else weights
        self.extra = extra or {}

    @property
    def mass(self) -> Array:
        """Rows of each client times the client's weight."""
        return self.weights * self.sizes

    def weighted(self, rows: Any) -> Any:
        """Each row times its client's weight; free when all weights are one."""
        if np.all(self.weights == 1):
            return rows
        spread = self.spread(self.weights)
        return rows * spread.reshape(-1, *(1,) * (rows.ndim - 1))

    def with_weights(self, weights: Array) -> Block:
        """The same block with other weights; nothing is copied."""
        block = copy.copy(self)
        block.weights = weights
        return block

    def bare(self) -> Block:
        """The same clients with rows of no features: for draws, which need not read any row."""
        block = copy.copy(self)
        block.x = self.empty((self.n_rows, 0), self._rows(slice(0, 0)))
        block.index = None
        return block

    def take(self, clients: Array) -> Block:
        """The block of some of these clients, by position, in the order given."""
        clients = np.asarray(clients, dtype=np.int64)
        sizes = self.sizes[clients]
        block = self._of(spans(sizes, self.offsets[clients]), sizes)
        block.keys, block.weights = self.keys[clients], self.weights[clients]
        return block

    def pick(self, rows: Array) -> Block:
        """The same clients with some of their rows, by sorted position."""
        return self._of(rows, np.bincount(self.owner[rows], minlength=self.n_clients))

    def _of(self, rows: Array, sizes: Array) -> Block:
        block = copy.copy(self)
        block.offsets = np.concatenate([[0], np.cumsum(sizes)])
        block.index = rows if self.index is None else self.index[rows]
        block.extra = {name: column[rows] for name, column in self.extra.items()}
        return block


@dataclass(frozen=True)
class Private:
    """What clients keep between rounds and never send.

    Two kinds, named apart because shapes cannot tell them apart: arrays aligned with a block's
    rows, and arrays aligned with its clients.
    """

    rows: Mapping[str, Any] = field(default_factory=dict)
    clients: Mapping[str, Any] = field(default_factory=dict)

    def take(self, block: Block, clients: Array) -> Private:
        """The private state of ``block.take(clients)``."""
        rows = spans(block.sizes[clients], block.offsets[clients])
        return Private(
            {name: a[rows] for name, a in self.rows.items()},
            {name: a[clients] for name, a in self.clients.items()},
        )

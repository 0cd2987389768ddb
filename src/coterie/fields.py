"""What a client says: named fields that know how to merge.

A reply is a mapping of names to fields. Which kind of field it is decides how the replies of many
clients become one, what secure aggregation can take, and how many bytes cross the network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from coterie.arrays import spans
from coterie.backend import Array, Arrays
from coterie.block import Block
from coterie.errors import ProtocolError

MOST_ENTRIES = 1 << 30  # of all slots together, before a reply is believed


@dataclass(frozen=True)
class Part:
    """One array of a field as it leaves one client: the unit in which bytes are counted.

    `counts` gives the leading dimension for each client where clients differ; `shape` is then the
    shape behind it.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    counts: Array | None = None


@dataclass(frozen=True)
class Field:
    """A named part of a reply. A field knows how to merge, and what of it crosses the network.

    `of` makes a field from what a block computed; `merge` joins fields of other clients to it.
    """

    value: Array
    additive: ClassVar[bool] = False

    def merge(self, others: Sequence[Self]) -> Self:
        """This field and `others`, as one."""
        raise NotImplementedError

    def reorder(self, clients: Array) -> Self:
        """The same for clients in another order; only fields that show clients change."""
        return self

    def parts(self) -> Mapping[str, Part]:
        """The arrays that one client sends."""
        return {"value": Part(self.value.dtype, self.value.shape)}

    def encode(self) -> Arrays:
        """The arrays of this field of one client, as they travel."""
        return {"value": self.value}

    @classmethod
    def decode(cls, arrays: Arrays) -> Self:
        """A field of one client from the arrays that travelled."""
        return cls(arrays["value"])


@dataclass(frozen=True)
class Sum(Field):
    """Additive: fits secure aggregation and central noise.

    `of` applies the weights. Changes to sums that the server keeps take none: build those with
    ``Sum(value)``.
    """

    additive: ClassVar[bool] = True

    @classmethod
    def of(cls, block: Block, per_client: Array) -> Self:
        """The weighted sum of one value a client, (C, ...)."""
        return cls(np.tensordot(block.weights, per_client, 1))

    def merge(self, others: Sequence[Self]) -> Self:
        """Add."""
        return replace(self, value=_added([self, *others]))


@dataclass(frozen=True)
class Slots(Field):
    """A sum whose leading axis has one slot a cluster, of which each client fills one.

    It travels as (slot, row) unless a secure sum needs all slots.
    """

    slot: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    additive: ClassVar[bool] = True

    @classmethod
    def of(cls, block: Block, per_client: Array, slot: Array, n: int) -> Self:
        """Weighted sums by slot of one value a client, (C, ...)."""
        chosen = (slot == np.arange(n)[:, None]) * block.weights
        return cls(np.tensordot(chosen, per_client, 1), np.asarray(slot, dtype=np.int64))

    def merge(self, others: Sequence[Self]) -> Self:
        """Add."""
        slot = np.concatenate([self.slot, *(o.slot for o in others)])
        return type(self)(_added([self, *others]), slot)

    def reorder(self, clients: Array) -> Self:
        """Slots in the order of `clients`."""
        return replace(self, slot=self.slot[clients])

    def parts(self) -> Mapping[str, Part]:
        """One row, its slot, and how many slots there are."""
        whole = np.dtype(np.int64)
        row = Part(self.value.dtype, self.value.shape[1:])
        return {"row": row, "slot": Part(whole, ()), "of": Part(whole, ())}

    def encode(self) -> Arrays:
        """The one filled slot."""
        slot = self.slot[0]
        return {"row": self.value[slot], "slot": slot, "of": np.array(len(self.value))}

    @classmethod
    def decode(cls, arrays: Arrays) -> Self:
        """The row in its slot, zeros elsewhere."""
        row, slot, n = np.asarray(arrays["row"]), int(arrays["slot"]), int(arrays["of"])
        if not 0 <= slot < n or n * row.size > MOST_ENTRIES:
            raise ValueError(f"slot {slot} of {n}, with {row.size} entries in each")
        value = np.zeros((n, *row.shape), dtype=row.dtype)
        value[slot] = row
        return cls(value, np.array([slot]))


@dataclass(frozen=True)
class Stack(Field):
    """One entry a client, (C, ...): the server sees every client.

    Not weighted: the weights stand beside it in the `Total`.
    """

    def merge(self, others: Sequence[Self]) -> Self:
        """Lay end to end."""
        return replace(self, value=np.concatenate([self.value, *(o.value for o in others)]))

    def reorder(self, clients: Array) -> Self:
        """Entries in the order of `clients`."""
        return replace(self, value=self.value[clients])

    def parts(self) -> Mapping[str, Part]:
        """One entry."""
        return {"value": Part(self.value.dtype, self.value.shape[1:])}

    def encode(self) -> Arrays:
        """The one entry."""
        return {"value": self.value[0]}

    @classmethod
    def decode(cls, arrays: Arrays) -> Self:
        """A stack of one."""
        return cls(np.asarray(arrays["value"])[None])


@dataclass(frozen=True)
class Ragged(Field):
    """Rows of all clients end to end, and how many each sent."""

    counts: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def merge(self, others: Sequence[Self]) -> Self:
        """Lay end to end."""
        return type(self)(
            np.concatenate([self.value, *(o.value for o in others)]),
            np.concatenate([self.counts, *(o.counts for o in others)]),
        )

    def reorder(self, clients: Array) -> Self:
        """Rows in the order of `clients`."""
        starts = np.cumsum(self.counts) - self.counts
        counts = self.counts[clients]
        return type(self)(self.value[spans(counts, starts[clients])], counts)

    def parts(self) -> Mapping[str, Part]:
        """The rows that one client sends."""
        return {"value": Part(self.value.dtype, self.value.shape[1:], self.counts)}

    @classmethod
    def decode(cls, arrays: Arrays) -> Self:
        """The rows of one client."""
        value = np.asarray(arrays["value"])
        return cls(value, np.array([len(value)]))


@dataclass(frozen=True)
class Top(Field):
    """The k rows of highest score anywhere. Maxima and minima are k = 1.

    Ties go by value, so that neither order nor split matters. `sent` counts the rows that each
    client sent.
    """

    score: Array = field(default_factory=lambda: np.zeros(0))
    k: int = 1
    sent: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @classmethod
    def of(cls, score: Array, value: Array, k: int, *, sent: Array) -> Self:
        """The best k of candidates; `sent` is ``minimum(candidates of each client, k)``."""
        if len(score) > k:
            keep = score >= np.partition(score, -k)[-k]
            score, value = score[keep], value[keep]
        columns = value.reshape(len(value), math.prod(value.shape[1:])).T[::-1]
        order = np.lexsort((*columns, -score))[:k]
        return cls(value[order], score[order], k, np.asarray(sent, dtype=np.int64))

    def merge(self, others: Sequence[Self]) -> Self:
        """The best of all."""
        fields = (self, *others)
        return self.of(
            np.concatenate([f.score for f in fields]),
            np.concatenate([f.value for f in fields]),
            self.k,
            sent=np.concatenate([f.sent for f in fields]),
        )

    def reorder(self, clients: Array) -> Self:
        """Counts in the order of `clients`."""
        return replace(self, sent=self.sent[clients])

    def parts(self) -> Mapping[str, Part]:
        """Scores and rows, at most k."""
        return {
            "value": Part(self.value.dtype, self.value.shape[1:], self.sent),
            "score": Part(self.score.dtype, (), self.sent),
            "k": Part(np.dtype(np.int64), ()),
        }

    def encode(self) -> Arrays:
        """Scores and rows."""
        return {"value": self.value, "score": self.score, "k": np.array(self.k)}

    @classmethod
    def decode(cls, arrays: Arrays) -> Self:
        """Scores and rows of one client."""
        value, score, k = np.asarray(arrays["value"]), arrays["score"], int(arrays["k"])
        if score.shape != value.shape[:1] or len(score) > k:
            raise ValueError(f"scores of shape {score.shape} for rows of {value.shape}, k={k}")
        return cls(value, np.asarray(score), k, np.array([len(score)]))


Reply = Mapping[str, Field]


def merge(replies: Sequence[Reply]) -> Reply:
    """Replies of several blocks as the reply of one."""
    first, *rest = replies
    merged = {}
    for name, part in first.items():
        try:
            merged[name] = part.merge([other[name] for other in rest])
        except ValueError as error:
            raise ProtocolError(f"replies with field {name!r} do not fit: {error}") from error
    return merged


def _added(parts: Sequence[Field]) -> Array:
    """The sum of values of one shape: what NumPy would broadcast is a reply gone wrong."""
    shapes = {part.value.shape for part in parts}
    if len(shapes) > 1:
        raise ValueError(f"sums of shapes {sorted(shapes)}")
    first, *rest = parts
    total: Array = sum((part.value for part in rest), first.value)
    return total

"""The contract: all that an algorithm, an engine and the one loop between them may assume.

An *algorithm* is a frozen dataclass of hyper-parameters with pure methods: a small state machine.
`Algorithm.request` says what goes down in the state's phase (None: finished), `Algorithm.client`
answers for a block of clients, `Algorithm.server` moves to the next phase. A *reply* is a mapping
of named fields, and a field knows how to merge::

    client(block of many) == merge([client(block of one) for each of them])

One block, chunks to a memory budget, processes and a network are then the same sum.
`coterie.check_algorithm` proves it for an algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np

from coterie.backend import Array, Arrays
from coterie.block import Block, Private
from coterie.fields import Field, Reply
from coterie.random import Stream

# -- what is public before any row is touched -----------------------------------------------------


@dataclass(frozen=True)
class Spec:
    """Facts that everyone may know before any row is touched.

    Ranges, norms and means are not among them: they are data, and a phase asks for them.

    Attributes
    ----------
    sizes : int array of shape (n_clients,)
        Rows of each client. Every client has at least one.
    shape : tuple of int
        Shape of one row.
    dtype : str
        Type of the rows.
    """

    sizes: Array
    shape: tuple[int, ...]
    dtype: str = "float64"

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return len(self.sizes)

    @property
    def n_samples(self) -> int:
        """Number of rows of all clients."""
        return int(self.sizes.sum())

    @property
    def n_features(self) -> int:
        """Number of entries in a row."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Total:
    """The merged replies of an exchange.

    Attributes
    ----------
    clients : int array
        Roster positions of the clients that replied, sorted; fields that show clients are in
        this order.
    weights : float array
        Their weights.
    fields : Reply
    """

    clients: Array
    weights: Array
    fields: Reply

    def __getitem__(self, name: str) -> Array:
        return self.fields[name].value


# -- what the server says -------------------------------------------------------------------------

Who = Literal["everyone", "cohort", "chosen"]


@dataclass(frozen=True)
class Phase:
    """The static facts of an exchange, readable before anything moves.

    Attributes
    ----------
    replies : mapping of name to kind of field
        All that a reply may hold.
    who : {"cohort", "everyone", "chosen"}
        The cohort of the round, all clients, or those that the request names.
    private : bool
        Whether the phase reads private state; `Algorithm.join` makes it for those without.
    uploads_rows : bool
        Whether rows themselves leave the clients, as coresets do.
    """

    replies: Mapping[str, type[Field]]
    who: Who = "cohort"
    private: bool = False
    uploads_rows: bool = False

    @property
    def additive(self) -> bool:
        """Whether the server needs sums only: what secure aggregation and central noise ask."""
        return all(kind.additive for kind in self.replies.values())


@dataclass(frozen=True)
class State:
    """All that the next exchange needs. One type for all algorithms, so that one codec keeps it.

    `round` is the paper's count, 0 while starting.
    """

    phase: str
    round: int
    arrays: Arrays

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    def to(self, phase: str, *, round: int | None = None, **new: Any) -> State:  # noqa: A002
        """The next state: another phase, and some arrays replaced or added."""
        arrays = {**self.arrays, **{name: np.asarray(value) for name, value in new.items()}}
        return State(phase, self.round if round is None else round, arrays)


@dataclass(frozen=True)
class Request:
    """What goes down.

    `shared` goes to everyone. Of `slots` a client gets the one that `address` names (by roster
    position; -1: all of them). `clients` names who is asked where the phase says "chosen". The
    loop stamps run, step, attempt and seed.
    """

    phase: str
    round: int
    shared: Arrays
    slots: Arrays = field(default_factory=dict)
    address: Array | None = None
    clients: Array | None = None
    run: str = ""
    step: int = 0
    attempt: int = 0
    seed: int = 0

    def __getitem__(self, name: str) -> Array:
        return self.shared[name]

    def own(self, name: str) -> Array:
        """At the client: the slot addressed to each client of the block, (C, ...)."""
        return self.slots[name][self.address]

    def at(self, clients: Array) -> Request:
        """As the clients at these roster positions see it: addresses aligned with their block."""
        if self.address is None:
            return self
        return replace(self, address=self.address[clients])


@dataclass(frozen=True)
class Cohort:
    """The clients of one exchange.

    Attributes
    ----------
    clients : int array
        Roster positions, sorted, each once.
    weights : float array
        Importance of each reply: times drawn over the chance of being drawn.
    lost : bool array, optional
        Replies that a fault swallows on the way up.
    """

    clients: Array
    weights: Array
    lost: Array | None = None

    def __len__(self) -> int:
        return len(self.clients)

    def arriving(self) -> Cohort:
        """Those whose replies no fault swallows."""
        if self.lost is None or not self.lost.any():
            return self
        return Cohort(self.clients[~self.lost], self.weights[~self.lost])


@dataclass(frozen=True)
class Traffic:
    """Bytes that crossed: arrays as they were encoded, and apart from them what framed them."""

    down: int = 0
    up: int = 0
    framing_down: int = 0
    framing_up: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.down + other.down,
            self.up + other.up,
            self.framing_down + other.framing_down,
            self.framing_up + other.framing_up,
        )


# -- the three that meet --------------------------------------------------------------------------


class Algorithm(Protocol):
    """An algorithm, written once for a block of clients."""

    @property
    def phases(self) -> Mapping[str, Phase]:
        """The exchanges that there may be, by name."""
        ...

    def start(self, spec: Spec, rng: Stream, given: Arrays) -> State:
        """The first state. `given` holds what the caller starts from (centers)."""
        ...

    def request(self, state: State) -> Request | None:
        """What goes down in this phase; None: finished."""
        ...

    def join(self, request: Request, block: Block, rng: Stream) -> Private:
        """Private state of clients at their first private phase."""
        ...

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        """Answer for a block of clients."""
        ...

    def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Mapping[str, float]]:
        """The next state, and numbers worth a record."""
        ...

    def model(self, state: State) -> Request:
        """What is published; needs no reply."""
        ...

    def assign(self, model: Request, block: Block) -> Array:
        """Clusters: (N,) of rows or (C,) of clients, known or new."""
        ...


class Engine(Protocol):
    """Where clients live. `exchange` is the only way to them."""

    @property
    def spec(self) -> Spec:
        """What is public of the clients."""
        ...

    def exchange(
        self, algorithm: Algorithm, request: Request, cohort: Cohort, need: int = 1
    ) -> tuple[Total, Traffic]:
        """One request down, replies up, merged; nothing is counted if fewer than `need` reply."""
        ...

    def snapshot(self) -> Arrays:
        """What a later `restore` needs: private state, or which replies were counted."""
        ...

    def restore(self, arrays: Arrays) -> None:
        """Go back to a snapshot; to an empty one: nobody has joined."""
        ...

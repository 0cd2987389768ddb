"""The client and the server half, called again and again at every exchange of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from coterie import codec
from coterie.backend import Array, host
from coterie.block import Block, Private
from coterie.checks.compare import as_arrays, both, close, cuts, difference, joined, same_state
from coterie.checks.runs import Run
from coterie.engines.simulation import Simulation, check_reply
from coterie.errors import ContractError
from coterie.fields import Reply, merge
from coterie.protocol import Algorithm, Phase, Request, Spec, State, Total
from coterie.random import Stream


def check_halves(run: Run) -> None:
    """Call both halves from all sides at every exchange."""
    watched = _Watched(run.algorithm)
    for _ in run.steps(_WatchingEngine(run.federation, threads=1), algorithm=watched):
        pass


class _WatchingEngine(Simulation):
    """A simulation that looks at what clients answer from all sides before it goes on."""

    def _ask(
        self, algorithm: Algorithm, request: Request, block: Block, private: Private
    ) -> tuple[Reply, Private]:
        ask = _Asked(algorithm, request, block, private)
        _pure(ask)  # first: what is changed once may be found unchanged later
        check_reply(ask.all()[0], algorithm.phases[request.phase], request.phase)
        for name, part in _PARTS.items():
            try:
                part(ask)
            except ContractError:
                raise
            except Exception as error:
                raise ask.broken(name, f"{type(error).__name__}: {error}") from error
        return ask.all()


@dataclass(frozen=True)
class _Asked:
    """One call of a client half, that can be repeated for parts of its block."""

    algorithm: Algorithm
    request: Request
    block: Block
    private: Private

    def all(self) -> tuple[Reply, Private]:
        return self.of(self.block, self.request, self.private)

    def some(self, clients: Array) -> tuple[Reply, Private]:
        return self.of(
            self.block.take(clients),
            self.request.at(clients),
            self.private.take(self.block, clients),
        )

    def of(self, block: Block, request: Request, private: Private) -> tuple[Reply, Private]:
        rng = Stream(request.seed, request.step, "client")
        return self.algorithm.client(request, block, private, rng)

    def broken(self, part: str, detail: str) -> ContractError:
        return ContractError(f"{part}, phase {self.request.phase!r}: {detail}")


def _pure(ask: _Asked) -> None:
    """Inputs stay as they were, and the same call gives the same bits."""
    before = _inputs(ask)
    first, second = ask.all(), ask.all()
    if _inputs(ask) != before:
        raise ask.broken("purity", "the client half changed its inputs")
    if codec.checksum(both(first)) != codec.checksum(both(second)):
        raise ask.broken("purity", "the same call gave two different answers")


def _inputs(ask: _Asked) -> str:
    block = ask.block
    theirs = {"x": block.dense(), "weights": block.weights, "offsets": block.offsets}
    theirs |= block.extra
    parts = (ask.request.shared, ask.request.slots, codec.private_arrays(ask.private), theirs)
    return " ".join(codec.checksum({n: host(a) for n, a in part.items()}) for part in parts)


def _split(ask: _Asked) -> None:
    """A block of many answers what the merged answers of its parts are, however it is cut."""
    whole = ask.all()
    for cut in cuts(ask.block.n_clients, ask.request.step):
        answers = [ask.some(clients) for clients in cut]
        order = np.argsort(np.concatenate(cut))
        merged = {n: f.reorder(order) for n, f in merge([a[0] for a in answers]).items()}
        parts = joined([a[1] for a in answers], [ask.block.sizes[c] for c in cut], order)
        _compare(ask, "block of many = sum of its parts", whole, (merged, parts))


def _reordered(ask: _Asked) -> None:
    """Clients in another order answer the same."""
    order = np.arange(ask.block.n_clients)[::-1].copy()
    reply, private = ask.some(order)
    back = {name: part.reorder(order) for name, part in reply.items()}
    parts = joined([private], [ask.block.sizes[order]], order)
    _compare(ask, "order of clients does not matter", ask.all(), (back, parts))


def _weighted(ask: _Asked) -> None:
    """A weight scales its client's part of a sum, or leaves it; nothing else sees it."""
    one, private = ask.all()
    weights = 2.0 + np.arange(ask.block.n_clients)
    two, private_two = ask.of(ask.block.with_weights(weights), ask.request, ask.private)
    alone = [ask.some(np.array([client]))[0] for client in range(ask.block.n_clients)]
    for name, part in one.items():
        if not part.additive:
            _compare(ask, "weights", ({name: part}, private), ({name: two[name]}, private_two))
            continue
        scaled = sum(w * reply[name].value for w, reply in zip(weights, alone, strict=True))
        if not any(close(two[name].value, np.asarray(a)) for a in (part.value, scaled)):
            raise ask.broken("weights", f"field {name!r} neither scales with them nor ignores them")
    _compare(ask, "weights", ({}, private), ({}, private_two))


def _same_private(ask: _Asked) -> None:
    """Private state keeps its names, shapes and types: a few clients' must fit among the rest."""
    if not ask.algorithm.phases[ask.request.phase].private:
        return
    before, after = (as_arrays(p) for p in (ask.private, ask.all()[1]))
    was, now = ({n: (a.shape, str(a.dtype)) for n, a in p.items()} for p in (before, after))
    if was != now:
        raise ask.broken("private state keeps its shape", f"{was} became {now}")


def _empty(ask: _Asked) -> None:
    """A block of no clients answers what adds nothing."""
    nobody = np.zeros(0, dtype=np.int64)
    reply, _ = ask.some(nobody)
    whole, private = ask.all()
    _compare(
        ask,
        "a block of no clients adds nothing",
        (whole, private),
        (merge([whole, reply]), private),
    )


def _travels(ask: _Asked) -> None:
    """Requests and replies of one client come through bytes as they were."""
    for client in range(ask.block.n_clients):
        alone = np.array([client])
        header = codec.Header.of(ask.request)
        sent = codec.request_arrays(ask.request, client, 1.0)
        arrays, text = codec.unpack(codec.pack(sent, header.text()))
        request, _ = codec.request_from(codec.Header.parse(text), arrays)
        block, private = ask.block.take(alone), ask.private.take(ask.block, alone)
        reply, _ = ask.of(block, request, private)
        phase = ask.algorithm.phases[request.phase]
        travelled, _ = codec.unpack(codec.pack(codec.encode_reply(reply)))
        back = codec.decode_reply(travelled, phase.replies)
        _compare(ask, "replies travel", (reply, Private()), (back, Private()))
        _compare(ask, "requests travel", (ask.some(alone)[0], Private()), (reply, Private()))


def _keeps_rows(ask: _Asked) -> None:
    """Sizes do not depend on how many rows there are, and no client shows a row of its own."""
    if ask.algorithm.phases[ask.request.phase].uploads_rows:
        return
    sizes = set()
    for client in range(ask.block.n_clients):
        one, _ = ask.some(np.array([client]))
        sizes.add(codec.payload(codec.encode_reply(one)))
    if len(sizes) > 1:
        raise ask.broken("no row leaves", "the size of a reply depends on the number of rows")
    rows = {row.tobytes() for row in ask.block.dense() if row.any()}
    for name, part in ask.all()[0].items():
        if part.additive or part.value.ndim < 2:
            continue
        shown = part.value.astype(ask.block.dtype).tobytes()
        if any(row in shown for row in rows):
            raise ask.broken("no row leaves", f"field {name!r} shows the server a row of a client")


_PARTS: Mapping[str, Callable[[_Asked], None]] = {
    "block of many = sum of its parts": _split,
    "order of clients does not matter": _reordered,
    "weights": _weighted,
    "private state keeps its shape": _same_private,
    "a block of no clients adds nothing": _empty,
    "requests and replies travel": _travels,
    "no row leaves": _keeps_rows,
}


# -- the server half ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Watched:
    """An algorithm whose server half is called twice and must agree with itself."""

    inner: Algorithm

    @property
    def phases(self) -> Mapping[str, Phase]:
        return self.inner.phases

    def start(self, spec: Spec, rng: Stream, given: Mapping[str, Array]) -> State:
        return self._same(
            "start", self.inner.start(spec, rng, given), self.inner.start(spec, rng, given)
        )

    def request(self, state: State) -> Request | None:
        request = self.inner.request(state)
        if request is not None and request.phase not in self.phases:
            raise ContractError(f"request: phase {request.phase!r} is not among the declared ones")
        return request

    def join(self, request: Request, block: Block, rng: Stream) -> Private:
        whole = self.inner.join(request, block, rng)
        for cut in cuts(block.n_clients, request.step):
            parts = [self.inner.join(request.at(some), block.take(some), rng) for some in cut]
            order = np.argsort(np.concatenate(cut))
            together = joined(parts, [block.sizes[some] for some in cut], order)
            one, other = as_arrays(whole), as_arrays(together)
            for name in one:
                if not close(one[name], other[name]):
                    raise ContractError(
                        f"join, phase {request.phase!r}: {name!r} of a client depends on the "
                        f"others in its block; it differs by {difference(one, other, name)}"
                    )
        return whole

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        return self.inner.client(request, block, private, rng)

    def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Mapping[str, float]]:
        before = codec.checksum({**state.arrays, **as_arrays(total.fields)})
        first, metrics = self.inner.server(state, total, rng)
        second, _ = self.inner.server(state, total, rng)
        if codec.checksum({**state.arrays, **as_arrays(total.fields)}) != before:
            raise ContractError(
                f"purity, phase {state.phase!r}: the server half changed its inputs"
            )
        for name, value in metrics.items():
            if not isinstance(value, float):
                raise ContractError(f"metrics: {name!r} is a {type(value).__name__}, not a float")
        return self._same(f"phase {state.phase!r}", first, second), metrics

    def model(self, state: State) -> Request:
        return self.inner.model(state)

    def assign(self, model: Request, block: Block) -> Array:
        return self.inner.assign(model, block)

    def _same(self, where: str, first: State, second: State) -> State:
        """Two calls agree, and the state comes through bytes as it was."""
        back = codec.decode_state(codec.encode_state(first))
        for what, other in (("purity", second), ("states travel", back)):
            if not same_state(first, other):
                raise ContractError(f"{what}, {where}: the server half gave two different states")
        return first


def _compare(
    ask: _Asked, part: str, one: tuple[Reply, Private], other: tuple[Reply, Private]
) -> None:
    left, right = both(one), both(other)
    for name in left.keys() | right.keys():
        if name not in left or name not in right or not close(left[name], right[name]):
            raise ask.broken(part, f"{name!r} differs by {difference(left, right, name)}")

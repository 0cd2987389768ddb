"""The client and the server half, called again and again at every exchange of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from coterie import codec
from coterie.backend import Array, host
from coterie.block import Block, Private
from coterie.checks.compare import as_arrays, both, close, difference, joined, same_state
from coterie.checks.runs import Run
from coterie.engines.simulation import Simulation
from coterie.errors import ContractError
from coterie.fields import Reply, Sum, merge
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
        for part in (_pure, _split, _reordered, _weighted, _empty, _travels, _keeps_rows):
            part(ask)
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
    inputs = {**ask.request.shared, **ask.request.slots, **codec.private_arrays(ask.private)}
    before = codec.checksum({name: host(a) for name, a in inputs.items()})
    first, second = ask.all(), ask.all()
    if codec.checksum({name: host(a) for name, a in inputs.items()}) != before:
        raise ask.broken("purity", "the client half changed its inputs")
    if codec.checksum(both(first)) != codec.checksum(both(second)):
        raise ask.broken("purity", "the same call gave two different answers")


def _split(ask: _Asked) -> None:
    """A block of many answers what the merged answers of its parts are, however it is cut."""
    whole = ask.all()
    everyone = np.arange(ask.block.n_clients)
    rng = np.random.default_rng(ask.request.step)
    cuts = [list(everyone[:, None]), np.array_split(everyone, 2)]
    cuts.append([np.sort(c) for c in np.array_split(rng.permutation(everyone), 3) if len(c)])
    for cut in cuts:
        answers = [ask.some(clients) for clients in cut if len(clients)]
        order = np.argsort(np.concatenate(cut))
        merged = {n: f.reorder(order) for n, f in merge([a[0] for a in answers]).items()}
        parts = joined([a[1] for a in answers], [ask.block.sizes[c] for c in cut if len(c)], order)
        _compare(ask, "block of many = sum of its parts", whole, (merged, parts))


def _reordered(ask: _Asked) -> None:
    """Clients in another order answer the same."""
    order = np.arange(ask.block.n_clients)[::-1].copy()
    reply, private = ask.some(order)
    back = {name: part.reorder(order) for name, part in reply.items()}
    parts = joined([private], [ask.block.sizes[order]], order)
    _compare(ask, "order of clients does not matter", ask.all(), (back, parts))


def _weighted(ask: _Asked) -> None:
    """Weights scale a sum or leave it; other fields and private state do not see them."""
    one, private = ask.all()
    doubled = ask.block.with_weights(2 * ask.block.weights)
    two, private_two = ask.of(doubled, ask.request, ask.private)
    for name, part in one.items():
        a, b = part.value, two[name].value
        allowed = (a, 2 * a) if isinstance(part, Sum) or part.additive else (a,)
        if not any(close(b, c) for c in allowed):
            raise ask.broken("weights", f"field {name!r} neither scales with them nor ignores them")
    _compare(ask, "weights", ({}, private), ({}, private_two))


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
        back = codec.decode_reply(codec.encode_reply(reply), phase.replies)
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
    rows = {row.tobytes() for row in ask.block.dense()}
    for name, part in ask.all()[0].items():
        if part.additive or part.value.shape[1:][-1:] != (ask.block.n_features,):
            continue
        shown = part.value.reshape(-1, ask.block.n_features).astype(ask.block.dtype)
        if any(row.tobytes() in rows for row in shown if row.any()):
            raise ask.broken("no row leaves", f"field {name!r} shows the server a row of a client")


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
        return self.inner.join(request, block, rng)

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

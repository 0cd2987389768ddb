"""All clients in one process: the whole cohort is one block.

Nothing here loops over clients. A cohort is an index; the array layer gathers its rows piece by
piece, so that rows are never copied. Private state is packed in a `PrivateStore`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from coterie import codec
from coterie.backend import Array, Arrays
from coterie.block import Block, Private
from coterie.data.federation import Federation
from coterie.engines.store import PrivateStore
from coterie.errors import ClientError, ContractError, ExchangeError, QuorumError
from coterie.fields import Reply, merge
from coterie.protocol import Algorithm, Cohort, Phase, Request, Total, Traffic
from coterie.random import Stream

T = TypeVar("T")


class Simulation:
    """An engine that answers for all clients of a federation at once.

    Parameters
    ----------
    federation : Federation
    device : str
        "cpu", or a torch device.
    threads : int, optional
        Threads of the array layer.
    block_bytes : int, optional
        Most bytes of rows in one block; a larger cohort is answered for in several, cut so that
        clients of like size stay together. By default the cohort is one block.
    private_folder : Path, optional
        Keep private state in files here instead of in memory.
    """

    def __init__(
        self,
        federation: Federation,
        *,
        device: str = "cpu",
        threads: int | None = None,
        block_bytes: int | None = None,
        private_folder: Path | None = None,
    ) -> None:
        self.spec = federation.spec()
        self._client_ids = federation.client_ids
        self._block_bytes = block_bytes
        self._everyone = federation.block(device=device, threads=threads)
        self._store = PrivateStore(federation.sizes, private_folder)
        self._torn = False

    # -- the seam ---------------------------------------------------------------------------------

    def exchange(
        self, algorithm: Algorithm, request: Request, cohort: Cohort, need: int = 1
    ) -> tuple[Total, Traffic]:
        """One request down, replies up, merged."""
        down = self._down(request, cohort.clients)
        arriving = cohort.arriving()
        if len(arriving) < max(need, 1):
            raise QuorumError(
                f"{len(arriving)} of {len(cohort)} clients replied in round {request.round}, phase "
                f"{request.phase!r}; {max(need, 1)} are needed",
                down,
            )
        if self._torn:
            raise ExchangeError(
                "an earlier exchange failed half way; restore a checkpoint before the next one"
            )
        self._torn = True
        replies, order = [], []
        for chunk in self._chunks(arriving):
            replies.append(self._answer(algorithm, request, chunk))
            order.append(chunk.clients)
        fields = merge(replies)
        if len(order) > 1:
            by_roster = np.argsort(np.concatenate(order))
            fields = {name: part.reorder(by_roster) for name, part in fields.items()}
        up = codec.reply_bytes(fields, len(arriving), codec.Header.of(request).text())
        total = Total(arriving.clients, arriving.weights, fields)
        self._torn = False
        return total, down + Traffic(up=up[0], framing_up=up[1])

    def snapshot(self) -> Arrays:
        """Private state of those who joined."""
        return self._store.snapshot()

    def restore(self, arrays: Arrays) -> None:
        """Go back to a snapshot."""
        self._store.restore(arrays, self._everyone.move)
        self._torn = False

    def close(self) -> None:
        """Nothing to let go of."""

    def private(self) -> Private:
        """Private state of all clients, in the order of the roster."""
        return self._store.everyone()

    # -- answering for clients --------------------------------------------------------------------

    def _answer(self, algorithm: Algorithm, request: Request, cohort: Cohort) -> Reply:
        phase = algorithm.phases[request.phase]
        clients = cohort.clients
        if phase.private:
            self._join(algorithm, request, cohort)

        def answer(some: Array) -> tuple[Reply, Private]:
            chosen = cohort if some is clients else _part(cohort, some)
            private = self._store.read(some) if phase.private else Private()
            return self._ask(algorithm, request.at(some), self._block(chosen), private)

        reply, private = self._blaming(answer, clients, request)
        check_reply(reply, phase, request.phase)
        if phase.private:
            self._store.write(clients, private)
        return reply

    def _ask(
        self, algorithm: Algorithm, request: Request, block: Block, private: Private
    ) -> tuple[Reply, Private]:
        """The one place where a simulation calls a client half."""
        rng = Stream(request.seed, request.step, "client")
        return algorithm.client(request, block, private, rng)

    def _join(self, algorithm: Algorithm, request: Request, cohort: Cohort) -> None:
        new = cohort.clients[~self._store.joined(cohort.clients)]
        if not len(new):
            return
        rng = Stream(request.seed, 0, "join")

        def join(some: Array) -> Private:
            return algorithm.join(request.at(some), self._block(_part(cohort, some)), rng)

        self._store.add(new, self._blaming(join, new, request))

    def _blaming(self, answer: Callable[[Array], T], clients: Array, request: Request) -> T:
        """`answer(clients)`; an error is traced to a client by halving, which purity makes safe."""
        try:
            return answer(clients)
        except ContractError:
            raise
        except Exception as error:
            guilty, cause = _smallest_failing(answer, clients, error)
            raise ClientError(
                f"{type(cause).__name__}: {cause}",
                client=self._client_ids.tolist()[guilty],
                round=request.round,
                phase=request.phase,
            ) from cause

    def _block(self, cohort: Cohort) -> Block:
        everyone = self._everyone
        if len(cohort) < everyone.n_clients:
            everyone = everyone.take(cohort.clients)
        return everyone.with_weights(cohort.weights)

    def _chunks(self, cohort: Cohort) -> Iterator[Cohort]:
        x = self._everyone.x
        row_bytes = (x.data.nbytes if self._everyone.is_sparse else x.nbytes) / x.shape[0]
        sizes = self.spec.sizes[cohort.clients] * row_bytes
        if self._block_bytes is None or sizes.sum() <= self._block_bytes:
            yield cohort
            return
        order = np.argsort(sizes, kind="stable")
        ends = np.cumsum(sizes[order])
        start, filled = 0, 0.0
        while start < len(order):
            stop = int(np.searchsorted(ends, filled + self._block_bytes, side="right"))
            stop = max(stop, start + 1)  # a client is never cut
            yield _part(cohort, cohort.clients[np.sort(order[start:stop])])
            start, filled = stop, float(ends[stop - 1])

    def _down(self, request: Request, clients: Array) -> Traffic:
        size, frame = codec.request_bytes(request, clients)
        return Traffic(down=size, framing_down=frame)


def check_reply(reply: Reply, phase: Phase, name: str) -> None:
    """A reply holds what its phase declares, and nothing else."""
    kinds = {field: type(value) for field, value in reply.items()}
    if kinds != dict(phase.replies):
        raise ContractError(
            f"phase {name!r} declares {_words(phase.replies)}; its client half replied "
            f"{_words(kinds)}"
        )


def _words(kinds: Any) -> str:
    return (
        ", ".join(f"{name}: {kind.__name__}" for name, kind in sorted(kinds.items())) or "nothing"
    )


def _smallest_failing(
    answer: Callable[[Array], Any], clients: Array, error: Exception
) -> tuple[int, Exception]:
    """The client whose block of one fails, and its error."""
    while len(clients) > 1:
        for half in np.array_split(clients, 2):
            try:
                answer(half)
            except Exception as found:
                clients, error = half, found
                break
        else:
            raise ExchangeError(
                f"clients fail together, but no half of them alone: {type(error).__name__}: {error}"
            ) from error
    return int(clients[0]), error


def _part(cohort: Cohort, clients: Array) -> Cohort:
    return Cohort(clients, cohort.weights[np.searchsorted(cohort.clients, clients)])

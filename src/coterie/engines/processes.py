"""Every client in an operating-system process of its own; nothing crosses but encoded bytes.

Slow and small on purpose: it proves that what runs in a simulation can be deployed. Each client
has a folder with its own files (rows, algorithm, private state); the engine keeps no more of a
client than which of its replies it counted.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from coterie import codec
from coterie.backend import Arrays
from coterie.block import Private
from coterie.data.federation import Federation
from coterie.engines.node import Versions, describe
from coterie.engines.store import PrivateStore
from coterie.engines.worker import write_folder
from coterie.errors import ClientError, ParameterError, ProtocolError, QuorumError
from coterie.fields import Reply, merge
from coterie.protocol import Algorithm, Cohort, Request, Total, Traffic

MOST_CLIENTS = 64  # a process each: more than this is a simulation's work
GRACE = 1.0  # seconds for a process to end by itself; it may be killed at any time


class Processes:
    """An engine with one process a client.

    Parameters
    ----------
    federation : Federation
        Each client's rows are written to the client's folder; the engine does not read them again.
    folder : Path, optional
        Where the clients' folders are; by default a temporary one. A run that is to be resumed
        needs one that stays.
    timeout : float
        Seconds to wait for the replies of an exchange. A reply that comes later is refused.
    """

    def __init__(
        self, federation: Federation, *, folder: Path | None = None, timeout: float = 120.0
    ) -> None:
        if federation.n_clients > MOST_CLIENTS:
            raise ParameterError(
                f"{federation.n_clients} clients were given to engine 'processes', which starts "
                f"one process for each; at most {MOST_CLIENTS}. Use engine='simulation'"
            )
        self.spec = federation.spec()
        self._federation = federation
        self._timeout = timeout
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="coterie-")
        self._folder = folder or Path(self._temporary.name)  # type: ignore[union-attr]
        self._counted = np.full(federation.n_clients, -1)
        self._durable = self._counted.copy()
        self._workers: dict[int, _Worker] = {}
        self._description: object = None
        self._run = ""
        self.refused = 0  # replies that came too late, or to another attempt

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes that this engine started, and drop its temporary folder."""
        self._end_workers()
        if self._temporary is not None:
            self._temporary.cleanup()

    # -- the seam ---------------------------------------------------------------------------------

    def exchange(
        self, algorithm: Algorithm, request: Request, cohort: Cohort, need: int = 1
    ) -> tuple[Total, Traffic]:
        """One request down to each process, replies up, merged in the order of the roster."""
        self._prepare(algorithm)
        self._run = request.run
        down = self._send(request, cohort)
        waiting = set(cohort.arriving().clients.tolist()) & set(self._workers)
        phase = algorithm.phases[request.phase]
        replies: dict[int, Reply] = {}
        up = Traffic()
        for client, message in self._receive(request, waiting):
            arrays, text = codec.unpack(message)
            if "error" in text:
                raise self._blame(client, f"{text['error']}: {text['message']}", request)
            try:
                replies[client] = codec.decode_reply(arrays, phase.replies)
            except ProtocolError as error:
                raise self._blame(client, str(error), request) from error
            size = codec.payload(arrays)
            up += Traffic(up=size, framing_up=len(message) - size)
        if len(replies) < max(need, 1):
            raise QuorumError(
                f"{len(replies)} of {len(cohort)} clients replied in round {request.round}, phase "
                f"{request.phase!r}, within {self._timeout} s; {max(need, 1)} are needed",
                down + up,
            )
        clients = np.array(sorted(replies))
        fields = merge([replies[client] for client in clients.tolist()])
        if phase.private:
            self._counted[clients] = request.step
        weights = cohort.weights[np.searchsorted(cohort.clients, clients)]
        return Total(clients, weights, fields), down + up

    def snapshot(self) -> Arrays:
        """Which replies of which run were counted; clients keep their own state from here on."""
        self._durable = self._counted.copy()
        run = np.frombuffer(self._run.encode(), dtype=np.uint8)
        return {"counted": self._counted.copy(), "run": run}

    def restore(self, arrays: Arrays) -> None:
        """Ask clients to go on from the state that they had then, or to begin anew.

        Processes are started again, so that no reply of before is taken for one of after.
        """
        self._end_workers()
        nobody = np.full(self.spec.n_clients, -1)
        self._counted = np.array(arrays.get("counted", nobody))
        self._durable = self._counted.copy()
        self._run = bytes(arrays.get("run", b"")).decode()

    def private(self) -> Private:
        """Private state of all clients, read from their folders: for the owner of this machine.

        In the order of the roster; zeros for those who never joined.
        """
        store = PrivateStore(self.spec.sizes)
        for client in np.flatnonzero(self._counted >= 0):
            versions = Versions(self._client_folder(int(client)))
            store.add(np.array([client]), versions.load(self._run, int(self._counted[client])))
        return store.everyone()

    # -- processes --------------------------------------------------------------------------------

    def _prepare(self, algorithm: Algorithm) -> None:
        """Write the clients' files, once for an algorithm."""
        description = describe(algorithm)
        if description == self._description:
            return
        self._end_workers()
        federation = self._federation
        for client, key in enumerate(federation.keys.tolist()):
            rows = slice(int(federation.offsets[client]), int(federation.offsets[client + 1]))
            extra = {name: column[rows] for name, column in federation.extra.items()}
            x = federation.client(client)
            write_folder(self._client_folder(client), algorithm, x, key, extra)
        self._description = description

    def _client_folder(self, client: int) -> Path:
        return self._folder / f"client-{int(self._federation.keys[client]) % 2**64:016x}"

    def _blame(self, client: int, message: str, request: Request) -> ClientError:
        name = self._federation.client_ids.tolist()[client]
        return ClientError(message, client=name, round=request.round, phase=request.phase)

    def _send(self, request: Request, cohort: Cohort) -> Traffic:
        down = Traffic()
        for client, weight in zip(cohort.clients.tolist(), cohort.weights.tolist(), strict=True):
            arrays = codec.request_arrays(request, client, weight)
            counted, durable = int(self._counted[client]), int(self._durable[client])
            message = codec.pack(arrays, codec.Header.of(request, counted, durable).text())
            size = codec.payload(arrays)
            down += Traffic(down=size, framing_down=len(message) - size)
            self._send_one(client, message)
        return down

    def _send_one(self, client: int, message: bytes) -> None:
        """Send; a process that has died is started again, once: its folder has its state."""
        for _ in range(2):
            worker = self._workers.get(client)
            if worker is None:
                worker = self._workers[client] = _Worker(self._client_folder(client))
            try:
                worker.connection.send_bytes(message)
            except (BrokenPipeError, ConnectionResetError):
                self._drop(client)
            else:
                return

    def _drop(self, client: int) -> None:
        self._workers.pop(client).close()

    def _end_workers(self) -> None:
        workers = list(self._workers.values())
        self._workers.clear()
        for worker in workers:
            worker.connection.close()  # all of them hear it before the first is waited for
        for worker in workers:
            worker.close()

    def _receive(self, request: Request, waiting: set[int]) -> list[tuple[int, bytes]]:
        """Replies to this request at this attempt, until all are here or time is up."""
        arrived: list[tuple[int, bytes]] = []
        deadline = time.monotonic() + self._timeout
        while waiting and (left := deadline - time.monotonic()) > 0:
            by_connection = {self._workers[c].connection: c for c in waiting}
            for connection in wait(list(by_connection), left):
                client = by_connection[connection]  # type: ignore[index]
                try:
                    message = self._workers[client].connection.recv_bytes(codec.MAX_MESSAGE)
                    header = codec.Header.parse(codec.unpack(message)[1])
                except (EOFError, OSError, ProtocolError):  # it died, or lost its mind
                    waiting.discard(client)
                    self._drop(client)
                    continue
                if header.answers(request):
                    waiting.discard(client)
                    arrived.append((client, message))
                else:
                    self.refused += 1
        return arrived


class _Worker:
    """A client's process and the connection to it."""

    def __init__(self, folder: Path) -> None:
        ours, theirs = socket.socketpair()
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", "coterie.engines.worker", str(folder), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment,
                start_new_session=True,  # Ctrl-C is for the engine, which then ends its workers
            )
        self.connection = Connection(ours.detach())
        self._finalizer = weakref.finalize(self, _end, self.process, self.connection)

    def close(self) -> None:
        """Hang up, and make sure that the process ends."""
        self._finalizer()


def _end(process: subprocess.Popen[bytes], connection: Connection) -> None:
    connection.close()
    try:
        process.wait(timeout=GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

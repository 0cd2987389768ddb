"""Every client in a process of its own: the same run, whatever is late, lost or dead."""

from __future__ import annotations

import gc
import os
import signal
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from algorithms import Changes, Dying, Failing, Held, Mean, Mixed, sums_of_changes
from coterie import codec
from coterie.data.federation import Federation
from coterie.engines.processes import MOST_CLIENTS, Processes
from coterie.engines.simulation import Simulation
from coterie.errors import (
    ClientError,
    InputTypeError,
    ParameterError,
    ProtocolError,
    QuorumError,
)
from coterie.participation import LostReplies, Participation, Uniform
from coterie.protocol import Algorithm, Cohort, Request, State
from coterie.rounds import Checkpoint, Round, rounds

SIZES = (2, 5, 3)
N = len(SIZES)
SECONDS = 30.0  # after which a test that waits for processes gives up


def federation(first: float = 100.0) -> Federation:
    """Three clients of small integers; client i's first entry is ``first + i``."""
    rng = np.random.default_rng(11)
    rows = [rng.integers(0, 9, size=(n, 4)).astype(float) for n in SIZES]
    for i, x in enumerate(rows):
        x[0, 0] = first + i
    return Federation.from_clients(rows, ids=["a", "b", "c"])


def everyone() -> Cohort:
    return Cohort(np.arange(N), np.ones(N))


def run(
    algorithm: Algorithm, engine: Any, who: Participation | None = None, **how: Any
) -> list[tuple[Round, str]]:
    """Records without their times, and each state as it is to the last bit."""
    return [
        (replace(r, seconds=0.0, state=None), codec.checksum(r.state.arrays))
        for r in rounds(algorithm, engine, who, **how)
        if r.state is not None
    ]


def pids(engine: Processes) -> list[int]:
    return [worker.process.pid for worker in engine._workers.values()]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# -- the same as a simulation ---------------------------------------------------------------------


def test_processes_are_a_simulation_to_the_last_bit_and_byte() -> None:
    """Every kind of phase and field, slots with addresses, private state, replies that get lost."""
    how: dict[str, Any] = {"faults": LostReplies(0.25), "seed": 5, "run": "r"}
    here = Simulation(federation())
    want = run(Mixed(5), here, Uniform(2), **how)
    assert {r.phase for r, _ in want} == set(Mixed.phases)
    assert any(r.replied < r.asked for r, _ in want)
    with Processes(federation()) as engine:
        assert run(Mixed(5), engine, Uniform(2), **how) == want
        ours, theirs = here.private(), engine.private()
        for name in ours.rows:
            np.testing.assert_array_equal(theirs.rows[name], ours.rows[name])
        for name in ours.clients:
            np.testing.assert_array_equal(theirs.clients[name], ours.clients[name])


@pytest.mark.parametrize("form", ["CSR", "float32"])
def test_rows_of_other_kinds_go_into_a_clients_own_files(form: str) -> None:
    from scipy import sparse

    x = federation().X
    x = sparse.csr_array(x) if form == "CSR" else x.astype(np.float32)
    fed = Federation.from_arrays(x, clients=np.repeat(["a", "b", "c"], SIZES))
    want = run(Mixed(2), Simulation(fed), seed=5)
    with Processes(fed) as engine:
        assert run(Mixed(2), engine, seed=5) == want


def test_the_callers_columns_and_order_reach_each_client() -> None:
    x, h = federation().X, np.arange(20.0).reshape(10, 2)
    owner = np.repeat(["a", "b", "c"], SIZES)
    turn = np.array([0, 2, 7, 9, 8, 6, 5, 4, 3, 1])
    fed = Federation.from_arrays(x[turn], clients=owner[turn])
    fed = fed.prepared(extra={"h": fed.gather(h)})
    want = run(Changes(1), Simulation(fed), seed=5)
    with Processes(fed) as engine:
        assert [r for r, _ in run(Changes(1), engine, seed=5)] == [r for r, _ in want]
        np.testing.assert_array_equal(engine.private().clients["known"], np.ones(N))


class Listening(Processes):
    """Keeps a copy of all that crosses."""

    down: list[tuple[int, bytes]]
    up: list[tuple[int, bytes]]

    def _send_one(self, client: int, message: bytes) -> None:
        self.down = [*getattr(self, "down", []), (client, message)]
        super()._send_one(client, message)

    def _receive(self, request: Request, waiting: set[int]) -> list[tuple[int, bytes]]:
        arrived = super()._receive(request, waiting)
        self.up = [*getattr(self, "up", []), *arrived]
        return arrived


def test_nothing_crosses_but_arrays_and_short_strings_and_no_row_is_among_them() -> None:
    with Listening(federation()) as engine:
        records = list(rounds(Changes(3), engine, run="r"))
        messages = engine.down + engine.up
        assert len(engine.down) == len(engine.up) == N * len(records)
    traffic = sum((r.traffic for r in records), start=records[0].traffic.__class__())
    crossed = sum(len(message) for _, message in messages)
    assert crossed == traffic.down + traffic.up + traffic.framing_down + traffic.framing_up
    secrets = [row.tobytes() for row in federation().X]
    for _, message in messages:
        for array in safetensors.numpy.load(message).values():
            assert array.dtype.kind in "fi"
        assert not any(secret in message for secret in secrets)
    ids = [b'"a"', b'"b"', b'"c"']
    assert not any(word in message for word in ids for _, message in messages)


def test_a_process_is_told_where_its_files_are_and_nothing_else() -> None:
    with Processes(federation()) as engine:
        next(rounds(Mean(), engine))
        for client, worker in engine._workers.items():
            command = worker.process.args
            assert isinstance(command, list)
            assert command[1:3] == ["-m", "coterie.engines.worker"]
            folder = Path(command[3])
            assert folder == engine._client_folder(client)
            own = codec.unpack((folder / "rows.safetensors").read_bytes())[0]
            np.testing.assert_array_equal(own["x"], federation().client(client))


# -- late, lost, dead -----------------------------------------------------------------------------


class Driver:
    """An algorithm and an engine, exchange by exchange, as the loop drives them."""

    def __init__(self, algorithm: Algorithm, engine: Any) -> None:
        self.algorithm, self.engine = algorithm, engine
        self.state: State = next(rounds(algorithm, engine, run="r", need=N, retries=9)).state  # type: ignore[assignment]
        self.step = 1

    def exchange(self, cohort: Cohort, need: int = 1, attempt: int = 0) -> list[int]:
        request = self.algorithm.request(self.state)
        assert request is not None
        request = replace(request, run="r", step=self.step, attempt=attempt)
        total, _ = self.engine.exchange(self.algorithm, request, cohort, need)
        self.state, _ = self.algorithm.server(self.state, total, None)  # type: ignore[arg-type]
        self.step += 1
        return list(total.clients.tolist())


@contextmanager
def within(seconds: float, engine: Processes) -> Iterator[list[Any]]:
    """Work for a thread: if it does not end in time, the processes end and the test fails."""
    work: list[Any] = []
    yield work
    failed: list[BaseException] = []

    def target() -> None:
        try:
            for step in work:
                step()
        except BaseException as error:
            failed.append(error)

    thread = Thread(target=target, daemon=True)
    thread.start()
    thread.join(seconds)
    hangs = thread.is_alive()
    if hangs:
        for pid in pids(engine):
            os.kill(pid, signal.SIGKILL)
        thread.join(seconds)
    assert not hangs, f"no end after {seconds} s"
    if failed:
        raise failed[0]


@pytest.mark.parametrize("ballast", [0, 400_000], ids=["small", "more than a socket holds"])
def test_a_late_reply_is_refused_and_the_sums_stay_right(ballast: int, tmp_path: Path) -> None:
    """The quorum is met without the late client; its next reply starts from what was counted."""
    gate = tmp_path / "gate"
    algorithm = Held(9, gate=str(gate), held=101.0, ballast=ballast)
    with Processes(federation(), timeout=2.0) as engine, within(SECONDS, engine) as work:

        def drive() -> None:
            driver = Driver(algorithm, engine)
            gate.touch()
            assert driver.exchange(everyone(), need=2) == [0, 2]
            assert engine.refused == 0
            assert driver.exchange(everyone(), need=2) == [0, 2]  # it still waits
            gate.unlink()
            for _ in range(9):  # it answers the two that are late, and then in time
                if driver.exchange(everyone()) == [0, 1, 2]:
                    break
            assert engine.refused == 2
            assert driver.exchange(everyone()) == [0, 1, 2]
            assert engine.refused == 2
            sums = sums_of_changes(federation().block(), engine.private())
            for name, want in sums.items():
                np.testing.assert_allclose(driver.state[name], want, rtol=1e-12)

        work.append(drive)


def test_too_few_in_time_is_no_quorum_and_what_crossed_is_counted(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    algorithm = Held(9, gate=str(gate), held=101.0)
    with Processes(federation(), timeout=1.5) as engine, within(SECONDS, engine) as work:

        def drive() -> None:
            driver = Driver(algorithm, engine)
            gate.touch()
            with pytest.raises(QuorumError, match=r"2 of 3 clients replied in round 1") as caught:
                driver.exchange(everyone(), need=3)
            assert caught.value.traffic.up > 0
            gate.unlink()
            for attempt in range(1, 30):
                try:
                    assert driver.exchange(everyone(), need=3, attempt=attempt) == [0, 1, 2]
                    break
                except QuorumError:
                    continue
            assert engine.refused >= 1
            sums = sums_of_changes(federation().block(), engine.private())
            np.testing.assert_allclose(driver.state["gram"], sums["gram"], rtol=1e-12)

        work.append(drive)


def test_a_process_that_was_killed_goes_on_from_its_files() -> None:
    want = run(Changes(5), Simulation(federation()))
    found = []
    with Processes(federation()) as engine:
        for record in rounds(Changes(5), engine):
            assert record.state is not None
            found.append((record.step, record.replied, codec.checksum(record.state.arrays)))
            victim = engine._workers[record.step % N].process
            victim.kill()
            victim.wait()
    assert [step for step, _, _ in found] == [r.step for r, _ in want]
    assert {replied for _, replied, _ in found} == {N}
    assert found[-1][2] == final_sum(Changes(5))


def final_sum(algorithm: Algorithm, **how: Any) -> str:
    """The last state of a network of one process, to the bit: sums in the order of the roster."""
    with Processes(federation()) as engine:
        return run(algorithm, engine, **how)[-1][1]


def test_a_process_that_dies_over_a_request_is_a_lost_reply(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    algorithm = Dying(4, gate=str(gate), victim=101.0)

    @dataclass(frozen=True)
    class OneLost:
        def lose(self, cohort: Cohort, step: int, attempt: int, seed: int) -> Cohort:
            return replace(cohort, lost=(cohort.clients == 1) & (step == 2))

    lossy = list(rounds(algorithm, Simulation(federation()), faults=OneLost()))
    found = []
    with Processes(federation()) as engine:
        for record in rounds(algorithm, engine):
            found.append(record)
            if record.step == 1:
                gate.touch()
    assert [record.replied for record in found] == [3, 3, 2, 3, 3]
    for a, b in zip(found, lossy, strict=True):
        assert a.state is not None
        assert b.state is not None
        np.testing.assert_allclose(a.state["gram"], b.state["gram"], rtol=1e-9)


@pytest.mark.parametrize(
    "answer",
    [(100).to_bytes(4, "big") + b"half of it", (7).to_bytes(4, "big") + b"garbage"],
    ids=["half a reply", "no reply"],
)
def test_a_process_that_loses_its_mind_is_a_lost_reply_and_started_again(answer: bytes) -> None:
    with Processes(federation()) as engine:
        driver = Driver(Changes(9), engine)
        ours, theirs = socket.socketpair()
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_WR)
        engine._workers[1].connection = Connection(ours.detach())
        with theirs:
            assert driver.exchange(everyone()) == [0, 2]
        assert driver.exchange(everyone()) == [0, 1, 2]
        sums = sums_of_changes(federation().block(), engine.private())
        np.testing.assert_allclose(driver.state["gram"], sums["gram"], rtol=1e-12)


def test_a_process_that_cannot_start_is_a_client_that_is_not_there(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with Processes(federation()) as engine:
        engine._prepare(Mean())
        (engine._client_folder(1) / "node.json").unlink()
        assert next(rounds(Mean(), engine)).replied == 2
        with pytest.raises(QuorumError, match="2 of 3"):
            next(rounds(Mean(), engine, need=3, retries=0))
    assert "FileNotFoundError" in capfd.readouterr().err


def test_a_reply_of_another_kind_names_the_client() -> None:
    with Processes(federation()) as engine:
        driver = Driver(Mean(9), engine)
        request = driver.algorithm.request(driver.state)
        assert request is not None
        request = replace(request, run="r", step=1)
        ours, theirs = socket.socketpair()
        wrong = codec.pack({"total.value": np.zeros(4)}, codec.Header.of(request).text())
        theirs.sendall(len(wrong).to_bytes(4, "big") + wrong)
        engine._workers[2].connection = Connection(ours.detach())
        with theirs, pytest.raises(ClientError, match="client 'c', round 2, phase 'round'"):
            engine.exchange(driver.algorithm, request, everyone())


def test_replies_that_do_not_fit_are_not_counted() -> None:
    with Processes(federation()) as engine:
        driver = Driver(Changes(9), engine)
        request = driver.algorithm.request(driver.state)
        assert request is not None
        request = replace(request, run="r", step=1)
        broad = {"gram.value": np.zeros((1, 1)), "cross.value": np.zeros((2, 4))}
        wrong = codec.pack(broad, codec.Header.of(request).text())
        ours, theirs = socket.socketpair()
        theirs.sendall(len(wrong).to_bytes(4, "big") + wrong)
        engine._workers[2].connection = Connection(ours.detach())
        before = engine._counted.tolist()
        with theirs, pytest.raises(ProtocolError, match="'gram' do not fit"):
            engine.exchange(driver.algorithm, request, everyone())
        assert engine._counted.tolist() == before


def test_an_error_in_a_client_names_it_and_the_others_go_on() -> None:
    fed = federation(first=665.0)
    with Processes(fed) as engine:
        loop = rounds(Failing(), engine)
        with pytest.raises(ClientError, match="ValueError: a poisoned row") as caught:
            next(loop)
        assert (caught.value.client, caught.value.round, caught.value.phase) == ("b", 1, "round")
        others = Cohort(np.array([0, 2]), np.ones(2))
        request = Request("round", 1, {"mean": np.zeros(4)}, step=1)
        total, _ = engine.exchange(Failing(), request, others)
        assert total.clients.tolist() == [0, 2]
        want, _ = Simulation(fed).exchange(Failing(), request, others)
        np.testing.assert_array_equal(total["total"], want["total"])


# -- again ----------------------------------------------------------------------------------------


def test_the_same_request_at_another_attempt_changes_nothing() -> None:
    with Processes(federation()) as engine:
        driver = Driver(Changes(9), engine)
        request = Changes(9).request(driver.state)
        assert request is not None
        request = replace(request, run="r", step=1)
        counted = engine._counted.copy()
        totals = []
        for attempt in range(3):
            engine._counted = counted.copy()  # as if the attempts before had had no quorum
            total, _ = engine.exchange(Changes(9), replace(request, attempt=attempt), everyone())
            totals.append(total)
        for total in totals[1:]:
            for name in total.fields:
                assert total[name].tobytes() == totals[0][name].tobytes()
        driver.state, _ = Changes(9).server(driver.state, totals[2], None)  # type: ignore[arg-type]
        driver.step += 1
        driver.exchange(everyone())
        sums = sums_of_changes(federation().block(), engine.private())
        np.testing.assert_allclose(driver.state["gram"], sums["gram"], rtol=1e-12)


def test_a_run_goes_on_in_a_new_engine_on_the_same_folder(tmp_path: Path) -> None:
    how: dict[str, Any] = {"seed": 4, "run": "named", "faults": LostReplies(0.2)}
    with Processes(federation(), folder=tmp_path) as engine:
        whole = run(Mixed(4), engine, Uniform(2), **how)
        want = engine.private()
    with Processes(federation(), folder=tmp_path) as engine:  # stopped after its third exchange
        loop = rounds(Mixed(4), engine, Uniform(2), **how)
        state = [next(loop).state for _ in range(3)][-1]
        assert state is not None
        saved = codec.pack(engine.snapshot())
        next(loop)  # went on for two rounds after its last checkpoint, and died
        next(loop)
    with Processes(federation(), folder=tmp_path) as engine:
        checkpoint = Checkpoint(state, 3, codec.unpack(saved)[0])
        assert run(Mixed(4), engine, Uniform(2), resume=checkpoint, **how) == whole[3:]
        for name, array in engine.private().rows.items():
            np.testing.assert_array_equal(array, want.rows[name])
        finished = engine.snapshot()
    with Processes(federation(), folder=tmp_path) as engine:  # only to look at what there is
        engine.restore(finished)
        for name, array in engine.private().clients.items():
            np.testing.assert_array_equal(array, want.clients[name])


def test_a_second_run_begins_anew() -> None:
    with Processes(federation()) as engine:
        loop = rounds(Changes(5), engine, faults=LostReplies(0.5), seed=1)
        for _ in range(3):  # left in the middle, with replies that nobody read
            next(loop)
        refused = engine.refused
        again = run(Changes(5), engine, seed=2)
        assert engine.refused == refused
    assert again[-1][1] == final_sum(Changes(5), seed=2)


def test_private_state_of_those_never_asked_is_zeros_as_in_a_simulation() -> None:
    with Processes(federation()) as engine:
        assert engine.private().rows == {}
        here = Simulation(federation())
        request = Request("round", 1, {"w": np.ones((2, 4))})
        for one in (engine, here):
            one.exchange(Changes(), request, Cohort(np.array([1]), np.ones(1)))
        ours, theirs = here.private(), engine.private()
        np.testing.assert_array_equal(theirs.rows["h"], ours.rows["h"])
        assert theirs.clients["known"].tolist() == ours.clients["known"].tolist() == [0, 1, 0]


# -- nothing is left ------------------------------------------------------------------------------


def test_closing_ends_all_processes_and_drops_the_folder() -> None:
    engine = Processes(federation())
    next(rounds(Mean(), engine))
    started, folder = pids(engine), engine._folder
    assert len(started) == N
    assert all(alive(pid) for pid in started)
    assert folder.exists()
    engine.close()
    assert not any(alive(pid) for pid in started)
    assert not folder.exists()
    engine.close()


def test_an_exception_ends_all_processes() -> None:
    started: list[int] = []

    def interrupted() -> None:
        with Processes(federation()) as engine:
            next(rounds(Mean(), engine))
            started.extend(pids(engine))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(started) == N
    assert not any(alive(pid) for pid in started)


def test_an_engine_that_is_forgotten_ends_its_processes() -> None:
    engine = Processes(federation())
    next(rounds(Mean(), engine))
    started, folder = pids(engine), engine._folder
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # Python's own word for forgetting
        del engine
        gc.collect()
    assert not any(alive(pid) for pid in started)
    assert not folder.exists()


def test_a_client_in_the_middle_of_its_work_does_not_keep_an_engine_from_closing(
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    engine = Processes(federation(), timeout=1.5)
    driver = Driver(Held(9, gate=str(gate), held=101.0), engine)
    gate.touch()
    driver.exchange(everyone(), need=2)
    started = pids(engine)
    engine.close()
    assert not any(alive(pid) for pid in started)


# -- refused --------------------------------------------------------------------------------------


def test_too_many_clients_are_refused_before_any_process_starts() -> None:
    crowd = Federation.from_arrays(np.ones((MOST_CLIENTS + 1, 2)), clients=range(MOST_CLIENTS + 1))
    with pytest.raises(ParameterError, match=r"65 clients.*at most 64.*engine='simulation'"):
        Processes(crowd)


def test_an_algorithm_that_no_process_can_import_is_refused_before_any_starts() -> None:
    @dataclass(frozen=True)
    class Local(Mean):
        pass

    with Processes(federation()) as engine:
        with pytest.raises(InputTypeError, match="Local"):
            next(rounds(Local(), engine))
        assert pids(engine) == []


def test_workers_run_on_one_blas_thread_each() -> None:
    with Processes(federation()) as engine:
        next(rounds(Mean(), engine))
        (pid, *_) = pids(engine)
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert b"OMP_NUM_THREADS=1" in environment
    assert b"OPENBLAS_NUM_THREADS=1" in environment

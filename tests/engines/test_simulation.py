"""All clients in one process: chunks, errors, private state, and whose arrays are whose."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from algorithms import (
    Changes,
    Failing,
    Farthest,
    KMeans,
    Mean,
    Mixed,
    Models,
    Profiles,
    Small,
    sums_of_changes,
)
from coterie import codec
from coterie.backend import Arrays, host
from coterie.block import Block, Private
from coterie.data.federation import Federation
from coterie.engines.node import Node, Versions
from coterie.engines.simulation import Simulation
from coterie.errors import ClientError, ContractError, ExchangeError, QuorumError
from coterie.fields import Field, Reply, Stack, Sum, merge
from coterie.participation import BySize, LostReplies, Participation, Uniform
from coterie.protocol import Algorithm, Cohort, Phase, Request, Spec, State, Total, Traffic
from coterie.random import Stream
from coterie.rounds import Round, rounds

Array = npt.NDArray[Any]

SIZES = (5, 1, 2, 9, 3, 13, 8, 1, 6)
N = len(SIZES)
RNG = np.random.default_rng(7)
ROWS = [RNG.integers(0, 9, size=(n, 3)).astype(float) for n in SIZES]
IDS = [f"client-{i}" for i in range(N)]


def federation() -> Federation:
    return Federation.from_clients(ROWS, ids=IDS)


def everyone(n: int = N) -> Cohort:
    return Cohort(np.arange(n), np.ones(n))


def run(
    algorithm: Algorithm,
    engine: Any,
    who: Participation | None = None,
    **how: Any,
) -> list[tuple[Round, bytes]]:
    """Records without their times, and each state as it is to the last bit."""
    return [
        (replace(r, seconds=0.0, state=None), codec.checksum(r.state.arrays).encode())
        for r in rounds(algorithm, engine, who, **how)
        if r.state is not None
    ]


# -- one block, however it is cut, and wherever it lies -------------------------------------------


@pytest.mark.parametrize("who", [None, Uniform(5)], ids=["all", "five"])
@pytest.mark.parametrize("block_bytes", [1, 24 * 9, 24 * 14, 24 * 40])
def test_chunks_are_one_block_to_the_last_bit(who: Participation | None, block_bytes: int) -> None:
    whole = run(Mixed(5), Simulation(federation()), who, seed=3)
    chunks = run(Mixed(5), Simulation(federation(), block_bytes=block_bytes), who, seed=3)
    assert chunks == whole


@dataclass(frozen=True)
class Watched(Mixed):
    """Tells a listener of each block."""

    heard: Any = None

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        self.heard(request.phase, block)
        return super().client(request, block, private, rng)


@given(block_bytes=st.integers(1, 2000), chosen=st.sets(st.integers(0, N - 1), min_size=1))
def test_no_chunk_is_larger_than_allowed_but_for_one_client_alone(
    block_bytes: int, chosen: set[int]
) -> None:
    blocks: list[list[int]] = []
    algorithm = Watched(heard=lambda phase, block: blocks.append(block.sizes.tolist()))
    engine = Simulation(federation(), block_bytes=block_bytes)
    cohort = Cohort(np.array(sorted(chosen)), np.ones(len(chosen)))
    engine.exchange(algorithm, Request("look", 0, {}), cohort)
    assert sorted(n for sizes in blocks for n in sizes) == sorted(SIZES[c] for c in chosen)
    row_bytes = 3 * 8
    for sizes in blocks:
        assert len(sizes) == 1 or sum(sizes) * row_bytes <= block_bytes
    for one, following in pairwise(blocks):  # as few as a greedy cut needs
        assert (sum(one) + min(following)) * row_bytes > block_bytes


def shuffled() -> Federation:
    """The same clients and rows; the caller gives the first row of each, and then the others."""
    x = np.concatenate(ROWS)
    owner = np.repeat(IDS, SIZES)
    first = np.cumsum(SIZES) - np.array(SIZES)
    turn = np.concatenate([first, np.setdiff1d(np.arange(len(x)), first)])
    return Federation.from_arrays(x[turn], clients=owner[turn])


FORMS: dict[str, Callable[[Path], Federation]] = {
    "shuffled": lambda folder: shuffled(),
    "read-only": lambda folder: frozen(),
    "CSR": lambda folder: Federation.from_clients([sparse.csr_array(x) for x in ROWS], ids=IDS),
    "torch": lambda folder: of(torch.from_numpy(np.concatenate(ROWS))),
    "memory map": lambda folder: of(memory_map(folder)),
}


def of(x: Any) -> Federation:
    return Federation.from_arrays(x, clients=np.repeat(IDS, SIZES))


def frozen() -> Federation:
    x = np.concatenate(ROWS)
    x.setflags(write=False)
    return of(x)


def memory_map(folder: Path) -> Any:
    np.save(folder / "x.npy", np.concatenate(ROWS))
    return np.load(folder / "x.npy", mmap_mode="r")


@pytest.mark.parametrize("block_bytes", [None, 24 * 14])
@pytest.mark.parametrize("form", list(FORMS))
def test_rows_of_any_kind_give_the_same_bits(
    form: str, block_bytes: int | None, tmp_path: Path
) -> None:
    want = run(Mixed(), Simulation(federation()), Uniform(6))
    other = FORMS[form](tmp_path)
    assert run(Mixed(), Simulation(other, block_bytes=block_bytes), Uniform(6)) == want


def test_rows_on_a_torch_device_give_the_same_as_on_the_cpu() -> None:
    on_cpu = Simulation(federation())
    on_torch = Simulation(of(torch.from_numpy(np.concatenate(ROWS))))
    a, b = run(Changes(), on_cpu), run(Changes(), on_torch)
    assert [r.traffic for r, _ in a] == [r.traffic for r, _ in b]
    np.testing.assert_allclose(
        host(on_torch.private().rows["h"]), on_cpu.private().rows["h"], atol=1e-12
    )


@pytest.mark.parametrize(
    "algorithm", [Mean(), KMeans(), Profiles(), Models(), Farthest(), Changes(), Mixed()], ids=repr
)
def test_ten_thousand_clients_are_asked_as_one_block(
    algorithm: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(algorithm)
    plain, calls = kind.client, list[int]()

    def counting(
        self: Any, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        calls.append(block.n_clients)
        return plain(self, request, block, private, rng)

    monkeypatch.setattr(kind, "client", counting)
    x = np.random.default_rng(0).integers(0, 9, size=(20_000, 3)).astype(float)
    crowd = Federation.from_arrays(x, clients=np.arange(20_000) % 10_000)
    records = list(rounds(algorithm, Simulation(crowd), Uniform(4_000)))
    assert calls == [record.asked for record in records]


# -- a network in miniature -----------------------------------------------------------------------


class Loopback:
    """Every client a node of its own; what crosses is bytes, and they are counted."""

    def __init__(self, algorithm: Algorithm, federation: Federation, folder: Path) -> None:
        self.spec = federation.spec()
        block = federation.block()
        self._nodes = [
            Node(algorithm, block.take(np.array([i])), Versions(folder / str(i)))
            for i in range(federation.n_clients)
        ]
        self._counted = np.full(federation.n_clients, -1)

    def exchange(
        self, algorithm: Algorithm, request: Request, cohort: Cohort, need: int = 1
    ) -> tuple[Total, Traffic]:
        phase = algorithm.phases[request.phase]
        traffic, replies = Traffic(), []
        arriving = cohort.arriving()
        for client, weight in zip(cohort.clients.tolist(), cohort.weights.tolist(), strict=True):
            arrays = codec.request_arrays(request, client, weight)
            header = codec.Header.of(request, int(self._counted[client]))
            message = codec.pack(arrays, header.text())
            answer = self._nodes[client].handle(message)
            size = codec.payload(arrays)
            traffic += Traffic(down=size, framing_down=len(message) - size)
            if client in arriving.clients:
                found, _ = codec.unpack(answer)
                size = codec.payload(found)
                traffic += Traffic(up=size, framing_up=len(answer) - size)
                replies.append(codec.decode_reply(found, phase.replies))
        if phase.private:
            self._counted[arriving.clients] = request.step
        return Total(arriving.clients, arriving.weights, merge(replies)), traffic

    def snapshot(self) -> Arrays:
        return {}

    def restore(self, arrays: Arrays) -> None:
        pass


@pytest.mark.parametrize("who", [None, Uniform(6), BySize(8)], ids=["all", "six", "by size"])
@pytest.mark.parametrize("chance", [0.0, 0.35])
def test_a_simulation_is_a_network_to_the_last_bit_and_byte(
    who: Participation | None, chance: float, tmp_path: Path
) -> None:
    """Exact integers: all that crossed is the same, and so is all that came of it."""
    faults = LostReplies(chance)
    network = Loopback(Mixed(6), federation(), tmp_path)
    here = run(Mixed(6), Simulation(federation()), who, faults=faults, seed=2)
    there = run(Mixed(6), network, who, faults=faults, seed=2)
    assert [r for r, _ in there] == [r for r, _ in here]
    if not isinstance(who, BySize):  # whose weights are no integers: sums are not exact
        assert there == here


def test_weights_reach_the_clients_and_the_total(tmp_path: Path) -> None:
    spec = federation().spec()
    mean = np.zeros(3)
    for record in rounds(Mean(5), Simulation(federation()), BySize(6), seed=8):
        cohort = BySize(6).draw(spec, record.round, 0, 8)
        assert len(set(cohort.weights)) > 1
        pairs = list(zip(cohort.weights, cohort.clients, strict=True))
        total = sum(w * ROWS[client].sum(0) for w, client in pairs)
        mean = (mean + total / sum(w * SIZES[client] for w, client in pairs)) / 2
        assert record.state is not None
        np.testing.assert_allclose(record.state["mean"], mean, rtol=1e-12)
    network = Loopback(Profiles(5), federation(), tmp_path)  # whose server half reads weights
    for here, there in zip(
        rounds(Profiles(5), Simulation(federation()), BySize(6)),
        rounds(Profiles(5), network, BySize(6)),
        strict=True,
    ):
        assert here.state is not None
        assert there.state is not None
        np.testing.assert_allclose(here.state["mean"], there.state["mean"], rtol=1e-12)


def test_lost_replies_leave_the_servers_sums_equal_to_the_clients() -> None:
    engine = Simulation(federation())
    lossy = list(rounds(Changes(12), engine, Uniform(6), faults=LostReplies(0.2), seed=1))
    assert any(r.replied < r.asked for r in lossy)
    last = lossy[-1].state
    assert last is not None
    everyone_joined = (engine.private().clients["known"] == 1).all()
    assert everyone_joined
    for name, want in sums_of_changes(federation().block(), engine.private()).items():
        np.testing.assert_allclose(last[name], want, rtol=1e-12)


# -- private state --------------------------------------------------------------------------------


def test_private_state_of_those_not_asked_survives() -> None:
    engine, algorithm = Simulation(federation()), Mixed()
    request = algorithm.request(State("round", 0, algorithm.start(engine.spec, STREAM, {}).arrays))
    assert request is not None
    met = np.zeros(N, dtype=np.int64)
    for clients in ([1, 4, 7], [0, 4], list(range(N)), [8], [2, 3, 4, 5]):
        before = engine.private()
        engine.exchange(algorithm, request, Cohort(np.array(clients), np.ones(len(clients))))
        met[clients] += 1
        after = engine.private()
        assert after.clients["met"].tolist() == met.tolist()
        others = ~np.isin(np.repeat(np.arange(N), SIZES), clients)
        if "h" in before.rows:
            np.testing.assert_array_equal(after.rows["h"][others], before.rows["h"][others])


STREAM = Stream(0, 0, "start")


@pytest.mark.parametrize("block_bytes", [None, 24 * 14])
@pytest.mark.parametrize("algorithm", [Mixed(5), Changes(5)], ids=["mixed", "changes"])
def test_private_state_in_files_is_private_state_in_memory(
    algorithm: Small, block_bytes: int | None, tmp_path: Path
) -> None:
    in_memory = Simulation(federation(), block_bytes=block_bytes)
    in_files = Simulation(federation(), block_bytes=block_bytes, private_folder=tmp_path)
    for who in (Uniform(4), None):
        assert run(algorithm, in_files, who) == run(algorithm, in_memory, who)
        a, b = in_memory.private(), in_files.private()
        for name in a.rows:
            np.testing.assert_array_equal(a.rows[name], b.rows[name])
    assert all(path.suffix == ".private" for path in tmp_path.iterdir())


@dataclass(frozen=True)
class Telling(Small):
    """Sends what it kept, keeps what it was sent: replies, states and private state alias."""

    copies: bool = False
    phases = {"round": Phase({"kept": Stack, "h": Stack}, private=True)}  # noqa: RUF012

    def start(self, spec: Spec, rng: Stream, given: Arrays) -> State:
        return State("round", 0, {"told": np.zeros((spec.n_clients, 1))})

    def join(self, request: Request, block: Block, rng: Stream) -> Private:
        return Private({"h": block.extra["h"]}, {"kept": np.zeros((block.n_clients, 1))})

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        kept, h = private.clients["kept"], private.rows["h"]
        same_size = request["told"][: block.n_clients]
        reply = {
            "kept": Stack(kept.copy() if self.copies else kept),
            "h": Stack(block.per_client(h)),
        }
        if request.round % 2:  # the very arrays of others
            theirs = {"h": block.extra["h"]}, {"kept": same_size}
            return reply, Private(*(copy.deepcopy(theirs) if self.copies else theirs))
        return reply, Private({"h": h + request.round}, {"kept": kept + request.round})

    def server(self, state: State, total: Total, rng: Stream) -> tuple[State, dict[str, float]]:
        told = state["told"].copy()
        told[total.clients] = total["kept"] + total["h"].sum() + 1
        return state.to("round", round=state.round + 1, told=told, raw=total["kept"]), {}


@pytest.mark.parametrize("in_files", [False, True], ids=["memory", "files"])
def test_nobody_elses_arrays_are_written_to(in_files: bool, tmp_path: Path) -> None:
    """Not the caller's rows and memberships, not the states that were, not the replies."""
    x, h = np.concatenate(ROWS), RNG.integers(0, 9, size=(sum(SIZES), 1)).astype(float)
    callers = of(x).prepared(extra={"h": h})
    before = x.tobytes(), h.tobytes()
    engine = Simulation(callers, private_folder=tmp_path / "private" if in_files else None)
    states: list[State] = []
    sums: list[str] = []

    @dataclass(frozen=True)
    class Who:
        def draw(self, spec: Spec, round: int, attempt: int, seed: int) -> Cohort:  # noqa: A002
            everybody = round in (1, 2, 5)
            return everyone() if everybody else Uniform(4).draw(spec, round, attempt, seed)

    for record in rounds(Telling(9), engine, Who()):
        assert record.state is not None
        states.append(record.state)
        sums.append(codec.checksum(record.state.arrays))
        assert [codec.checksum(state.arrays) for state in states] == sums
        assert (x.tobytes(), h.tobytes()) == before
    reference = [
        codec.checksum(r.state.arrays)
        for r in rounds(Telling(9, copies=True), Simulation(callers), Who())
        if r.state is not None
    ]
    assert sums == reference


def test_read_only_rows_and_columns_are_enough() -> None:
    x, h = np.concatenate(ROWS), np.ones((sum(SIZES), 2))
    for array in (x, h):
        array.setflags(write=False)
    callers = of(x).prepared(extra={"h": h})
    plain = of(x.copy()).prepared(extra={"h": h.copy()})
    for who in (None, Uniform(4)):
        assert run(Changes(), Simulation(callers), who) == run(Changes(), Simulation(plain), who)


# -- errors ---------------------------------------------------------------------------------------


def crowd(poisoned: int | None) -> Federation:
    rows = [np.full((3, 2), 1.0) for _ in range(100)]
    if poisoned is not None:
        rows[poisoned][1, 0] = 666
    return Federation.from_clients(rows, ids=[("ward", i) for i in range(100)])


@pytest.mark.parametrize("block_bytes", [None, 700])
@pytest.mark.parametrize("poisoned", [0, 41, 99])
def test_an_error_names_the_one_client_of_a_hundred(poisoned: int, block_bytes: int | None) -> None:
    engine = Simulation(crowd(poisoned), block_bytes=block_bytes)
    with pytest.raises(ClientError, match="a poisoned row") as caught:
        next(rounds(Failing(), engine))
    error = caught.value
    assert (error.client, error.round, error.phase) == (("ward", poisoned), 1, "round")
    assert str(error) == (
        f"client ('ward', {poisoned}), round 1, phase 'round': ValueError: a poisoned row"
    )
    assert isinstance(error.__cause__, ValueError)


def test_a_poisoned_client_that_is_not_asked_hurts_nobody() -> None:
    engine = Simulation(crowd(41))
    cohort = Cohort(np.delete(np.arange(100), 41), np.ones(99))
    engine.exchange(Failing(), Request("round", 1, {"mean": np.zeros(2)}), cohort)


def test_an_error_of_clients_together_blames_none_of_them() -> None:
    with pytest.raises(ExchangeError, match="no half of them alone: ValueError: one at a") as error:
        next(rounds(Failing(together=True), Simulation(crowd(None))))
    assert not isinstance(error.value, ClientError)


def test_an_error_in_join_names_the_client_too() -> None:
    @dataclass(frozen=True)
    class Refusing(Changes):
        def join(self, request: Request, block: Block, rng: Stream) -> Private:
            if (block.dense()[:, 0] == 666).any():
                raise OverflowError("no room")
            return super().join(request, block, rng)

    with pytest.raises(ClientError, match=r"OverflowError: no room") as caught:
        next(rounds(Refusing(), Simulation(crowd(7))))
    assert caught.value.client == ("ward", 7)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ({"total": Sum(np.zeros(1))}, "replied total: Sum$"),
        (
            {"total": Sum(np.zeros(1)), "mass": Sum(np.ones(())), "x": Sum(np.ones(()))},
            "x: Sum$",
        ),
        ({"total": Stack(np.zeros((9, 1))), "mass": Sum(np.ones(()))}, "total: Stack$"),
        ({}, "replied nothing$"),
    ],
    ids=["a field is missing", "a field too many", "another kind", "nothing"],
)
def test_a_reply_other_than_declared_breaks_the_contract(
    reply: dict[str, Field], words: str
) -> None:
    @dataclass(frozen=True)
    class Other(Mean):
        def client(
            self, request: Request, block: Block, private: Private, rng: Stream
        ) -> tuple[Reply, Private]:
            return reply, private

    with pytest.raises(ContractError, match=f"declares mass: Sum, total: Sum.*{words}"):
        next(rounds(Other(), Simulation(federation())))


@dataclass(frozen=True)
class Fragile(Changes):
    """Fails where all clients of `fuse` meet in the round's second chunk."""

    fuse: Any = None

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        if self.fuse(block):
            raise RuntimeError("half way")
        return super().client(request, block, private, rng)


def test_after_a_failure_half_way_an_engine_goes_on_only_from_a_checkpoint() -> None:
    broken: list[bool] = []
    algorithm = Fragile(fuse=lambda block: bool(broken) and 13 in block.sizes)
    engine = Simulation(federation(), block_bytes=24 * 14)
    first = next(rounds(algorithm, engine))
    assert first.state is not None
    saved = engine.snapshot()
    request = algorithm.request(first.state)
    assert request is not None
    broken.append(True)
    with pytest.raises(ClientError, match="half way"):
        engine.exchange(algorithm, request, everyone())
    broken.clear()
    with pytest.raises(ExchangeError, match="restore a checkpoint"):
        engine.exchange(algorithm, request, everyone())
    engine.restore(saved)
    total, _ = engine.exchange(algorithm, request, everyone())
    fresh = Simulation(federation(), block_bytes=24 * 14)
    fresh.restore(saved)
    want, _ = fresh.exchange(algorithm, request, everyone())
    for name in want.fields:
        np.testing.assert_array_equal(total[name], want[name])


def test_replies_that_do_not_fit_leave_the_engine_torn_too() -> None:
    @dataclass(frozen=True)
    class Sized(Changes):
        def client(
            self, request: Request, block: Block, private: Private, rng: Stream
        ) -> tuple[Reply, Private]:
            reply, private = super().client(request, block, private, rng)
            return {**reply, "gram": Sum(np.zeros(block.n_clients))}, private

    engine = Simulation(federation(), block_bytes=24 * 14)
    request = Request("sums", 0, {"w": np.ones((2, 3))})
    with pytest.raises(ExchangeError, match="'gram' do not fit"):
        engine.exchange(Sized(), request, everyone())
    with pytest.raises(ExchangeError, match="restore a checkpoint"):
        engine.exchange(Changes(), request, everyone())


def test_too_few_replies_change_nothing_and_can_be_tried_again() -> None:
    engine = Simulation(federation())
    request = Request("sums", 0, {"w": np.ones((2, 3))})
    lost = replace(everyone(), lost=np.arange(N) > 1)
    with pytest.raises(QuorumError, match="2 of 9 clients replied in round 0, phase 'sums'; 3"):
        engine.exchange(Changes(), request, lost, 3)
    assert engine.private() == Private()
    engine.exchange(Changes(), request, everyone(), N)


def test_close_lets_go_of_nothing() -> None:
    engine = Simulation(federation())
    engine.close()
    assert next(rounds(Mean(), engine)).replied == N

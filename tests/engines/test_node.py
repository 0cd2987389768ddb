"""One client on its own machine: what it answers, what it keeps, what it refuses."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithms import Changes, Mean, Mixed, Models
from coterie import codec
from coterie.block import Block, Private
from coterie.data.federation import Federation
from coterie.engines.node import Node, Versions, build, describe
from coterie.engines.simulation import Simulation
from coterie.engines.worker import read_folder, write_folder
from coterie.errors import InputTypeError, ProtocolError
from coterie.parameters import Diminishing
from coterie.protocol import Algorithm, Cohort, Request

X = np.random.default_rng(3).integers(0, 9, size=(5, 3)).astype(float)
FEDERATION = Federation.from_arrays(X, clients=["me"] * 5)
EVERYONE = Cohort(np.arange(1), np.ones(1))


def block(**how: Any) -> Block:
    return Block(X, np.array([0, 5]), keys=FEDERATION.keys, **how)


def node(folder: Path, algorithm: Algorithm | None = None) -> Node:
    return Node(algorithm or Changes(), block(), Versions(folder))


def request(step: int = 0, w: float = 1.0, **how: Any) -> Request:
    """What `Changes` sends, without a state behind it."""
    phase = "sums" if step == 0 else "round"
    shared = {"w": np.full((2, 3), w)}
    return replace(Request(phase, step, shared, run="r", step=step, seed=4), **how)


def message(asked: Request, counted: int = -1, durable: int = -1, weight: float = 1.0) -> bytes:
    header = codec.Header.of(asked, counted, durable)
    return codec.pack(codec.request_arrays(asked, 0, weight), header.text())


def same(one: bytes, other: bytes) -> None:
    """Messages that say the same: the format has no order of words."""
    (arrays, text), (others, words) = codec.unpack(one), codec.unpack(other)
    assert text == words
    assert codec.checksum(arrays) == codec.checksum(others)


def kept(folder: Path) -> list[int]:
    """The steps whose private state is there."""
    return sorted(int(path.stem) for path in folder.glob("run-*/*.private"))


# -- answers --------------------------------------------------------------------------------------


def test_a_node_answers_what_a_simulation_of_it_answers(tmp_path: Path) -> None:
    alone, engine = node(tmp_path), Simulation(FEDERATION)
    for step in range(4):
        asked = request(step, w=1 / (1 + step))
        total, _ = engine.exchange(Changes(), asked, EVERYONE)
        reply, text = codec.unpack(alone.handle(message(asked, step - 1)))
        assert codec.Header.parse(text).answers(asked)
        fields = codec.decode_reply(reply, Changes.phases[asked.phase].replies)
        for name in fields:
            np.testing.assert_array_equal(fields[name].value, total[name])


def test_a_node_applies_its_weight(tmp_path: Path) -> None:
    algorithm = Mean()
    asked = Request("round", 1, {"mean": np.zeros(3)})
    alone = Node(algorithm, block(), Versions(tmp_path))
    one, _ = codec.unpack(alone.handle(message(asked)))
    three, _ = codec.unpack(alone.handle(message(asked, weight=3.0)))
    for name in one:
        np.testing.assert_array_equal(3 * one[name], three[name])


def test_the_same_request_gives_the_same_bytes_again(tmp_path: Path) -> None:
    alone = node(tmp_path)
    alone.handle(message(request(0)))
    asked = message(request(1), counted=0)
    first = alone.handle(asked)
    same(alone.handle(asked), first)
    same(node(tmp_path).handle(asked), first)  # after a restart, too
    other = alone.handle(message(request(1, attempt=1), counted=0))
    assert codec.checksum(codec.unpack(other)[0]) == codec.checksum(codec.unpack(first)[0])
    assert not codec.Header.parse(codec.unpack(first)[1]).answers(request(1, attempt=1))


def test_a_reply_that_was_not_counted_is_as_if_it_had_not_been(tmp_path: Path) -> None:
    lossy, never = node(tmp_path / "a"), node(tmp_path / "b")
    for alone in (lossy, never):
        alone.handle(message(request(0)))
    lossy.handle(message(request(1), counted=0))  # on its way to nowhere
    lossy.handle(message(request(2), counted=0))  # and once more
    asked = message(request(3), counted=0)
    same(lossy.handle(asked), never.handle(asked))


def test_a_first_reply_that_was_not_counted_leaves_a_newcomer(tmp_path: Path) -> None:
    lossy, never = node(tmp_path / "a"), node(tmp_path / "b")
    lossy.handle(message(request(0)))
    asked = message(request(1))
    same(lossy.handle(asked), never.handle(asked))


def test_phases_without_private_state_keep_nothing(tmp_path: Path) -> None:
    alone = Node(Mean(), block(), Versions(tmp_path))
    alone.handle(message(Request("round", 1, {"mean": np.zeros(3)})))
    assert kept(tmp_path) == []


# -- versions -------------------------------------------------------------------------------------


def test_kept_are_the_counted_the_durable_and_the_newest(tmp_path: Path) -> None:
    alone = node(tmp_path)
    durable = -1
    for step in range(9):
        if step == 4:
            durable = 3  # the server made a checkpoint
        alone.handle(message(request(step), counted=step - 1, durable=durable))
        assert kept(tmp_path) == sorted({step, step - 1, durable} - {-1})


def test_lost_replies_do_not_pile_up(tmp_path: Path) -> None:
    alone = node(tmp_path)
    for step in range(3):
        alone.handle(message(request(step), counted=step - 1, durable=0))
    for step in range(3, 8):
        alone.handle(message(request(step), counted=2, durable=0))
        assert kept(tmp_path) == [0, 2, step]


def test_a_late_request_whose_state_is_gone_is_refused(tmp_path: Path) -> None:
    alone = node(tmp_path)
    for step in range(4):
        alone.handle(message(request(step), counted=step - 1))
    with pytest.raises(ProtocolError, match="run 'r' after step 0 is not here"):
        alone.handle(message(request(1), counted=0))
    assert kept(tmp_path) == [2, 3]


def test_a_request_of_another_run_does_not_find_this_ones_state(tmp_path: Path) -> None:
    alone = node(tmp_path)
    alone.handle(message(request(0)))
    with pytest.raises(ProtocolError, match="run 'other'"):
        alone.handle(message(request(1, run="other"), counted=0))
    alone.handle(message(request(0, run="other")))
    alone.handle(message(request(1), counted=0))


@pytest.mark.parametrize(
    "run", ["../../out", "/etc", "a/b", "..", ".", "", "ü n", "%2e", "unnamed"]
)
def test_the_name_of_a_run_leads_nowhere_else(run: str, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    alone = node(inside)
    alone.handle(message(request(0, run=run)))
    alone.handle(message(request(1, run=run), counted=0))
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]
    assert len(list(inside.iterdir())) == 1
    assert kept(inside) == [0, 1]


def test_runs_of_different_names_are_apart(tmp_path: Path) -> None:
    versions = Versions(tmp_path)
    for i, run in enumerate(["", "unnamed", "a", "a/b", "a%2Fb"]):
        versions.save(codec.Header(run, "p", 1, 0, 0), Private({}, {"i": np.array([i])}))
    for i, run in enumerate(["", "unnamed", "a", "a/b", "a%2Fb"]):
        assert versions.load(run, 0).clients["i"] == [i]


def test_a_damaged_version_is_refused(tmp_path: Path) -> None:
    alone = node(tmp_path)
    alone.handle(message(request(0)))
    (path,) = tmp_path.glob("run-*/*.private")
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ProtocolError):
        alone.handle(message(request(1), counted=0))


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        codec.pack({"weight": np.ones(1)}),
        codec.pack({}, codec.Header("r", "round", 1, 1, 0).text()),
        codec.pack({"weight": np.ones(1)}, codec.Header("r", "no such phase", 1, 1, 0).text()),
    ],
    ids=["nothing", "no header", "no weight", "a phase of another algorithm"],
)
def test_what_is_not_a_request_is_refused(wrong: bytes, tmp_path: Path) -> None:
    with pytest.raises(ProtocolError):
        node(tmp_path).handle(wrong)


# -- algorithms as text ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Nested:
    steps: int | Diminishing = 3
    pair: tuple[float, Any] = (0.1, None)
    deep: tuple[Any, ...] = (Diminishing(2), (True, "a"))
    name: str | None = "ü"
    made: int = field(default=0, init=False)


@pytest.mark.parametrize(
    "algorithm",
    [
        Mean(),
        Models(7, 3),
        Nested(),
        Nested(Diminishing(100), (1e-300, float("inf")), (), None),
        Nested(pair=(1.0, np.int64(4))),
        Nested(pair=(0.1 + 0.2, np.float64(1 / 3))),
    ],
    ids=repr,
)
def test_an_algorithm_is_built_again_from_its_description(algorithm: Any) -> None:
    text = json.dumps(describe(algorithm))
    back = build(json.loads(text))
    assert back == algorithm
    assert type(back) is type(algorithm)


@pytest.mark.parametrize(
    "value", [np.zeros(2), {"a": 1}, object(), Path("x")], ids=lambda v: type(v).__name__
)
def test_a_hyper_parameter_that_is_no_plain_value_is_refused(value: Any) -> None:
    with pytest.raises(InputTypeError, match=f"of type {type(value).__name__}"):
        describe(Nested(name=value))


def test_a_class_that_no_process_can_import_is_refused() -> None:
    @dataclass(frozen=True)
    class Local(Mean):
        pass

    with pytest.raises(InputTypeError, match=r"Local.*importable module"):
        describe(Local())


# -- folders --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "CSR", "float32", "memory map"])
def test_a_clients_folder_holds_all_that_its_process_needs(form: str, tmp_path: Path) -> None:
    from scipy import sparse

    x: Any = X
    if form == "CSR":
        x = sparse.csr_array(X)
    elif form == "float32":
        x = X.astype(np.float32)
    elif form == "memory map":
        np.save(tmp_path / "x.npy", X)
        x = np.load(tmp_path / "x.npy", mmap_mode="r")
    key = -(2**63) + 5
    write_folder(tmp_path / "me", Mixed(), x, key, {"h": np.arange(5)})
    back = read_folder(tmp_path / "me")._block
    assert back.keys.tolist() == [key]
    assert back.dtype == x.dtype
    assert back.is_sparse == (form == "CSR")
    np.testing.assert_array_equal(back.dense(), X)
    assert back.extra["h"].tolist() == list(range(5))
    assert (tmp_path / "me").stat().st_mode & 0o077 == 0  # nobody else's to read

"""Fields know how to merge: one rule for chunks, processes and networks. Blocks, their source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.backend import Arrays
from coterie.block import Block, Private
from coterie.errors import ProtocolError
from coterie.fields import Field, Ragged, Reply, Slots, Stack, Sum, Top, merge
from coterie.random import client_keys

Array = npt.NDArray[Any]

K, M, BEST = 3, 2, 4
KINDS: dict[str, type[Field]] = {
    "sum": Sum,
    "slots": Slots,
    "stack": Stack,
    "ragged": Ragged,
    "top": Top,
}

# A client: its rows (small integers, so that sums are exact and ties abound), slot, weight, and
# how many of its rows it sends.
CLIENT = st.tuples(
    st.lists(st.tuples(*[st.integers(-2, 2)] * M), min_size=1, max_size=6),
    st.integers(0, K - 1),
    st.sampled_from([1.0, 1.0, 2.0, 5.0]),
    st.integers(0, 6),
)
CLIENTS = st.lists(CLIENT, min_size=1, max_size=7)
Client = tuple[list[tuple[int, ...]], int, float, int]


def block_of(clients: Sequence[Client]) -> Block:
    sizes = [len(rows) for rows, *_ in clients]
    x = np.array([row for rows, *_ in clients for row in rows], dtype=float).reshape(-1, M)
    return Block(
        x,
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        keys=client_keys(range(len(clients))),
        weights=np.array([weight for *_, weight, _ in clients]),
    )


def answer(clients: Sequence[Client]) -> Reply:
    """A reply with a field of every kind."""
    block = block_of(clients)
    x = block.dense()
    slot = np.array([slot for _, slot, _, _ in clients], dtype=np.int64)
    sent = np.array([min(n, len(rows)) for rows, _, _, n in clients], dtype=np.int64)
    first = np.arange(len(x)) - np.repeat(block.offsets[:-1], block.sizes) < np.repeat(
        sent, block.sizes
    )
    sums = block.per_client(x)
    return {
        "sum": Sum.of(block, sums),
        "slots": Slots.of(block, sums, slot, K),
        "stack": Stack(sums),
        "ragged": Ragged(x[first], sent),
        "top": Top.of((x**2).sum(1), x, BEST, sent=np.minimum(block.sizes, BEST)),
    }


def parts_of(field: Field) -> dict[str, Array]:
    return {name: np.asarray(part) for name, part in vars(field).items()}


def same(one: Reply, other: Reply) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert type(one[name]) is type(other[name])
        mine, theirs = parts_of(one[name]), parts_of(other[name])
        for part in mine:
            np.testing.assert_array_equal(mine[part], theirs[part], err_msg=f"{name}.{part}")


# -- one rule -------------------------------------------------------------------------------------


@given(clients=CLIENTS, data=st.data())
def test_a_block_of_many_is_its_parts_merged_however_it_is_cut(
    clients: list[Client], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(clients))))
    ends = sorted(data.draw(st.sets(st.integers(1, max(1, len(clients) - 1)))) | {len(clients)})
    cut = [order[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    merged = merge([answer([clients[c] for c in part]) for part in cut])
    back = np.argsort([c for part in cut for c in part])
    same({name: field.reorder(back) for name, field in merged.items()}, answer(clients))


@given(a=CLIENTS, b=CLIENTS, c=CLIENTS)
def test_merging_is_associative(a: list[Client], b: list[Client], c: list[Client]) -> None:
    one, two, three = (answer(clients) for clients in (a, b, c))
    same(merge([merge([one, two]), three]), merge([one, merge([two, three])]))
    same(merge([merge([one, two]), three]), merge([one, two, three]))


@given(a=CLIENTS, b=CLIENTS)
def test_merging_commutes_up_to_the_order_of_clients(a: list[Client], b: list[Client]) -> None:
    forth, back = merge([answer(a), answer(b)]), merge([answer(b), answer(a)])
    turn = np.r_[len(b) : len(a) + len(b), : len(b)]
    same({name: field.reorder(turn) for name, field in back.items()}, forth)


@given(clients=CLIENTS)
def test_a_block_of_no_clients_adds_nothing(clients: list[Client]) -> None:
    whole, nobody = answer(clients), answer([])
    same(merge([whole, nobody]), whole)
    same(merge([nobody, whole]), whole)


@given(client=CLIENT)
def test_a_field_of_one_client_travels(client: Client) -> None:
    alone = answer([client])
    back = {name: KINDS[name].decode(field.encode()) for name, field in alone.items()}
    same(back, alone)


@given(clients=CLIENTS)
def test_parts_are_what_each_client_sends(clients: list[Client]) -> None:
    together = answer(clients)
    for position, client in enumerate(clients):
        alone = answer([client])
        for name, field in together.items():
            sent = {part: np.asarray(a) for part, a in alone[name].encode().items()}
            declared = field.parts()
            assert sent.keys() == declared.keys()
            for part, array in sent.items():
                want = declared[part]
                rows = () if want.counts is None else (int(want.counts[position]),)
                assert array.shape == (*rows, *want.shape)
                assert array.dtype == want.dtype


def test_merging_leaves_its_arguments_alone() -> None:
    clients: list[Client] = [([(1, 2), (0, 1)], 0, 2.0, 1), ([(2, 2)], 2, 1.0, 1)]
    one, two = answer(clients[:1]), answer(clients[1:])
    merge([one, two])
    same(one, answer(clients[:1]))
    same(two, answer(clients[1:]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Sum(np.zeros(3)), Sum(np.zeros(1))),
        (Sum(np.zeros(3)), Sum(np.array(1.0))),
        (Slots(np.zeros((3, 2)), np.array([0])), Slots(np.zeros((1, 2)), np.array([0]))),
        (Stack(np.zeros((1, 3))), Stack(np.zeros((1, 2)))),
        (Ragged(np.zeros((1, 3)), np.ones(1)), Ragged(np.zeros((1, 2)), np.ones(1))),
    ],
    ids=["a sum that would broadcast", "a number", "slots", "stack", "ragged"],
)
def test_replies_that_do_not_fit_are_refused(one: Field, other: Field) -> None:
    with pytest.raises(ProtocolError, match="'total' do not fit"):
        merge([{"total": one}, {"total": other}])


# -- each kind ------------------------------------------------------------------------------------


@given(clients=CLIENTS)
def test_sums_and_slots_are_weighted_loops(clients: list[Client]) -> None:
    total, slots = np.zeros(M), np.zeros((K, M))
    for rows, slot, weight, _ in clients:
        mine = weight * np.sum(rows, axis=0)
        total += mine
        slots[slot] += mine
    reply = answer(clients)
    np.testing.assert_array_equal(reply["sum"].value, total)
    np.testing.assert_array_equal(reply["slots"].value, slots)


@given(clients=CLIENTS)
def test_stacks_are_not_weighted(clients: list[Client]) -> None:
    heavier: list[Client] = [(rows, slot, 3 * w, n) for rows, slot, w, n in clients]
    for name in ("stack", "ragged", "top"):
        same({name: answer(clients)[name]}, {name: answer(heavier)[name]})


@given(clients=CLIENTS)
def test_top_is_the_head_of_the_sorted_rows(clients: list[Client]) -> None:
    rows = [row for rows, *_ in clients for row in rows]
    ordered = sorted(rows, key=lambda row: (-sum(v * v for v in row), row))[:BEST]
    top = answer(clients)["top"]
    assert isinstance(top, Top)
    assert [tuple(row) for row in top.value.astype(int).tolist()] == ordered
    assert top.score.tolist() == [sum(v * v for v in row) for row in ordered]
    assert top.sent.tolist() == [min(len(rows), BEST) for rows, *_ in clients]


@given(
    scores=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    k=st.integers(1, 15),
    cut=st.integers(0, 12),
)
def test_top_of_plain_numbers_with_ties_does_not_see_the_cut(
    scores: list[int], k: int, cut: int
) -> None:
    score = np.array(scores, dtype=float)
    value = np.arange(len(scores)) % 4

    def of(which: slice) -> Top:
        sent = np.array([min(k, len(score[which]))])
        return Top.of(score[which], value[which], k, sent=sent)

    whole, parts = of(slice(None)), of(slice(cut)).merge([of(slice(cut, None))])
    np.testing.assert_array_equal(whole.value, parts.value)
    np.testing.assert_array_equal(whole.score, parts.score)
    best = sorted(zip(-score, value, strict=True))[:k]
    assert list(zip(-whole.score, whole.value, strict=True)) == best


def test_top_of_one_is_a_maximum_and_of_negatives_a_minimum() -> None:
    rows = np.array([3.0, -1.0, 7.0])
    sent = np.ones(3)
    assert Top.of(rows, rows, 1, sent=sent).value.tolist() == [7.0]
    assert Top.of(-rows, rows, 1, sent=sent).value.tolist() == [-1.0]


def test_only_sums_are_additive() -> None:
    assert {name for name, kind in KINDS.items() if kind.additive} == {"sum", "slots"}


@pytest.mark.parametrize(
    ("kind", "arrays"),
    [
        (Slots, {"row": np.zeros(2), "slot": np.array(3), "of": np.array(3)}),
        (Slots, {"row": np.zeros(2), "slot": np.array(-1), "of": np.array(3)}),
        (Slots, {"row": np.zeros(2), "slot": np.array(0), "of": np.array(2**40)}),
        (Top, {"value": np.zeros((2, 2)), "score": np.zeros(3), "k": np.array(4)}),
        (Top, {"value": np.zeros((5, 2)), "score": np.zeros(5), "k": np.array(4)}),
    ],
    ids=["slot too high", "slot below", "too many slots", "scores and rows", "more than k"],
)
def test_what_no_client_sends_is_not_decoded(kind: type[Field], arrays: Arrays) -> None:
    with pytest.raises(ValueError, match=r"slot|scores"):
        kind.decode(arrays)


# -- blocks ---------------------------------------------------------------------------------------

SIZES = (2, 1, 4, 3)


def block() -> Block:
    x = np.arange(20.0).reshape(10, 2)
    return Block(
        x,
        np.array([0, 2, 3, 7, 10]),
        keys=client_keys("abcd"),
        weights=np.array([1.0, 2.0, 0.5, 1.0]),
        extra={"h": -x[:, 0]},
    )


def rows_of(which: Block) -> list[list[list[float]]]:
    """Rows of each client."""
    x = which.dense()
    return [x[a:b].tolist() for a, b in zip(which.offsets, which.offsets[1:], strict=False)]


@given(order=st.permutations(range(4)), kept=st.integers(0, 4), again=st.integers(0, 4))
def test_take_gives_the_clients_asked_for(order: list[int], kept: int, again: int) -> None:
    whole = block()
    chosen = order[:kept]
    some = whole.take(np.array(chosen, dtype=np.int64))
    assert rows_of(some) == [rows_of(whole)[c] for c in chosen]
    assert some.sizes.tolist() == [SIZES[c] for c in chosen]
    assert some.keys.tolist() == whole.keys[chosen].tolist()
    assert some.weights.tolist() == whole.weights[chosen].tolist()
    np.testing.assert_array_equal(some.extra["h"], -some.dense()[:, 0])
    fewer = some.take(np.arange(min(again, kept)))
    assert rows_of(fewer) == rows_of(some)[: fewer.n_clients]


@given(rows=st.sets(st.integers(0, 9)))
def test_pick_keeps_clients_and_some_of_their_rows(rows: set[int]) -> None:
    whole = block()
    which = np.array(sorted(rows), dtype=np.int64)
    some = whole.pick(which)
    np.testing.assert_array_equal(some.dense(), whole.dense()[which])
    np.testing.assert_array_equal(some.extra["h"], whole.extra["h"][which])
    assert some.owner.tolist() == whole.owner[which].tolist()
    assert some.keys.tolist() == whole.keys.tolist()
    assert some.weights.tolist() == whole.weights.tolist()


def test_weights_belong_to_clients() -> None:
    whole = block()
    np.testing.assert_array_equal(whole.mass, [2, 2, 2, 3])
    ones = np.ones((10, 2))
    np.testing.assert_array_equal(whole.weighted(ones)[:, 0], np.repeat([1, 2, 0.5, 1], SIZES))
    np.testing.assert_array_equal(whole.weighted(ones[:, 0]), np.repeat([1, 2, 0.5, 1], SIZES))
    even = whole.with_weights(np.ones(4))
    assert even.weighted(ones) is ones
    assert even.x is whole.x
    assert whole.weights.tolist() == [1, 2, 0.5, 1]
    assert Block(whole.x, whole.offsets, keys=whole.keys).weights.tolist() == [1] * 4


@given(order=st.permutations(range(4)), kept=st.integers(0, 4))
def test_private_state_goes_with_its_clients(order: list[int], kept: int) -> None:
    whole = block()
    chosen = np.array(order[:kept], dtype=np.int64)
    private = Private({"h": whole.dense()[:, 1]}, {"c": np.arange(4)})
    some = private.take(whole, chosen)
    np.testing.assert_array_equal(some.rows["h"], whole.take(chosen).dense()[:, 1])
    assert some.clients["c"].tolist() == chosen.tolist()

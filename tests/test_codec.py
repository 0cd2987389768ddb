"""Bytes: they come back as they were, their number is known before, garbage is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import safetensors.numpy
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coterie import codec
from coterie.backend import Arrays
from coterie.block import Private
from coterie.errors import ProtocolError
from coterie.fields import Field, Ragged, Reply, Slots, Stack, Sum, Top
from coterie.protocol import Request, State

Array = npt.NDArray[Any]

TYPES = ["?", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8"]
LETTERS = st.characters(exclude_categories=["Cs"])
NAMES = st.text(LETTERS, min_size=1, max_size=8)
ARRAYS = st.dictionaries(
    NAMES.filter(lambda name: name != "__metadata__"),
    st.sampled_from(TYPES).flatmap(
        lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
    ),
    max_size=5,
)
TEXT = st.dictionaries(NAMES, st.text(LETTERS, max_size=8))
HEADERS = st.builds(
    codec.Header,
    run=st.text(LETTERS, max_size=12),
    phase=NAMES,
    round=st.integers(0, 10**9),
    step=st.integers(0, 10**9),
    attempt=st.integers(0, 10**9),
    seed=st.integers(0, 2**64 - 1),
    counted=st.integers(-1, 10**9),
    durable=st.integers(-1, 10**9),
)


def same(one: Arrays, other: Arrays) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].dtype == other[name].dtype
        assert one[name].shape == other[name].shape
        assert one[name].tobytes() == other[name].tobytes()


def raw(header: Mapping[str, Any] | bytes, body: bytes = b"") -> bytes:
    """Bytes of the format, whatever is in them."""
    words = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(words).to_bytes(8, "little") + words + body


# -- there and back -------------------------------------------------------------------------------


@given(arrays=ARRAYS, text=TEXT)
def test_arrays_and_strings_come_back_as_they_were(
    arrays: dict[str, Array], text: dict[str, str]
) -> None:
    before = {name: a.copy() for name, a in arrays.items()}
    found, words = codec.unpack(codec.pack(arrays, text))
    same(found, arrays)
    assert words == text
    same(arrays, before)


@pytest.mark.parametrize("kind", TYPES)
def test_extreme_values_come_back(kind: str) -> None:
    if kind[0] == "f":
        some = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(kind).tiny], kind)
    elif kind == "?":
        some = np.array([True, False])
    else:
        some = np.array([np.iinfo(kind).min, 0, np.iinfo(kind).max], kind)
    same(codec.unpack(codec.pack({"a": some}))[0], {"a": some})


def test_memory_that_is_not_in_order_comes_back_in_order() -> None:
    x = np.arange(24.0).reshape(4, 6)
    for view in (x.T, x[::2, ::-1], np.broadcast_to(x[0], (3, 6)), np.asfortranarray(x)):
        np.testing.assert_array_equal(codec.unpack(codec.pack({"a": view}))[0]["a"], view)
    big = x.astype(">f8")
    np.testing.assert_array_equal(codec.unpack(codec.pack({"a": big}))[0]["a"], x)
    np.testing.assert_array_equal(big, x)


def test_the_same_arrays_are_the_same_bytes_in_any_order() -> None:
    a, b = np.ones(2), np.zeros(3, np.int8)
    assert codec.pack({"a": a, "b": b}, {"x": "1"}) == codec.pack({"b": b, "a": a}, {"x": "1"})


@pytest.mark.parametrize(
    "wrong",
    [
        np.array([object()]),
        np.array(["text"]),
        np.array([b"bytes"]),
        np.array([1 + 2j]),
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.zeros(2, np.longdouble),
        np.zeros(1, dtype=[("a", "f8")]),
    ],
    ids=lambda a: str(a.dtype),
)
def test_only_numbers_and_booleans_are_packed(wrong: Array) -> None:
    with pytest.raises(ProtocolError, match="'odd' has type"):
        codec.pack({"odd": wrong})


def test_what_comes_back_may_be_written_to() -> None:
    found, _ = codec.unpack(codec.pack({"a": np.zeros(3)}))
    found["a"][0] = 1


@given(arrays=ARRAYS)
def test_payload_is_the_bytes_of_the_arrays(arrays: dict[str, Array]) -> None:
    assert codec.payload(arrays) == sum(len(a.tobytes()) for a in arrays.values())


# -- hostile bytes --------------------------------------------------------------------------------


def whole() -> bytes:
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(4, np.int8), "c": np.array(True)}
    return codec.pack(arrays, {"run": "r", "phase": "p"})


def reads_or_refuses(data: bytes) -> None:
    try:
        arrays, text = codec.unpack(data)
    except ProtocolError:
        return
    assert all(isinstance(a, np.ndarray) for a in arrays.values())
    assert all(isinstance(word, str) for word in text.values())


@given(data=st.binary(max_size=200))
@example(b"")
@example(b"\x80\x05K\x01.")  # a pickle
@example((2**63).to_bytes(8, "little"))
@example((2**64 - 1).to_bytes(8, "little") + b"{}")
def test_garbage_is_refused(data: bytes) -> None:
    reads_or_refuses(data)


@given(length=st.integers(0, len(whole()) - 1))
def test_a_message_cut_short_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError):
        codec.unpack(whole()[:length])


@given(st.data())
def test_damaged_bytes_raise_nothing_but_a_protocol_error(data: st.DataObject) -> None:
    message = bytearray(whole())
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    reads_or_refuses(bytes(message))


TENSOR = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(
            ["F64", "I8", "BOOL", "BF16", "F8_E4M3", "F8_E5M2", "C64", "F4", "object", ""]
        )
        | st.integers(),
        "shape": st.lists(st.sampled_from([0, 1, 2, -1, 2**31, 2**63, 2**64]), max_size=70),
        "data_offsets": st.lists(st.sampled_from([0, 1, 8, 16, -1, 2**63]), max_size=3),
    }
)


@given(
    header=st.dictionaries(
        st.sampled_from(["a", "b", "__metadata__", "x" * 300]),
        TENSOR | st.none() | st.dictionaries(st.sampled_from("ab"), st.none() | st.integers()),
        max_size=3,
    ),
    body=st.binary(max_size=16),
)
def test_forged_headers_raise_nothing_but_a_protocol_error(
    header: dict[str, Any], body: bytes
) -> None:
    reads_or_refuses(raw(header, body))


@pytest.mark.parametrize(
    "message",
    [
        raw({"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}, b"ab"),
        raw({"a": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}}, b"a" * 8),
        raw({"a": {"dtype": "U8", "shape": [1] * 100, "data_offsets": [0, 1]}}, b"a"),
        raw({"a": {"dtype": "F64", "shape": [2**63, 0], "data_offsets": [0, 0]}}),
        raw({"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 2**40]}}),
        raw({"n" * 257: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, b"a"),
        raw(b"[" * 100_000),
        raw({"__metadata__": {"run": 3}}),
        safetensors.numpy.save({f"a{i}": np.zeros(1) for i in range(codec.MAX_ARRAYS + 1)}),
    ],
    ids=[
        "a type that NumPy has not",
        "complex numbers",
        "too many dimensions",
        "a shape beyond all arrays",
        "more than there is",
        "a long name",
        "a deep header",
        "numbers for strings",
        "too many arrays",
    ],
)
def test_hostile_messages_are_refused(message: bytes) -> None:
    with pytest.raises(ProtocolError):
        codec.unpack(message)


def test_messages_have_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_MESSAGE", len(whole()))
    codec.unpack(whole())
    with pytest.raises(ProtocolError, match=f"at most {len(whole())} are read"):
        codec.unpack(whole() + b"\0")


# -- replies --------------------------------------------------------------------------------------

SHAPES = hnp.array_shapes(min_dims=0, max_dims=2, min_side=1, max_side=4)
FLOATS = st.sampled_from(["f8", "f4", "i8", "?"])


@st.composite
def replies(draw: st.DrawFn) -> tuple[list[Reply], Mapping[str, type[Field]]]:
    """Replies of some clients, with fields of any kinds, shapes and types."""
    n_clients = draw(st.integers(1, 4))
    made: list[dict[str, Field]] = [{} for _ in range(n_clients)]
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    kinds: dict[str, type[Field]] = {}
    for name in names:
        kind = kinds[name] = draw(st.sampled_from([Sum, Slots, Stack, Ragged, Top]))
        shape, dtype = draw(SHAPES), draw(FLOATS)
        of, k = draw(st.integers(1, 12)), draw(st.integers(1, 12))
        for reply in made:
            reply[name] = field_of(kind, shape, dtype, of, k, draw(st.integers(0, 12)))
    return list(made), kinds


def field_of(
    kind: type[Field], shape: tuple[int, ...], dtype: str, of: int, k: int, n: int
) -> Field:
    """A field of one client: of `of` slots one, or of at most `k` rows, or of `n` rows."""
    if kind is Slots:
        value = np.zeros((of, *shape), dtype)
        value[n % of] = 1
        return Slots(value, np.array([n % of]))
    if kind is Ragged:
        return Ragged(np.ones((n, *shape), dtype), np.array([n]))
    if kind is Top:
        n = min(n, k)
        return Top(np.ones((n, *shape), dtype), np.ones(n), k, np.array([n]))
    return Stack(np.ones((1, *shape), dtype)) if kind is Stack else Sum(np.ones(shape, dtype))


@given(made=replies(), header=HEADERS)
def test_sizes_of_replies_are_those_of_their_bytes(
    made: tuple[list[Reply], Mapping[str, type[Field]]], header: codec.Header
) -> None:
    clients, kinds = made
    payload = framing = 0
    for reply in clients:
        arrays = codec.encode_reply(reply)
        message = codec.pack(arrays, header.text())
        payload += codec.payload(arrays)
        framing += len(message) - codec.payload(arrays)
        back, text = codec.unpack(message)
        assert codec.Header.parse(text) == header
        again = codec.decode_reply(back, kinds)
        for name, field in reply.items():
            assert type(again[name]) is kinds[name]
            for part, value in vars(field).items():
                np.testing.assert_array_equal(value, vars(again[name])[part])
    one = {
        name: reply_field.merge([other[name] for other in clients[1:]])
        if not isinstance(reply_field, Top)
        else joined_top([other[name] for other in clients])
        for name, reply_field in clients[0].items()
    }
    assert codec.reply_bytes(one, len(clients), header.text()) == (payload, framing)


def joined_top(parts: list[Field]) -> Top:
    """As merged, but for the order of its rows, which no size depends on."""
    tops = [part for part in parts if isinstance(part, Top)]
    sent = np.concatenate([part.sent for part in tops])
    return Top(tops[0].value, tops[0].score, tops[0].k, sent)


WHOLE = {
    "a.value": np.zeros(3),
    "b.row": np.zeros(2),
    "b.slot": np.array(0),
    "b.of": np.array(2),
}


def test_a_whole_reply_is_read() -> None:
    reply = codec.decode_reply(WHOLE, {"a": Sum, "b": Slots})
    assert reply["b"].value.shape == (2, 2)


def test_sizes_of_replies_without_words() -> None:
    reply = {"a": Sum(np.zeros(3))}
    arrays = codec.encode_reply(reply)
    frame = len(codec.pack(arrays)) - codec.payload(arrays)
    assert codec.reply_bytes(reply, 2, {}) == (2 * 24, 2 * frame)


@given(shape=SHAPES, dtype=st.sampled_from(TYPES), name=NAMES, rows=st.integers(0, 10**6))
def test_sizes_need_no_arrays(shape: tuple[int, ...], dtype: str, name: str, rows: int) -> None:
    large = np.broadcast_to(np.zeros((), dtype), (rows, *shape))
    payload, _ = codec.reply_bytes({name: Ragged(large, np.array([rows]))}, 1, {})
    assert payload == large.size * large.itemsize


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"a.value": np.zeros(3)},
        {"a.value": np.zeros(3), "b.row": np.zeros(2), "b.slot": np.array(0)},
        {"a.value": np.zeros(3), "c.value": np.zeros(2)},
        {"value": np.zeros(3)},
        {**WHOLE, "b.slot": np.zeros(2)},
        {**WHOLE, "b.slot": np.array(5)},
        {**WHOLE, "b.of": np.array(2**62)},
        {**WHOLE, "b.of": np.array(-1)},
    ],
    ids=[
        "nothing",
        "a field is missing",
        "a part is missing",
        "another field",
        "no field",
        "no number",
        "slot",
        "memory",
        "negative",
    ],
)
def test_replies_of_another_kind_are_refused(arrays: dict[str, Array]) -> None:
    with pytest.raises(ProtocolError):
        codec.decode_reply(arrays, {"a": Sum, "b": Slots})


@given(
    kind=st.sampled_from([Sum, Slots, Stack, Ragged, Top]),
    parts=st.dictionaries(
        st.sampled_from(["value", "row", "slot", "of", "score", "k", "other"]),
        st.sampled_from(TYPES).flatmap(
            lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=2, max_side=3))
        ),
    ),
)
def test_any_arrays_are_a_reply_or_refused(kind: type[Field], parts: dict[str, Array]) -> None:
    try:
        reply = codec.decode_reply({f"a.{part}": a for part, a in parts.items()}, {"a": kind})
    except ProtocolError:
        return
    assert type(reply["a"]) is kind


# -- requests -------------------------------------------------------------------------------------


def numbered(shape: tuple[int, ...]) -> Array:
    """An array in which no slot is like another."""
    return np.arange(float(np.prod(shape))).reshape(shape)


@st.composite
def requests(draw: st.DrawFn) -> tuple[Request, Array]:
    n_clients, n_slots = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    shared = {
        name: np.ones(draw(SHAPES), draw(FLOATS)) for name in draw(st.lists(NAMES, unique=True))
    }
    slots, address = {}, None
    if draw(st.booleans()):
        names = draw(st.lists(NAMES, max_size=3, unique=True))
        slots = {name: numbered((n_slots, *draw(SHAPES))) for name in names}
        some = st.integers(-1, n_slots - 1)
        address = np.array(draw(st.lists(some, min_size=n_clients, max_size=n_clients)))
    header = draw(HEADERS)
    request = Request(
        header.phase,
        header.round,
        shared,
        slots,
        address,
        run=header.run,
        step=header.step,
        attempt=header.attempt,
        seed=header.seed,
    )
    cohort = draw(st.sets(st.integers(0, n_clients - 1)))
    return request, np.array(sorted(cohort), dtype=np.int64)


@given(made=requests(), counted=st.integers(-1, 10**9), durable=st.integers(-1, 10**9))
def test_sizes_of_requests_are_those_of_their_bytes(
    made: tuple[Request, Array], counted: int, durable: int
) -> None:
    request, cohort = made
    payload = framing = 0
    for client in cohort.tolist():
        arrays = codec.request_arrays(request, client, 0.25)
        text = codec.Header.of(request, counted, durable).text()
        payload += codec.payload(arrays)
        framing += len(codec.pack(arrays, text)) - codec.payload(arrays)
    assert codec.request_bytes(request, cohort) == (payload, framing)


@given(made=requests(), weight=st.floats(0, 1e9))
def test_a_request_comes_to_each_client_as_it_sees_it(
    made: tuple[Request, Array], weight: float
) -> None:
    request, cohort = made
    for client in cohort.tolist():
        arrays = codec.request_arrays(request, client, weight)
        sent, text = codec.unpack(codec.pack(arrays, codec.Header.of(request, 3, 2).text()))
        header = codec.Header.parse(text)
        back, found = codec.request_from(header, sent)
        assert found == weight
        assert (header.counted, header.durable) == (3, 2)
        assert header.answers(request)
        for word in ("phase", "round", "run", "step", "attempt", "seed"):
            assert getattr(back, word) == getattr(request, word)
        same(back.shared, request.shared)
        assert back.slots.keys() == request.slots.keys()
        if request.address is None:
            assert back.address is None
            continue
        seen = request.at(np.array([client]))
        for name in request.slots:
            np.testing.assert_array_equal(back.own(name), seen.own(name))
            alone = request.address[client] >= 0
            assert len(back.slots[name]) == (1 if alone else len(request.slots[name]))


@pytest.mark.parametrize(
    "arrays",
    [
        {"shared.w": np.zeros(2)},
        {"weight": np.zeros(0)},
        {"weight": np.array(1.0)},
        {"weight": np.ones(1), "address": np.zeros(0)},
    ],
    ids=["no weight", "an empty weight", "a bare weight", "an empty address"],
)
def test_requests_that_no_server_sends_are_refused(arrays: dict[str, Array]) -> None:
    with pytest.raises(ProtocolError, match="weight"):
        codec.request_from(codec.Header("", "round", 1, 1, 0), arrays)


# -- headers --------------------------------------------------------------------------------------


@given(header=HEADERS)
def test_a_header_comes_back(header: codec.Header) -> None:
    assert codec.Header.parse(header.text()) == header


@given(one=HEADERS, other=HEADERS)
def test_the_size_of_a_header_does_not_depend_on_its_numbers(
    one: codec.Header, other: codec.Header
) -> None:
    for name, word in one.text().items():
        if name not in ("run", "phase"):
            assert len(word) == len(other.text()[name])


@pytest.mark.parametrize("missing", ["run", "phase", "round", "step", "attempt", "seed", "counted"])
def test_a_header_that_lacks_something_is_refused(missing: str) -> None:
    text = codec.Header("r", "p", 1, 2, 3).text()
    with pytest.raises(ProtocolError):
        codec.Header.parse({name: word for name, word in text.items() if name != missing})
    if missing not in ("run", "phase"):
        with pytest.raises(ProtocolError):
            codec.Header.parse(text | {missing: "soon"})


def test_a_header_answers_its_request_at_its_attempt_only() -> None:
    request = Request("p", 1, {}, run="r", step=2, attempt=1)
    assert codec.Header.of(request).answers(request)
    for other in ({"run": "s"}, {"step": 3}, {"attempt": 0}):
        changed = Request("p", 1, {}, **{"run": "r", "step": 2, "attempt": 1, **other})  # type: ignore[arg-type]
        assert not codec.Header.of(changed).answers(request)


# -- states and private state ---------------------------------------------------------------------


@given(arrays=ARRAYS, phase=NAMES, round_=st.integers(0, 10**12))
def test_a_state_comes_back(arrays: dict[str, Array], phase: str, round_: int) -> None:
    back = codec.decode_state(codec.encode_state(State(phase, round_, arrays)))
    assert (back.phase, back.round) == (phase, round_)
    same(back.arrays, arrays)


@pytest.mark.parametrize("text", [{}, {"phase": "p"}, {"phase": "p", "round": "soon"}])
def test_what_is_not_a_state_is_refused(text: dict[str, str]) -> None:
    with pytest.raises(ProtocolError, match="not a state"):
        codec.decode_state(codec.pack({"a": np.zeros(1)}, text))


@given(rows=ARRAYS, clients=ARRAYS)
def test_private_state_comes_back(rows: dict[str, Array], clients: dict[str, Array]) -> None:
    back = codec.private_from(codec.private_arrays(Private(rows, clients)))
    same(back.rows, rows)
    same(back.clients, clients)


def test_what_is_not_private_state_is_refused() -> None:
    with pytest.raises(ProtocolError, match=r"'shared\.w'"):
        codec.private_from({"shared.w": np.zeros(2)})


# -- checksums ------------------------------------------------------------------------------------


@given(arrays=ARRAYS)
def test_a_checksum_is_of_what_is_there_in_any_order(arrays: dict[str, Array]) -> None:
    backwards = dict(reversed(arrays.items()))
    copies = {name: np.asfortranarray(a) for name, a in arrays.items() if a.ndim}
    assert codec.checksum(arrays) == codec.checksum(backwards)
    assert codec.checksum(arrays) == codec.checksum({**arrays, **copies})


def test_a_checksum_sees_names_types_shapes_and_bits() -> None:
    x = np.arange(6.0)
    others: list[Arrays] = [
        {"b": x},
        {"a": x.reshape(2, 3)},
        {"a": x.astype(np.float32)},
        {"a": x.view(np.int64)},
        {"a": x[::-1]},
        {"a": x + np.eye(6)[0] * 1e-300},
        {"a": x, "b": np.zeros(0)},
        {},
    ]
    sums = [codec.checksum(other) for other in ({"a": x}, *others)]
    assert len(set(sums)) == len(sums)

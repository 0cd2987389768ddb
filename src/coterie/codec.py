"""Bytes: how states, requests, replies and private state travel and are kept.

The format is safetensors, which holds named arrays and strings and nothing that runs. What is
read is checked against limits first. Sizes are counted here and nowhere else: `payload` is the
arrays, `framing` is what the format and the message add to them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from coterie.backend import Array, Arrays
from coterie.block import Private
from coterie.errors import ProtocolError
from coterie.fields import Field, Part, Reply
from coterie.protocol import Request, State

MAX_MESSAGE = 1 << 32  # bytes
MAX_ARRAYS = 4096
MAX_NAME = 256

# What travels, in the order of safetensors: numbers and booleans of a size that is the same on
# every machine; no objects, no strings, no complex numbers.
_NAMES = {"b1": "BOOL", "u1": "U8", "i1": "I8", "i2": "I16", "u2": "U16", "f2": "F16"}
_NAMES |= {"i4": "I32", "u4": "U32", "f4": "F32", "f8": "F64", "i8": "I64", "u8": "U64"}
_RANK = {code: rank for rank, code in enumerate(_NAMES)}

Text = Mapping[str, str]


def pack(arrays: Arrays, text: Text | None = None) -> bytes:
    """Named arrays and strings as bytes."""
    plain = {name: np.require(a, requirements=["C"]) for name, a in sorted(arrays.items())}
    for name, array in plain.items():
        if array.dtype.str[1:] not in _NAMES:
            raise ProtocolError(
                f"array {name!r} has type {array.dtype}; only numbers and booleans travel"
            )
    return safetensors.numpy.save(plain, metadata=dict(text) if text else None)


def unpack(data: bytes) -> tuple[dict[str, Array], dict[str, str]]:
    """Arrays and strings of `pack`; anything else is a `ProtocolError`."""
    if len(data) > MAX_MESSAGE:
        raise ProtocolError(f"a message of {len(data)} bytes; at most {MAX_MESSAGE} are read")
    try:
        arrays = safetensors.numpy.load(data)
        length = int.from_bytes(data[:8], "little")
        text = json.loads(data[8 : 8 + length]).get("__metadata__") or {}
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ProtocolError(f"not a message of coterie: {error}") from error
    if len(arrays) > MAX_ARRAYS:
        raise ProtocolError(f"a message of {len(arrays)} arrays; at most {MAX_ARRAYS} are read")
    for name, array in arrays.items():
        if len(name) > MAX_NAME or array.dtype.str[1:] not in _NAMES:
            raise ProtocolError(f"array {name[:MAX_NAME]!r} has a name or a type that is refused")
    return arrays, text


def payload(arrays: Arrays) -> int:
    """Bytes of the arrays alone."""
    return sum(a.nbytes for a in arrays.values())


# -- replies --------------------------------------------------------------------------------------


def encode_reply(reply: Reply) -> dict[str, Array]:
    """The fields of one client as named arrays."""
    return {
        f"{name}.{part}": np.asarray(array)
        for name, field in reply.items()
        for part, array in field.encode().items()
    }


def decode_reply(arrays: Arrays, kinds: Mapping[str, type[Field]]) -> Reply:
    """Fields of the declared kinds, and no others."""
    grouped: dict[str, dict[str, Array]] = {name: {} for name in kinds}
    for full, array in arrays.items():
        name, _, part = full.rpartition(".")
        if name not in grouped:
            raise ProtocolError(f"a reply with field {name!r}; expected {sorted(kinds)}")
        grouped[name][part] = array
    try:
        return {name: kinds[name].decode(parts) for name, parts in grouped.items()}
    except KeyError as error:
        raise ProtocolError(f"a reply without {error}; expected {sorted(kinds)}") from error
    except (ValueError, TypeError, IndexError, MemoryError) as error:
        raise ProtocolError(f"a reply that cannot be read: {error}") from error


def reply_bytes(reply: Reply, n_clients: int, text: Text) -> tuple[int, int]:
    """Payload and framing of the replies of `n_clients` clients, without encoding any.

    `text` is what each message carries beside its arrays.
    """
    parts = {f"{n}.{p}": part for n, field in reply.items() for p, part in field.parts().items()}
    ragged = [part.counts for part in parts.values() if part.counts is not None]
    if not ragged:
        size, frame = _one_message(_layout(parts, ()), tuple(sorted(text.items())))
        return size * n_clients, frame * n_clients
    shapes, times = np.unique(np.stack(ragged, axis=1), axis=0, return_counts=True)
    sizes = [
        _one_message(_layout(parts, tuple(map(int, counts))), tuple(sorted(text.items())))
        for counts in shapes
    ]
    totals = (np.array(sizes) * times[:, None]).sum(axis=0)
    return int(totals[0]), int(totals[1])


_Layout = tuple[tuple[str, str, tuple[int, ...]], ...]


def _layout(parts: Mapping[str, Part], counts: tuple[int, ...]) -> _Layout:
    left = iter(counts)
    return tuple(
        (name, part.dtype.str, part.shape if part.counts is None else (next(left), *part.shape))
        for name, part in parts.items()
    )


@lru_cache(maxsize=4096)
def _one_message(layout: _Layout, text: tuple[tuple[str, str], ...]) -> tuple[int, int]:
    """Payload and framing of a message of this layout: the arrays stay virtual."""
    header: dict[str, Any] = {"__metadata__": dict(text)} if text else {}
    end = 0
    for name, dtype, shape in _in_file_order(layout):
        start, end = end, end + int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        kind = _NAMES[np.dtype(dtype).str[1:]]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [start, end]}
    length = len(json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode())
    return end, 8 + length + -length % 8


def _in_file_order(layout: _Layout) -> _Layout:
    """Safetensors lays wide types first, then goes by name."""
    return tuple(sorted(layout, key=lambda a: (-_RANK[np.dtype(a[1]).str[1:]], a[0])))


# -- states, requests, private state --------------------------------------------------------------


def encode_state(state: State) -> bytes:
    """A server state as bytes."""
    return pack(state.arrays, {"phase": state.phase, "round": str(state.round)})


def decode_state(data: bytes) -> State:
    """A server state from bytes."""
    arrays, text = unpack(data)
    try:
        return State(text["phase"], int(text["round"]), arrays)
    except (KeyError, ValueError) as error:
        raise ProtocolError(f"not a state: {error}") from error


def private_arrays(private: Private) -> dict[str, Array]:
    """Private state as named arrays."""
    by_row = {f"rows.{name}": a for name, a in private.rows.items()}
    return by_row | {f"clients.{name}": a for name, a in private.clients.items()}


def private_from(arrays: Arrays) -> Private:
    """Private state from named arrays."""
    kinds: dict[str, dict[str, Array]] = {"rows": {}, "clients": {}}
    for full, array in arrays.items():
        kind, _, name = full.partition(".")
        if kind not in kinds:
            raise ProtocolError(f"private state with an array {full!r}; expected rows or clients")
        kinds[kind][name] = array
    return Private(kinds["rows"], kinds["clients"])


@dataclass(frozen=True)
class Header:
    """What a message says of itself, so that it can be told from every other."""

    run: str
    phase: str
    round: int
    step: int
    attempt: int
    seed: int = 0
    counted: int = -1  # the step whose reply the server counted last: the state to start from
    durable: int = -1  # the same at the server's last checkpoint: the oldest that may be asked for

    @classmethod
    def of(cls, request: Request, counted: int = -1, durable: int = -1) -> Header:
        """The header of a request."""
        return cls(
            request.run,
            request.phase,
            request.round,
            request.step,
            request.attempt,
            request.seed,
            counted,
            durable,
        )

    def answers(self, request: Request) -> bool:
        """Whether a reply with this header answers `request`, at this attempt."""
        mine = (self.run, self.step, self.attempt)
        return mine == (request.run, request.step, request.attempt)

    def text(self) -> dict[str, str]:
        """As strings of one width, so that sizes do not depend on values."""
        numbers = ("round", "step", "attempt", "counted", "durable")
        fixed = {name: f"{getattr(self, name):+011d}" for name in numbers}
        return {"run": self.run, "phase": self.phase, "seed": f"{self.seed:020d}"} | fixed

    @classmethod
    def parse(cls, text: Text) -> Header:
        """From strings."""
        numbers = ("round", "step", "attempt", "seed", "counted", "durable")
        try:
            return cls(text["run"], text["phase"], *(int(text[name]) for name in numbers))
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"a message without a readable header: {error}") from error


def request_arrays(request: Request, client: int, weight: float) -> dict[str, Array]:
    """What of a request one client gets: its slot only, or all if it has none."""
    arrays = {f"shared.{name}": a for name, a in request.shared.items()}
    arrays |= {f"slots.{name}": a for name, a in request.slots.items()}
    if request.address is not None:
        slot = int(request.address[client])
        arrays["address"] = np.array([slot])
        if slot >= 0:
            for name, a in request.slots.items():
                arrays[f"slots.{name}"] = a[slot : slot + 1]
    arrays["weight"] = np.array([weight])
    return arrays


def request_from(header: Header, arrays: Arrays) -> tuple[Request, float]:
    """A request and the client's weight, as the client reads them."""
    shared, slots = {}, {}
    for full, array in arrays.items():
        kind, _, name = full.partition(".")
        if kind == "shared":
            shared[name] = array
        elif kind == "slots":
            slots[name] = array
    address, weight = arrays.get("address"), arrays.get("weight")
    if weight is None or weight.shape != (1,) or (address is not None and address.shape != (1,)):
        raise ProtocolError("a request without a weight, or with a broken weight or address")
    if address is not None and address[0] >= 0:
        address = np.zeros(1, dtype=np.int64)  # its slot came alone
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
    return request, float(weight[0])


def request_bytes(request: Request, cohort: Array) -> tuple[int, int]:
    """Payload and framing of a request to each client of `cohort`, without encoding any."""
    text = tuple(sorted(Header.of(request).text().items()))
    if request.address is None:
        alike = [cohort]
    else:
        alone = request.address[cohort] >= 0
        alike = [cohort[alone], cohort[~alone]]
    sizes = [
        np.array(_one_message(_array_layout(request_arrays(request, int(some[0]), 1.0)), text))
        * len(some)
        for some in alike
        if len(some)
    ]
    payload_bytes, framing = np.sum(sizes, axis=0).tolist() if sizes else (0, 0)
    return payload_bytes, framing


def _array_layout(arrays: Arrays) -> _Layout:
    return tuple((name, np.asarray(a).dtype.str, np.asarray(a).shape) for name, a in arrays.items())


def checksum(arrays: Arrays) -> str:
    """Of names, types, shapes and contents: tells a damaged file from a whole one."""
    total = 0
    for name, array in sorted(arrays.items()):
        head = f"{name}:{array.dtype.str}:{array.shape}".encode()
        total = zlib.crc32(np.ascontiguousarray(array).data, zlib.crc32(head, total))
    return f"{total:08x}"

"""Randomness by counting: every draw is a function of who draws, when, and what for.

A generator with a state would make results depend on the order in which clients run, and one
generator a client costs more than a round (`numpy.random.SeedSequence`: 1.2 s at 100,000
clients). Here a draw is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", SC 2011) of

* a key: the hash of (seed, step, purpose), and
* a counter: the client's key (64 bits), the row's number within its client, the draw.

So a client draws the same numbers in a simulation, in a process of its own and on a GPU.
None of this is for privacy noise, which needs a source that nobody can predict.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from coterie.backend import Array, is_torch, torch_module
from coterie.errors import InputTypeError

MASK = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


class Owners(Protocol):
    """What `Stream` needs to know of a block."""

    offsets: Array
    keys: Array

    @property
    def n_rows(self) -> int: ...  # noqa: D102
    @property
    def sizes(self) -> Array: ...  # noqa: D102
    def bare(self) -> Any: ...  # noqa: D102
    def put(self, *small: Array) -> Any: ...  # noqa: D102
    def spread(self, per_client: Array) -> Any: ...  # noqa: D102


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> tuple[Any, Any, Any, Any]:
    """Four 32-bit words for each counter, in 64-bit integers of NumPy or torch.

    The 64-bit product of two words may wrap to a negative number; its bits are right, and the
    mask after the shift removes the copies of the sign.
    """
    a, b, c, d = counter
    low, high = key
    for _ in range(ROUNDS):
        first, second = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a = ((second >> 32) & MASK) ^ b ^ low
        c = ((first >> 32) & MASK) ^ d ^ high
        b, d = second & MASK, first & MASK
        low, high = (low + WEYL[0]) & MASK, (high + WEYL[1]) & MASK
    return a, b, c, d


def client_key(client_id: object) -> int:
    """The 64-bit root of a client's randomness: a hash of its id, not of its position."""
    if isinstance(client_id, np.generic):
        client_id = client_id.item()
    whole = isinstance(client_id, float) and client_id.is_integer()
    if whole or isinstance(client_id, bool):
        client_id = int(client_id)  # type: ignore[call-overload]  # equal ids are one client: 1, 1.0 and True
    if type(client_id).__repr__ is object.__repr__:
        raise InputTypeError(
            f"a client id of type {type(client_id).__name__} was given, which has no text of its "
            "own; expected a string, a number, a tuple, or a type with a __repr__"
        )
    text = f"{type(client_id).__name__}:{client_id!r}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def client_keys(client_ids: Iterable[object]) -> Array:
    """`client_key` of each id, as signed 64-bit integers."""
    return np.fromiter((client_key(i) for i in client_ids), dtype=np.uint64).view(np.int64)


@dataclass(frozen=True)
class Stream:
    """The draws of one purpose at one step of one run.

    Parameters
    ----------
    seed : int
        The run's seed, 64 bits.
    step : int
        The exchange. `join` draws at step 0 whenever a client joins, so that what it starts
        from does not depend on when it is first asked.
    purpose : str
        "join", "client", "server", "participation" ...: draws for one never meet another's.
    """

    seed: int
    step: int
    purpose: str

    @property
    def key(self) -> tuple[int, int]:
        """The two words of the Philox key."""
        text = f"{self.seed}:{self.step}:{self.purpose}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")

    def rows(self, block: Owners, n: int = 1, draw: int = 0) -> Any:
        """Uniform numbers in [0, 1), (N, n), in the type and at the place of the rows.

        `draw` counts Philox blocks of four numbers already used for the same rows.
        """
        keys = block.keys
        aligned = (
            block.spread(keys & MASK),
            block.spread((keys >> 32) & MASK),
            block.put(np.arange(block.n_rows) - np.repeat(block.offsets[:-1], block.sizes)),
        )

        def kernel(x: Any, low: Any, high: Any, row: Any) -> tuple[dict[str, Any], dict[str, Any]]:
            return {"u": self._uniform((low, high, row), n, draw, like=x)}, {}

        rows, _ = block.bare().map_rows(kernel, *aligned)
        return rows["u"]

    def clients(self, block: Owners, n: int = 1, draw: int = 0) -> Array:
        """Uniform float64 numbers in [0, 1), (C, n): apart from those of any row."""
        keys = block.keys
        nobody = np.full(len(keys), MASK)
        who = (keys & MASK, (keys >> 32) & MASK, nobody)
        return np.asarray(self._uniform(who, n, draw, like=np.zeros(0)))

    def server(self) -> np.random.Generator:
        """An ordinary generator, for the server and for whoever acts once a step."""
        return np.random.default_rng([self.seed, self.step, *self.key])

    def _uniform(self, who: tuple[Any, Any, Any], n: int, draw: int, like: Any) -> Any:
        """Uniforms (len(who), n): 24 bits for float32, 32 for float64, leading with the same."""
        columns: list[Any] = []
        for block in range(-(-n // 4)):
            words = philox((*who, who[0] * 0 + draw + block), self.key)
            columns.extend(words[: n - 4 * block])
        drop, scale = (8, 2.0**-24) if "float32" in str(like.dtype) else (0, 2.0**-32)
        if is_torch(like):
            return (torch_module().stack(columns, dim=1) >> drop).to(like.dtype) * scale
        return (np.stack(columns, axis=1) >> drop).astype(like.dtype) * scale

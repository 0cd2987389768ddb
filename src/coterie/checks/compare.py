"""When two answers, or two states, are the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import numpy as np

from coterie import codec
from coterie.arrays import spans
from coterie.backend import Array, host
from coterie.block import Private
from coterie.errors import ContractError
from coterie.fields import Reply
from coterie.protocol import State

TOLERANCE = 1e-9


def compare_states(part: str, one: State, other: State) -> None:
    """Raise unless the arrays of `one` are those of `other`, at the same place of the run."""
    for what in ("phase", "round"):
        if getattr(one, what) != getattr(other, what):
            raise ContractError(
                f"{part}: {what} {getattr(one, what)!r} and {what} {getattr(other, what)!r}"
            )
    for name in sorted(one.arrays.keys() | other.arrays.keys()):
        missing = name not in one.arrays or name not in other.arrays
        if missing or not close(one.arrays[name], other.arrays[name]):
            detail = difference(one.arrays, other.arrays, name)
            raise ContractError(f"{part}: {name!r} differs by {detail}")


def both(answer: tuple[Reply, Private]) -> dict[str, Array]:
    """All arrays of what a client half returns."""
    reply, private = answer
    return {**as_arrays(reply), **as_arrays(private)}


def as_arrays(value: Reply | Private) -> dict[str, Array]:
    """All arrays of a reply or of private state, by name."""
    if isinstance(value, Private):
        return {name: host(a) for name, a in codec.private_arrays(value).items()}
    return {
        f"{name}.{part}": np.asarray(getattr(field, part))
        for name, field in value.items()
        for part in (f.name for f in fields(field))
    }


def cuts(n: int, seed: int) -> list[list[Array]]:
    """Ways to cut `n` clients into parts: one by one, in two, and in three without an order."""
    everyone = np.arange(n)
    mixed = np.random.default_rng(seed).permutation(everyone)
    ways = [
        np.array_split(everyone, max(n, 1)),
        np.array_split(everyone, 2),
        [np.sort(part) for part in np.array_split(mixed, 3)],
    ]
    return [[part for part in way if len(part)] for way in ways]


def joined(parts: list[Private], sizes: list[Array], order: Array) -> Private:
    """Private state of several blocks as that of one, clients put in `order`."""
    all_sizes = np.concatenate(sizes)
    starts = np.cumsum(all_sizes) - all_sizes
    rows = spans(all_sizes[order], starts[order])
    by_row = {n: np.concatenate([host(p.rows[n]) for p in parts])[rows] for n in parts[0].rows}
    by_client = {
        n: np.concatenate([host(p.clients[n]) for p in parts])[order] for n in parts[0].clients
    }
    return Private(by_row, by_client)


def close(a: Array, b: Array) -> bool:
    """Whether two arrays agree, to the largest of their entries."""
    if a.shape != b.shape:
        return False
    scale = max(1.0, float(np.abs(a).max(initial=0.0)))
    return bool(np.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE * scale))


def difference(one: Mapping[str, Array], other: Mapping[str, Array], name: str) -> str:
    """What is different about `name`, in words."""
    if name not in one or name not in other:
        return "being there"
    if one[name].shape != other[name].shape:
        return f"shape, {one[name].shape} and {other[name].shape}"
    return f"{np.abs(one[name].astype(float) - other[name].astype(float)).max():.3g}"


def same_state(one: State, other: State) -> bool:
    """Whether two states are the same, bit for bit."""
    same = (one.phase, one.round) == (other.phase, other.round)
    return same and codec.checksum(one.arrays) == codec.checksum(other.arrays)

"""Draws by counting: the published vectors, and who may influence whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats

from coterie.backend import host
from coterie.block import Block
from coterie.errors import InputTypeError
from coterie.random import Stream, client_key, client_keys, philox

Array = npt.NDArray[Any]

SIZES = (4, 1, 9, 2, 6)
KEYS = client_keys(["a", "b", "c", "d", "e"])
STREAM = Stream(7, 3, "client")

KNOWN_ANSWERS = [  # of Random123, philox4x32 with ten rounds: counter, key, words
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def block(dtype: str = "float64", **how: Any) -> Block:
    x = np.ones((sum(SIZES), 2), dtype=dtype)
    return Block(x, np.concatenate([[0], np.cumsum(SIZES)]), keys=KEYS, **how)


def uniforms(seed: int, step: int, purpose: str, key: int, n: int = 4000) -> Array:
    """What one client of `n` rows draws."""
    one = Block(np.ones((n, 1)), np.array([0, n]), keys=np.array([key]))
    return host(Stream(seed, step, purpose).rows(one))[:, 0]


# -- the bits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["NumPy", "torch"])
@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_philox_gives_the_published_words(
    kind: str, counter: tuple[int, ...], key: tuple[int, int], words: tuple[int, ...]
) -> None:
    arrays = [np.full(3, c) for c in counter]
    columns = [torch.from_numpy(a) for a in arrays] if kind == "torch" else arrays
    a, b, c, d = philox((columns[0], columns[1], columns[2], columns[3]), key)
    assert tuple(int(word[1]) for word in (a, b, c, d)) == words


@given(
    counter=st.tuples(*[st.integers(0, 2**32 - 1)] * 4),
    key=st.tuples(*[st.integers(0, 2**32 - 1)] * 2),
)
def test_philox_is_its_definition_in_plain_integers(
    counter: tuple[int, int, int, int], key: tuple[int, int]
) -> None:
    a, b, c, d = counter
    low, high = key
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, c = (second >> 32) ^ b ^ low, (first >> 32) ^ d ^ high
        b, d = second % 2**32, first % 2**32
        low, high = (low + 0x9E3779B9) % 2**32, (high + 0xBB67AE85) % 2**32
    columns = [np.array([word]) for word in counter]
    got = philox((columns[0], columns[1], columns[2], columns[3]), key)
    assert [int(word[0]) for word in got] == [a, b, c, d]


@given(n=st.integers(1, 11), draw=st.integers(0, 5), dtype=st.sampled_from(["float64", "float32"]))
def test_torch_draws_the_same_bits(n: int, draw: int, dtype: str) -> None:
    ours = block(dtype)
    theirs = block(dtype)
    theirs.x = torch.from_numpy(ours.x.copy())
    a, b = (host(STREAM.rows(rows, n, draw)) for rows in (ours, theirs))
    assert a.dtype == b.dtype == np.dtype(dtype)
    assert a.tobytes() == b.tobytes()


def test_sparse_rows_draw_the_same_bits() -> None:
    ours, sparsely = block(), block()
    sparsely.x = sparse.csr_array(ours.x)
    assert STREAM.rows(ours, 3).tobytes() == STREAM.rows(sparsely, 3).tobytes()


def test_float32_draws_are_the_float64_ones_cut_off() -> None:
    wide, narrow = STREAM.rows(block(), 50), STREAM.rows(block("float32"), 50)
    assert narrow.dtype == np.float32
    np.testing.assert_array_equal(narrow, np.floor(wide * 2**24) / 2**24)


def test_draws_are_in_the_unit_interval_and_one_is_not_among_them() -> None:
    for dtype in ("float64", "float32"):
        u = STREAM.rows(block(dtype), 4000)
        assert u.min() >= 0
        assert u.max() < 1


def test_draws_do_not_change_between_versions() -> None:
    u = STREAM.rows(block(), 2)[[0, 4, 21]]
    golden = [[4103642784, 3679767624], [907828937, 3013534138], [1497667365, 3012520015]]
    np.testing.assert_array_equal(u * 2**32, golden)


# -- who influences whom --------------------------------------------------------------------------


@given(order=st.permutations(range(len(SIZES))), kept=st.integers(1, len(SIZES)))
def test_a_client_draws_alone_what_it_draws_in_any_company(order: list[int], kept: int) -> None:
    everyone = block()
    some = everyone.take(np.array(order[:kept]))
    u, v = STREAM.rows(everyone, 3), STREAM.rows(some, 3)
    per_client, of_some = STREAM.clients(everyone, 3), STREAM.clients(some, 3)
    for position, client in enumerate(order[:kept]):
        mine = slice(everyone.offsets[client], everyone.offsets[client + 1])
        there = slice(some.offsets[position], some.offsets[position + 1])
        np.testing.assert_array_equal(u[mine], v[there])
        np.testing.assert_array_equal(per_client[client], of_some[position])


@given(piece=st.integers(1, 30), threads=st.integers(1, 3))
def test_pieces_and_threads_do_not_change_draws(piece: int, threads: int) -> None:
    cut = block(piece=piece, threads=threads)
    np.testing.assert_array_equal(STREAM.rows(cut, 5), STREAM.rows(block(), 5))


@given(n=st.integers(1, 9), more=st.integers(0, 9))
def test_more_draws_begin_with_the_same(n: int, more: int) -> None:
    np.testing.assert_array_equal(STREAM.rows(block(), n + more)[:, :n], STREAM.rows(block(), n))


def test_draw_skips_blocks_of_four() -> None:
    whole = STREAM.rows(block(), 12)
    np.testing.assert_array_equal(whole[:, 4:], STREAM.rows(block(), 8, draw=1))
    np.testing.assert_array_equal(STREAM.clients(block(), 8)[:, 4:], STREAM.clients(block(), 4, 1))


def test_a_block_of_nobody_draws_nothing() -> None:
    nobody = block().take(np.zeros(0, dtype=np.int64))
    assert STREAM.rows(nobody, 3).shape == (0, 3)
    assert STREAM.clients(nobody, 3).shape == (0, 3)


def test_clients_draw_apart_from_their_rows() -> None:
    rows = STREAM.rows(block(), 4).ravel()
    assert not np.isin(STREAM.clients(block(), 4).ravel(), rows).any()


@dataclass(frozen=True)
class Draws:
    """One thing changed, and nothing else."""

    seed: int = 1
    step: int = 2
    purpose: str = "client"
    client: str = "a"

    def values(self) -> Array:
        return uniforms(self.seed, self.step, self.purpose, client_key(self.client) - 2**63)


@pytest.mark.parametrize(
    "other",
    [Draws(seed=2), Draws(step=3), Draws(purpose="join"), Draws(client="b"), Draws(2, 1)],
    ids=["seed", "step", "purpose", "client", "seed and step exchanged"],
)
def test_draws_of_different_origin_are_independent(other: Draws) -> None:
    one, two = Draws().values(), other.values()
    counts, _, _ = np.histogram2d(one, two, bins=8, range=[[0, 1], [0, 1]])
    assert stats.chisquare(counts.ravel()).pvalue > 1e-4
    assert stats.chisquare(np.histogram((one - two) % 1, bins=50)[0]).pvalue > 1e-4
    assert len(np.intersect1d(one, two)) <= 1


def test_draws_of_neighbouring_rows_and_columns_are_independent() -> None:
    key = np.array([client_key("a") - 2**63])
    u = STREAM.rows(Block(np.ones((3000, 1)), np.array([0, 3000]), keys=key), 6)
    for a, b in [(u[:-1, 0], u[1:, 0]), (u[:, 0], u[:, 1]), (u[:, 0], u[:, 4]), (u[:, 3], u[:, 4])]:
        counts, _, _ = np.histogram2d(a, b, bins=8, range=[[0, 1], [0, 1]])
        assert stats.chisquare(counts.ravel()).pvalue > 1e-4
    assert stats.kstest(u.ravel(), "uniform").pvalue > 1e-4


def test_draws_of_many_clients_are_uniform() -> None:
    keys = client_keys(range(20000))
    many = Block(np.ones((20000, 1)), np.arange(20001), keys=keys)
    for u in (STREAM.rows(many)[:, 0], STREAM.clients(many)[:, 0]):
        assert stats.kstest(u, "uniform").pvalue > 1e-4
        assert len(np.unique(u)) > 19990


@given(seed=st.integers(0, 2**64 - 1), step=st.integers(0, 10**6))
def test_the_servers_generator_repeats(seed: int, step: int) -> None:
    one, two = (Stream(seed, step, "server").server().random(3) for _ in range(2))
    other = Stream(seed, step + 1, "server").server().random(3)
    np.testing.assert_array_equal(one, two)
    assert (one != other).all()


# -- client ids -----------------------------------------------------------------------------------


def test_equal_ids_have_one_key() -> None:
    for same in ([1, 1.0, True, np.int64(1), np.float32(1), np.True_], ["a", np.str_("a")]):
        assert len({client_key(i) for i in same}) == 1, same


def test_different_ids_have_different_keys() -> None:
    ids = [0, 1, -1, "1", "a", b"a", 1.5, "1.5", (1, 2), (1, "2"), (1, (2,)), None, "", 10**30]
    assert len({client_key(i) for i in ids}) == len(ids)


@given(st.lists(st.one_of(st.integers(), st.text()), unique_by=lambda i: (type(i), i)))
def test_keys_are_64_bits_and_apart(ids: list[object]) -> None:
    keys = client_keys(ids)
    assert keys.dtype == np.int64
    assert len(set(keys.tolist())) == len(ids)
    assert [int(k) % 2**64 for k in keys] == [client_key(i) for i in ids]


def test_a_key_is_the_same_in_every_process() -> None:
    assert client_key("hospital-3") == 3457032774205703936
    assert client_key(17) == 13456320106966450902


def test_an_id_without_a_text_of_its_own_is_refused() -> None:
    class Anonymous:
        pass

    with pytest.raises(InputTypeError, match="Anonymous"):
        client_key(Anonymous())

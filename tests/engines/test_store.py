"""Private state, packed: places, growth, files, snapshots; and whose memory it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.arrays import spans
from coterie.backend import host
from coterie.block import Private
from coterie.engines.store import PrivateStore

Array = npt.NDArray[Any]

SIZES = np.array([2, 1, 4, 3, 1, 2])
N = len(SIZES)
STARTS = np.cumsum(SIZES) - SIZES


def value_of(clients: Array, time: int) -> Private:
    """Private state that says whose it is, of which row, and when it was made."""
    rows = spans(SIZES[clients], STARTS[clients])
    return Private(
        {"h": np.stack([rows + 0.5, np.full(len(rows), time)], axis=1)},
        {"h": np.asarray(clients) * 10 + time, "flag": np.asarray(clients) % 2 == 0},
    )


def arrays_of(private: Private) -> dict[str, list[Any]]:
    return {
        **{f"rows {name}": host(a).tolist() for name, a in private.rows.items()},
        **{f"clients {name}": host(a).tolist() for name, a in private.clients.items()},
    }


@pytest.fixture(params=["memory", "files"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "private" if request.param == "files" else None


def positions(*clients: int) -> Array:
    return np.array(clients, dtype=np.int64)


COHORTS = st.lists(st.sets(st.integers(0, N - 1), min_size=1).map(sorted), min_size=1, max_size=8)


def follow(store: PrivateStore, cohorts: list[list[int]], last: dict[int, int], at: int) -> int:
    """Join and write as engines do; `last` keeps when each client wrote."""
    for cohort in cohorts:
        at += 1
        clients = np.array(cohort)
        new = clients[~store.joined(clients)]
        if len(new):
            store.add(new, value_of(new, 0))
        before = store.read(clients)
        for client in cohort:
            last.setdefault(client, 0)
        check(before, cohort, last)
        store.write(clients, value_of(clients, at))
        last.update(dict.fromkeys(cohort, at))
    return at


def check(private: Private, cohort: list[int], last: dict[int, int]) -> None:
    h, mine = host(private.rows["h"]), host(private.clients["h"])
    rows = spans(SIZES[cohort], STARTS[cohort])
    assert h[:, 0].tolist() == (rows + 0.5).tolist()
    assert h[:, 1].tolist() == np.repeat([last[c] for c in cohort], SIZES[cohort]).tolist()
    assert mine.tolist() == [10 * c + last[c] for c in cohort]
    assert host(private.clients["flag"]).tolist() == [c % 2 == 0 for c in cohort]


@given(cohorts=COHORTS)
def test_clients_get_back_what_they_left_whoever_came_between(cohorts: list[list[int]]) -> None:
    store, last = PrivateStore(SIZES), dict[int, int]()
    follow(store, cohorts, last, 0)
    joined = sorted(last)
    check(store.read(np.array(joined)), joined, last)
    check(store.read(np.array(joined[::-1])), joined[::-1], last)
    assert store.joined(np.arange(N)).tolist() == [c in last for c in range(N)]


@given(before=COHORTS, after=COHORTS)
def test_a_snapshot_is_where_it_was_whatever_came_after(
    before: list[list[int]], after: list[list[int]]
) -> None:
    store, last = PrivateStore(SIZES), dict[int, int]()
    at = follow(store, before, last, 0)
    snapshot, then = store.snapshot(), arrays_of(store.everyone())
    frozen = {name: a.tobytes() for name, a in snapshot.items()}
    follow(store, after, dict(last), at)
    assert {name: a.tobytes() for name, a in snapshot.items()} == frozen
    for restored in (store, PrivateStore(SIZES)):
        restored.restore(snapshot, lambda a: a)
        assert arrays_of(restored.everyone()) == then
        follow(restored, after, dict(last), at)
    assert {name: a.tobytes() for name, a in snapshot.items()} == frozen


def test_files_hold_what_memory_holds(tmp_path: Path) -> None:
    in_memory, in_files = PrivateStore(SIZES), PrivateStore(SIZES, tmp_path / "private")
    cohorts = [[1, 4], [0, 1, 4], [4], list(range(N)), list(range(N)), [2, 5], list(range(N))]
    for store in (in_memory, in_files):
        follow(store, cohorts, {}, 0)
    assert arrays_of(in_files.everyone()) == arrays_of(in_memory.everyone())
    there = list((tmp_path / "private").iterdir())
    assert len(there) == 3  # one for each array; those of before are gone
    snapshot = in_files.snapshot()
    in_files.restore(snapshot, lambda a: a)  # from its own files
    assert arrays_of(in_files.everyone()) == arrays_of(in_memory.everyone())
    follow(in_files, cohorts, dict.fromkeys(range(N), 7), 7)


def test_files_are_read_from_disk_where_everyone_joined_at_once(tmp_path: Path) -> None:
    store = PrivateStore(SIZES, tmp_path)
    store.add(np.arange(N), value_of(np.arange(N), 0))
    for time in (1, 2):
        assert isinstance(store.read(np.arange(N)).rows["h"], np.memmap)
        store.write(np.arange(N), value_of(np.arange(N), time))


def test_rows_and_clients_of_one_name_are_two_things(folder: Path | None) -> None:
    store = PrivateStore(np.ones(3, dtype=np.int64), folder)  # as many rows as clients
    store.add(np.arange(3), Private({"h": np.arange(3.0)}, {"h": np.arange(3.0) + 10}))
    private = store.everyone()
    assert private.rows["h"].tolist() == [0, 1, 2]
    assert private.clients["h"].tolist() == [10, 11, 12]


def test_those_who_never_joined_have_zeros_in_the_order_of_the_roster(folder: Path | None) -> None:
    store = PrivateStore(SIZES, folder)
    assert arrays_of(store.everyone()) == {}
    for client in (3, 1):
        store.add(positions(client), value_of(positions(client), 2))
    private = store.everyone()
    assert private.clients["h"].tolist() == [0, 12, 0, 32, 0, 0]
    assert private.rows["h"][:, 1].tolist() == np.repeat([0, 2, 0, 2, 0, 0], SIZES).tolist()
    assert private.rows["h"][:, 0].tolist() == [0, 0, 2.5, 0, 0, 0, 0, 7.5, 8.5, 9.5, 0, 0, 0]


def test_an_empty_snapshot_is_nobody(folder: Path | None) -> None:
    store = PrivateStore(SIZES, folder)
    fresh = store.snapshot()
    for empty in (fresh, {}):
        follow(store, [[1, 2], [2, 5]], {}, 0)
        store.restore(empty, lambda a: a)
        assert not store.joined(np.arange(N)).any()
        assert arrays_of(store.everyone()) == {}
        follow(store, [[5, 3], [3], [0, 3]], {}, 0)
        store.restore(empty, lambda a: a)


def test_joining_one_by_one_does_not_copy_all_each_time(tmp_path: Path) -> None:
    store = PrivateStore(np.ones(64, dtype=np.int64), tmp_path)
    for client in range(64):
        store.add(positions(client), Private({"h": np.full((1, 2), client)}, {}))
    (path,) = tmp_path.iterdir()
    made = int(path.stem.removeprefix("h-"))
    assert made <= 8
    assert store.everyone().rows["h"][:, 0].tolist() == list(range(64))


# -- whose memory it is ---------------------------------------------------------------------------

EVERYONE = np.arange(N)


def test_what_newcomers_bring_is_copied(folder: Path | None) -> None:
    store = PrivateStore(SIZES, folder)
    theirs = value_of(EVERYONE, 1)
    before = arrays_of(theirs)
    store.add(EVERYONE, theirs)
    store.write(positions(1, 2), value_of(positions(1, 2), 9))
    assert arrays_of(theirs) == before


def test_what_everyone_returned_is_not_written_into(folder: Path | None) -> None:
    store = PrivateStore(SIZES, folder)
    store.add(EVERYONE, value_of(EVERYONE, 0))
    theirs = value_of(EVERYONE, 1)  # may be the caller's, or lie in a reply or in a state
    before = arrays_of(theirs)
    store.write(EVERYONE, theirs)
    store.write(positions(1, 2), value_of(positions(1, 2), 9))
    assert arrays_of(theirs) == before
    assert store.everyone().clients["h"].tolist() == [1, 19, 29, 31, 41, 51]


def test_what_was_read_stays_as_it_was_when_others_write(folder: Path | None) -> None:
    store = PrivateStore(SIZES, folder)
    store.add(EVERYONE, value_of(EVERYONE, 0))
    seen = [store.read(EVERYONE)]
    store.write(EVERYONE, value_of(EVERYONE, 1))
    seen.append(store.read(EVERYONE))
    store.write(EVERYONE, value_of(EVERYONE, 2))
    seen.append(store.read(positions(1, 2)))
    store.write(positions(1, 2), value_of(positions(1, 2), 3))
    assert [arrays_of(private) for private in seen] == [
        arrays_of(value_of(EVERYONE, 0)),
        arrays_of(value_of(EVERYONE, 1)),
        arrays_of(value_of(positions(1, 2), 2)),
    ]


def test_read_only_arrays_are_kept_and_then_copied() -> None:
    store = PrivateStore(SIZES)
    flat = Private({}, {"h": np.broadcast_to(np.float64(7), (N,))})
    store.add(EVERYONE, flat)
    store.write(EVERYONE, flat)
    store.write(positions(2), Private({}, {"h": np.array([1.0])}))
    assert store.everyone().clients["h"].tolist() == [7, 7, 1, 7, 7, 7]


def test_reading_everyone_is_free_and_so_is_writing() -> None:
    store = PrivateStore(SIZES)
    store.add(EVERYONE, value_of(EVERYONE, 0))
    theirs = value_of(EVERYONE, 1)
    store.write(EVERYONE, theirs)
    assert np.shares_memory(store.read(EVERYONE).rows["h"], theirs.rows["h"])


# -- torch ----------------------------------------------------------------------------------------


def tensors(clients: Array, time: int) -> Private:
    """As on an accelerator: rows there, numbers of clients here and there."""
    plain = value_of(clients, time)
    return Private(
        {"h": torch.from_numpy(plain.rows["h"])},
        {"h": plain.clients["h"], "flag": torch.from_numpy(plain.clients["flag"])},
    )


def test_tensors_are_kept_where_they_are_and_come_back_there() -> None:
    store = PrivateStore(SIZES)
    for time, cohort in enumerate([[1, 3], [0, 1, 2], [3], list(range(N)), [2]]):
        clients = np.array(cohort)
        new = clients[~store.joined(clients)]
        if len(new):
            store.add(new, tensors(new, 0))
        store.write(clients, tensors(clients, time))
    then = arrays_of(store.everyone())
    snapshot = store.snapshot()
    assert all(isinstance(a, np.ndarray) for a in snapshot.values())
    again = PrivateStore(SIZES)
    again.restore(snapshot, torch.from_numpy)
    for private in (store.read(EVERYONE), again.read(EVERYONE)):
        assert isinstance(private.rows["h"], torch.Tensor)
        assert isinstance(private.clients["flag"], torch.Tensor)
        assert isinstance(private.clients["h"], np.ndarray)
    assert arrays_of(again.everyone()) == then


def test_tensors_that_everyone_returned_are_not_written_into() -> None:
    store = PrivateStore(SIZES)
    store.add(EVERYONE, tensors(EVERYONE, 0))
    theirs = tensors(EVERYONE, 1)
    before = arrays_of(theirs)
    store.write(EVERYONE, theirs)
    store.write(positions(2), tensors(positions(2), 5))
    assert arrays_of(theirs) == before

"""The same text on an accelerator: the same draws, and the same results to rounding."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import coterie as ct
from coterie.block import Block
from coterie.engines.simulation import Simulation
from coterie.random import Stream, client_keys
from coterie.rounds import Checkpoint, rounds

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")

SIZES = np.array([1, 400, 2, 37, 1500, 60])


def problem(dtype: str) -> tuple[Any, Any, Any]:
    """Rows around six centers, owners, and where to start."""
    rng = np.random.default_rng(0)
    centers = rng.uniform(0, 4, size=(6, 50))
    labels = rng.integers(6, size=SIZES.sum())
    rows = centers[labels] + rng.uniform(size=(len(labels), 50))
    start = centers + rng.normal(scale=0.5, size=centers.shape)
    owners = rng.permutation(np.repeat(np.arange(len(SIZES)), SIZES))
    return rows.astype(dtype), owners, start.clip(min=0)


def fitted(dtype: str, **parameters: Any) -> ct.FedMGS:
    rows, owners, start = problem(dtype)
    options = {"init": start, "random_state": 0} | parameters
    return ct.FedMGS(n_clusters=6, **options).fit(rows, clients=owners)


@pytest.mark.parametrize(("dtype", "close"), [("float64", 1e-9), ("float32", 1e-4)])
@pytest.mark.parametrize("clients_per_round", [None, 3])
def test_a_fit_is_that_of_the_cpu(dtype: str, close: float, clients_per_round: int | None) -> None:
    rounds_ = {"max_rounds": 20, "tol": 0.0, "clients_per_round": clients_per_round}
    here, there = fitted(dtype, **rounds_), fitted(dtype, device="cuda", **rounds_)
    values = [[r.objective for r in m.history_ if r.phase == "round"] for m in (here, there)]
    assert len(values[0]) == 20
    assert values[0] == pytest.approx(values[1], rel=close)
    np.testing.assert_allclose(
        here.cluster_centers_, there.cluster_centers_, rtol=close, atol=close
    )
    assert there.memberships_.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(here.labels_, there.labels_)
    rows, _, _ = problem(dtype)
    np.testing.assert_array_equal(there.predict(rows), there.labels_)


@pytest.mark.parametrize("init", ["one-shot", "sums", "random"])
def test_every_start_is_that_of_the_cpu(init: str) -> None:
    here, there = (fitted("float64", init=init, max_rounds=3, device=d) for d in ("cpu", "cuda"))
    np.testing.assert_allclose(here.cluster_centers_, there.cluster_centers_, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_draws_are_those_of_the_cpu_bit_for_bit(dtype: str) -> None:
    offsets = np.array([0, 3, 10, 5000])
    keys = client_keys(["a", "b", "c"])
    x = np.zeros((5000, 2), dtype=dtype)
    stream = Stream(7, 3, "client")
    here = stream.rows(Block(x, offsets, keys=keys), 9)
    there = stream.rows(Block(torch.from_numpy(x).cuda(), offsets, keys=keys), 9)
    np.testing.assert_array_equal(here, there.cpu().numpy())


def test_rows_that_do_not_fit_are_streamed() -> None:
    rows, owners, start = problem("float32")
    federation = ct.Federation.from_arrays(rows, owners)
    algorithm = ct.FedMGS(n_clusters=6, init=start, max_rounds=4, tol=0.0).session(federation)
    ends = []
    for x in (federation.x, torch.from_numpy(federation.x).cuda()):
        engine = Simulation(federation, device="cuda")
        engine._everyone.x = x  # as `to_device` leaves rows that are larger than the device
        state = [r.state for r in rounds(algorithm.algorithm, engine, given=algorithm.given)][-1]
        assert state is not None
        ends.append(state["centers"])
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-5)


def test_a_resumed_run_ends_alike() -> None:
    rows, owners, start = problem("float32")
    federation = ct.Federation.from_arrays(rows, owners)
    session = ct.FedMGS(n_clusters=6, init=start, max_rounds=6, tol=0.0).session(federation)
    run = partial(rounds, session.algorithm, given=session.given)
    engine = Simulation(federation, device="cuda")
    whole = [(r.state, engine.snapshot()) for r in run(engine)]
    state, kept = whole[4]
    assert state is not None
    resumed = run(Simulation(federation, device="cuda"), resume=Checkpoint(state, 5, kept))
    last = list(resumed)[-1].state
    assert last is not None
    assert whole[-1][0] is not None
    np.testing.assert_allclose(last["centers"], whole[-1][0]["centers"], rtol=1e-6)

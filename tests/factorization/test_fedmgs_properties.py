"""What holds for FedMGS whatever the rows are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fedmgs_problems import Array, objective_of, own_rounds
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import coterie as ct
from coterie.engines.simulation import Simulation
from coterie.participation import LostReplies, NoFaults, participation
from coterie.rounds import rounds
from twins.fedmgs import objective, orthogonality

often = settings(max_examples=60, deadline=None, derandomize=True)


def plain(rng: np.random.Generator, n: int, m: int) -> Array:
    return rng.uniform(0, 1, (n, m))


def around_zero(rng: np.random.Generator, n: int, m: int) -> Array:
    return rng.standard_normal((n, m))


def badly_scaled(rng: np.random.Generator, n: int, m: int) -> Array:
    return rng.uniform(0, 1, (n, m)) * 10.0 ** rng.integers(-4, 5, m)


def duplicated(rng: np.random.Generator, n: int, m: int) -> Array:
    return rng.uniform(0, 1, (max(1, n // 4), m))[rng.integers(max(1, n // 4), size=n)]


def rank_one(rng: np.random.Generator, n: int, m: int) -> Array:
    return rng.uniform(0, 1, (n, 1)) * rng.uniform(0, 1, (1, m))


def mostly_zero(rng: np.random.Generator, n: int, m: int) -> Array:
    return rng.uniform(0, 1, (n, m)) * (rng.uniform(0, 1, (n, m)) > 0.8)


KINDS = [plain, around_zero, badly_scaled, duplicated, rank_one, mostly_zero]


class Case:
    """Rows of clients, and a start inside the range of the rows."""

    def __init__(self, kind: Any, seed: int, n: int, m: int, n_clusters: int, n_clients: int):
        rng = np.random.default_rng(seed)
        self.X = kind(rng, n, m)
        self.ids = np.concatenate([np.arange(n_clients), rng.integers(n_clients, size=n)])[:n]
        low, high = self.X.min(), self.X.max()
        self.centers = rng.uniform(low, high, (n_clusters, m))
        self.memberships = rng.uniform(0, 1, (n, n_clusters))
        self.energy = float((self.X**2).sum() / n)
        self.penalty = float(10.0 ** rng.uniform(-4, 2)) * 2 / n * self.energy
        self.name = f"{kind.__name__} {seed=} {n=} {m=} {n_clusters=} {n_clients=}"

    def __repr__(self) -> str:
        return self.name

    def fit(self, n_rounds: int, order: Array | None = None, **parameters: Any) -> ct.FedMGS:
        rows = np.arange(len(self.X)) if order is None else order
        defaults: dict[str, Any] = {
            "init": (self.centers, self.memberships[rows]),
            "penalty": self.penalty,
            "penalty_growth": 1.0,
            "membership_steps": 5,
            "center_steps": 7,
            "max_rounds": n_rounds,
            "tol": 0.0,
            "random_state": 0,
        }
        model = ct.FedMGS(len(self.centers), **(defaults | parameters))
        return model.fit(self.X[rows], clients=self.ids[rows])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n = draw(st.integers(1, 30))
    return Case(
        draw(st.sampled_from(KINDS)),
        draw(st.integers(0, 10**6)),
        n,
        draw(st.integers(1, 7)),
        draw(st.one_of(st.integers(1, n), st.sampled_from([1, n]))),
        draw(st.integers(1, n)),
    )


# -- the objective ----------------------------------------------------------------------------


@often
@given(case=cases(), some=st.booleans())
def test_at_a_fixed_penalty_no_round_makes_the_objective_worse(case: Case, some: bool) -> None:
    model = case.fit(15, clients_per_round=0.4 if some else None)
    values = [objective_of(r) for r in model.history_ if r.phase in ("sums", "round")]
    assert len(values) == 16
    rounding = 1e-10 * max(values[0], case.energy)
    assert np.all(np.diff(values) <= rounding)


@often
@given(case=cases(), some=st.booleans())
def test_the_servers_objective_is_that_of_the_rows(case: Case, some: bool) -> None:
    ridge = 0.1 * case.penalty
    model = case.fit(5, ridge=ridge, clients_per_round=0.4 if some else None)
    expected = objective(
        [case.X], model.cluster_centers_, [model.memberships_], case.penalty, ridge
    )
    assert model.objective_ == pytest.approx(expected, rel=1e-9, abs=1e-9 * case.energy)
    assert model.objective_ == objective_of(own_rounds(model.history_)[-1])


@often
@given(case=cases())
def test_the_servers_orthogonality_is_that_of_the_memberships(case: Case) -> None:
    """Also at the end of a run, when clusters are hard and some have lost all their rows.

    From its sums the server cannot tell a cluster of next to nothing from an empty one.
    """
    model = ct.FedMGS(len(case.centers), n_init=1, random_state=0, max_rounds=60)
    model.fit(case.X, clients=case.ids)
    told = own_rounds(model.history_)[-1].metrics["orthogonality"]
    assert 0 <= told <= 1
    squares = (model.memberships_**2).sum(0)
    known = model.memberships_ * (squares > 1e-12 * squares.max())
    assert told == pytest.approx(orthogonality([known]), abs=1e-6)


# -- symmetries -------------------------------------------------------------------------------


@often
@given(case=cases(), seed=st.integers(0, 1000))
def test_the_order_of_rows_and_of_clients_does_not_matter(case: Case, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(case.X))
    one, other = case.fit(8), case.fit(8, order)
    scale = float(np.abs(case.X).max(initial=1e-300))
    np.testing.assert_allclose(
        other.cluster_centers_, one.cluster_centers_, rtol=1e-7, atol=1e-7 * scale
    )
    largest = one.memberships_.max(initial=1e-300)
    np.testing.assert_allclose(
        other.memberships_, one.memberships_[order], rtol=1e-7, atol=1e-7 * largest
    )


@often
@given(case=cases(), power=st.integers(-120, 120), init=st.sampled_from(["one-shot", "sums"]))
def test_the_unit_of_measurement_does_not_matter(case: Case, power: int, init: str) -> None:
    """A power of two is exact in floating point, so the labels are the same, not nearly so."""
    if init == "one-shot":
        case.ids //= 2
        if np.bincount(case.ids).max() < 2:
            return
    model = ct.FedMGS(len(case.centers), init=init, random_state=1, max_rounds=20)
    one = model.fit(case.X, clients=case.ids)
    labels, centers = one.labels_, one.cluster_centers_
    other = model.fit(case.X * 2.0**power, clients=case.ids)
    np.testing.assert_array_equal(other.labels_, labels)
    np.testing.assert_allclose(other.cluster_centers_ / 2.0**power, centers, rtol=1e-9, atol=0)


# -- rows wherever they lie -------------------------------------------------------------------


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    """Torch's threads wait busily for each other, which takes ages where tests run in parallel."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def forms(X: Array, folder: Path) -> Iterator[tuple[str, Any]]:
    yield "CSR", sparse.csr_array(X)
    yield "CSC", sparse.csc_matrix(X)
    yield "Fortran", np.asfortranarray(X)
    yield "torch", torch.from_numpy(X)
    np.save(folder / "rows.npy", X)
    yield "memmap", np.load(folder / "rows.npy", mmap_mode="r")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("ordered", [True, False], ids=["grouped", "gathered"])
@pytest.mark.parametrize("init", ["one-shot", "sums", "random"])
def test_the_kind_of_array_does_not_matter(
    dtype: str, ordered: bool, init: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    X, _ = ct.datasets.make_onmf(240, 12, 4, snr_db=10, random_state=0)
    X = (X * (rng.uniform(size=X.shape) > 0.3)).astype(dtype)
    ids = rng.integers(6, size=len(X))
    ids = np.sort(ids) if ordered else ids
    parameters: dict[str, Any] = {"init": init, "random_state": 3, "max_rounds": 15}
    expected = ct.FedMGS(4, **parameters).fit(X, clients=ids)
    precision = 1e-9 if dtype == "float64" else 2e-3
    close: dict[str, Any] = {"rtol": precision, "atol": precision}
    for name, rows in forms(X, tmp_path):
        model = ct.FedMGS(4, **parameters).fit(rows, clients=ids)
        np.testing.assert_allclose(
            model.cluster_centers_, expected.cluster_centers_, **close, err_msg=name
        )
        np.testing.assert_allclose(model.memberships_, expected.memberships_, **close)
        np.testing.assert_array_equal(model.labels_, expected.labels_, err_msg=name)
        np.testing.assert_array_equal(model.predict(rows), expected.labels_, err_msg=name)
        np.testing.assert_allclose(model.transform(rows), expected.transform(X), **close)
        assert model.memberships_.dtype == model.transform(rows).dtype == np.dtype(dtype)


def test_torch_on_the_cpu_by_device_is_the_same() -> None:
    X, _ = ct.datasets.make_onmf(120, 8, 3, random_state=0)
    on_numpy = ct.FedMGS(3, random_state=0).fit(X, clients=np.arange(120) % 7)
    on_torch = ct.FedMGS(3, random_state=0, device="cpu:0").fit(X, clients=np.arange(120) % 7)
    np.testing.assert_allclose(on_torch.memberships_, on_numpy.memberships_, atol=1e-9)
    np.testing.assert_array_equal(on_torch.labels_, on_numpy.labels_)
    np.testing.assert_array_equal(on_torch.predict(X), on_numpy.labels_)
    assert isinstance(on_torch.memberships_, np.ndarray)


# -- long runs --------------------------------------------------------------------------------


@pytest.mark.parametrize("clients_per_round", [None, 5])
def test_float32_follows_float64_for_200_rounds(clients_per_round: int | None) -> None:
    X, _ = ct.datasets.make_onmf(600, 30, 5, random_state=1)
    ids = ct.partition.power_law(len(X), 20, random_state=0)
    rng = np.random.default_rng(0)
    start = rng.uniform(0, 1, (5, 30)), rng.uniform(0, 1, (600, 5))
    values = {}
    for dtype in ("float32", "float64"):
        model = ct.FedMGS(
            5,
            init=start,
            dtype=dtype,
            tol=0,
            max_rounds=200,
            membership_steps=10,
            center_steps=10,
            penalty_every=20,
            clients_per_round=clients_per_round,
            random_state=0,
        ).fit(X, clients=ids)
        values[dtype] = np.array([objective_of(r) for r in own_rounds(model.history_)])
        assert model.memberships_.dtype == np.dtype(dtype)
    np.testing.assert_allclose(values["float32"], values["float64"], rtol=1e-4)


@pytest.mark.parametrize("lost", [0.0, 0.3], ids=["all arrive", "a third is lost"])
@pytest.mark.parametrize("clients_per_round", [None, 6])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_servers_sums_do_not_drift(
    dtype: str, clients_per_round: int | None, lost: float
) -> None:
    X, _ = ct.datasets.make_onmf(300, 12, 4, random_state=1)
    federation = ct.Federation.from_arrays(
        X.astype(dtype), clients=ct.partition.power_law(300, 15, random_state=0)
    )
    session = ct.FedMGS(4, init="sums", n_init=1, tol=0, max_rounds=200).session(federation)
    engine = Simulation(federation)
    for record in rounds(
        session.algorithm,
        engine,
        participation(clients_per_round, "uniform", federation.n_clients),
        seed=1,
        faults=LostReplies(lost) if lost else NoFaults(),
    ):
        state = record.state
    assert state is not None
    private = engine.private()
    H = np.asarray(private.rows["memberships"])[:, 0].astype(np.float64)
    rows = federation.X.astype(np.float64)
    precision = 1e-9 if dtype == "float64" else 1e-4
    gram, cross = H.T @ H, H.T @ rows
    np.testing.assert_allclose(state["gram"][0], gram, atol=precision * gram.max())
    np.testing.assert_allclose(state["cross"][0], cross, atol=precision * cross.max())
    assert float(state["energy"]) == pytest.approx(float((rows**2).sum()), rel=precision)
    assert np.all(private.clients["known"] == 1)

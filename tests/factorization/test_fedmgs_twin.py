"""FedMGS against an independent twin that was written from the paper."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from fedmgs_problems import (
    HIGH,
    LOW,
    NOT_TINY,
    RAGGED,
    SEED,
    SETTINGS,
    Array,
    Problem,
    check_equal,
    cohorts_of,
    fit,
    objective_of,
    own_rounds,
    problem,
    twin,
)

import coterie as ct
from coterie.engines.simulation import Simulation
from coterie.factorization.fedmgs import FedMGSAlgorithm
from coterie.participation import participation
from coterie.rounds import rounds
from twins.fedmgs import TwinRound, centralised, nearest_ray, objective

ROUNDS = pytest.mark.parametrize("n_rounds", [1, 2, 20])


def one_cluster() -> Problem:
    return problem(n_clusters=1)


def duplicated_rows() -> Problem:
    p = problem()
    return replace(p, clients=[np.repeat(rows[:1], len(rows), axis=0) for rows in p.clients])


def with_zero_rows() -> Problem:
    p = problem()
    clients = [rows.copy() for rows in p.clients]
    for rows in clients:
        rows[::3] = 0
    return replace(p, clients=clients)


def rank_one() -> Problem:
    p = problem()
    return replace(p, clients=[rows[:, :1] * p.centers[0] for rows in p.clients])


PROBLEMS = pytest.mark.parametrize(
    "p",
    [
        pytest.param(problem(), id="ragged, with clients of one row"),
        pytest.param(problem([1] * 8), id="one row a client"),
        pytest.param(problem([30]), id="one client"),
        pytest.param(one_cluster(), id="one cluster"),
        pytest.param(problem([3, 2], n_clusters=5), id="a cluster a row"),
        pytest.param(problem(n_features=1), id="one feature"),
        pytest.param(duplicated_rows(), id="duplicated rows"),
        pytest.param(with_zero_rows(), id="zero rows"),
        pytest.param(rank_one(), id="rank one"),
    ],
)
SCHEDULES = pytest.mark.parametrize(
    "schedule",
    [
        pytest.param({}, id="fixed penalty"),
        pytest.param({"penalty": 0.0, "ridge": 0.0}, id="no penalty, no ridge"),
        pytest.param({"ridge": 0.5}, id="large ridge"),
        pytest.param({"penalty_growth": 1.5, "penalty_every": 3}, id="every 3 rounds"),
        pytest.param({"penalty_growth": 1.5, "penalty_tol": 0.05}, id="by relative change"),
        pytest.param(
            {"penalty_growth": 2.0, "penalty_every": 4, "penalty_tol": 0.02, "penalty_max": 0.1},
            id="every 4 rounds or by change, up to 0.1",
        ),
    ],
)


# -- all clients in every round ---------------------------------------------------------------


@ROUNDS
@PROBLEMS
def test_a_run_is_the_twins(p: Problem, n_rounds: int) -> None:
    check_equal(p, fit(p, n_rounds, penalty_every=None), twin(p, n_rounds))


@ROUNDS
@SCHEDULES
def test_the_penalty_follows_its_schedule(schedule: dict[str, Any], n_rounds: int) -> None:
    p = problem()
    model = fit(p, n_rounds, **({"penalty_every": None, "penalty_max": 1e9} | schedule))
    check_equal(p, model, twin(p, n_rounds, **schedule))


def test_both_reasons_to_grow_occur_in_the_schedules_above() -> None:
    steady = fit(problem(), 20, penalty_growth=1.5, penalty_every=None, penalty_tol=0.05)
    penalties = [record.metrics["penalty"] for record in own_rounds(steady.history_)]
    assert len(set(penalties)) > 2
    assert len(set(penalties)) < 20


def test_bounds_of_the_data_are_its_extremes() -> None:
    p = problem()
    inside = replace(p, centers=np.clip(p.centers, p.X.min(), p.X.max()))
    model = fit(inside, 20, bounds="data", penalty_every=None)
    check_equal(inside, model, twin(inside, 20, low=p.X.min(), high=p.X.max()))
    assert model.cluster_centers_.min() >= p.X.min()
    assert model.cluster_centers_.max() <= p.X.max()


def test_tight_bounds_hold_and_bind() -> None:
    p = problem()
    inside = replace(p, centers=np.clip(p.centers, 0.2, 0.6))
    model = fit(inside, 20, bounds=(0.2, 0.6), penalty_every=None)
    check_equal(inside, model, twin(inside, 20, low=0.2, high=0.6))
    assert {model.cluster_centers_.min(), model.cluster_centers_.max()} == {0.2, 0.6}


def test_given_centers_are_first_put_into_their_bounds() -> None:
    p = problem()
    wild = replace(p, centers=p.centers * 40 - 20)
    tame = replace(p, centers=np.clip(wild.centers, LOW, HIGH))
    check_equal(tame, fit(wild, 2, penalty_every=None), twin(tame, 2))


@pytest.mark.parametrize("n_rounds", [1, 2, 20])
def test_printed_steps_are_the_twins(n_rounds: int) -> None:
    p = problem(NOT_TINY)
    model = fit(p, n_rounds, steps="as-printed", penalty_every=None)
    check_equal(p, model, twin(p, n_rounds, steps="as-printed"))


def test_printed_steps_are_the_twins_where_one_cohort_mixes_sizes() -> None:
    p = problem(NOT_TINY)
    cohorts = cohorts_of(p, 12, 2)
    model = fit(p, 12, steps="as-printed", penalty_every=None, clients_per_round=2)
    check_equal(p, model, twin(p, 12, cohorts, steps="as-printed"), cohorts)


def test_diminishing_steps_are_the_twins_round_by_round() -> None:
    p = problem()
    model = fit(
        p,
        2,
        membership_steps=ct.Diminishing(7),
        center_steps=ct.Diminishing(4),
        penalty_every=None,
    )
    first = twin(p, 1, membership_steps=8, center_steps=5)[-1]
    later = replace(p, centers=first.centers, memberships=first.memberships)
    last = twin(later, 1, membership_steps=4, center_steps=3)[-1]
    np.testing.assert_allclose(model.cluster_centers_, last.centers, rtol=1e-9)
    np.testing.assert_allclose(model.memberships_, np.concatenate(last.memberships), atol=1e-9)


# -- some clients a round ---------------------------------------------------------------------


@ROUNDS
@pytest.mark.parametrize("clients_per_round", [1, 2, 5, 0.34, 0.5])
def test_cohorts_take_turns_as_drawn(clients_per_round: int | float, n_rounds: int) -> None:
    p = problem()
    cohorts = cohorts_of(p, n_rounds, clients_per_round)
    model = fit(p, n_rounds, clients_per_round=clients_per_round, penalty_every=None)
    check_equal(p, model, twin(p, n_rounds, cohorts), cohorts)


@SCHEDULES
def test_the_penalty_follows_its_schedule_with_cohorts(schedule: dict[str, Any]) -> None:
    p = problem()
    cohorts = cohorts_of(p, 20, 3)
    parameters = {"penalty_every": None, "penalty_max": 1e9, "clients_per_round": 3} | schedule
    check_equal(p, fit(p, 20, **parameters), twin(p, 20, cohorts, **schedule), cohorts)


def test_a_fraction_of_one_is_everyone_and_the_count_one_is_one_client() -> None:
    p = problem()
    everyone, alone = (
        [record.replied for record in own_rounds(fit(p, 3, clients_per_round=c).history_)]
        for c in (1.0, 1)
    )
    assert everyone == [len(RAGGED)] * 3
    assert alone == [1] * 3


def test_clients_drawn_by_size_come_without_weights_in_the_sums() -> None:
    """A client drawn twice still has one part in the sums that the server keeps."""
    p = problem()
    spec = p.federation.spec()
    draws = participation(4, "by-size", spec.n_clients)
    cohorts = [draws.draw(spec, r, 0, SEED).clients.tolist() for r in range(1, 13)]
    assert any(len(cohort) < 4 for cohort in cohorts)
    model = fit(p, 12, clients_per_round=4, participation="by-size", penalty_every=None)
    check_equal(p, model, twin(p, 12, cohorts), cohorts)


# -- the algorithm on the engine, without an estimator ----------------------------------------


@pytest.mark.parametrize("clients_per_round", [None, 3])
def test_every_round_of_the_loop_is_the_twins(clients_per_round: int | None) -> None:
    p = problem()
    n_rounds = 20
    algorithm = FedMGSAlgorithm(
        n_clusters=3,
        n_init=1,
        offset=None,
        bounds=(LOW, HIGH),
        tol=0.0,
        max_rounds=n_rounds,
        penalty_growth=1.5,
        penalty_every=4,
        penalty_max=0.05,
        **SETTINGS,
    )
    centers, memberships = p.start
    federation = p.federation.prepared(extra={"memberships": memberships})
    draws = participation(clients_per_round, "uniform", federation.n_clients)
    records = [
        record
        for record in rounds(
            algorithm, Simulation(federation), draws, seed=SEED, given={"centers": centers}
        )
        if record.phase in ("sums", "round")
    ]
    cohorts = cohorts_of(p, n_rounds, clients_per_round or 1.0)
    expected = twin(p, n_rounds, cohorts, penalty_growth=1.5, penalty_every=4, penalty_max=0.05)
    n = len(p.X)
    for record, found in zip(records, expected, strict=True):
        state = record.state
        assert state is not None
        assert found.G1 is not None
        assert found.G2 is not None
        np.testing.assert_allclose(state["centers"][0], found.centers, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(state["gram"][0], n / 2 * found.G1, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(state["cross"][0], n / 2 * found.G2.T, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(objective_of(record), found.objective, rtol=1e-9)


# -- no federation at all ---------------------------------------------------------------------


def pooled_twin(p: Problem, n_rounds: int, **settings: Any) -> list[TwinRound]:
    centers, memberships = p.start
    return centralised(
        p.X, centers, memberships, rounds=n_rounds, low=LOW, high=HIGH, **(SETTINGS | settings)
    )


@pytest.mark.parametrize("sizes", [[44], RAGGED, [1] * 44], ids=["1", "6", "44 clients"])
def test_with_everyone_it_is_the_centralised_method(sizes: list[int]) -> None:
    pooled = problem([44])
    p = replace(pooled, clients=np.split(pooled.X, np.cumsum(sizes)[:-1]))
    model = fit(p, 20, penalty_growth=1.3, penalty_every=2, penalty_max=1e9)
    expected = pooled_twin(p, 20, penalty_growth=1.3, penalty_every=2)
    check_equal(p, model, expected, rtol=1e-10, atol=1e-10)


def test_printed_steps_of_one_client_are_the_centralised_ones() -> None:
    p = problem([40])
    expected = pooled_twin(p, 20, steps="as-printed")
    check_equal(p, fit(p, 20, steps="as-printed", penalty_every=None), expected, rtol=1e-10)


def test_the_contract_holds_and_the_centralised_twin_agrees() -> None:
    centers = np.random.default_rng(0).uniform(0, 4, (3, 6))

    def expected(X: Array) -> dict[str, Array]:
        labels = nearest_ray(X, centers)
        memberships = 0.5 * np.eye(3)[labels] + 0.5 / 3
        n_rounds = 6  # of eight exchanges, after "measure" and "sums"
        history = centralised(
            X, centers, memberships, rounds=n_rounds, low=-1.0, high=9.0, **SETTINGS
        )
        H = history[-1].memberships[0]
        return {
            "centers": history[-1].centers[None],
            "gram": (H.T @ H)[None],
            "cross": (H.T @ X)[None],
            "value": np.array([history[-1].objective]),
        }

    model = ct.FedMGS(3, init=centers, bounds=(-1, 9), tol=0.0, penalty_growth=1.0, **SETTINGS)
    ct.check_algorithm(model, centralised=expected)


@pytest.mark.parametrize("init", ["one-shot", "sums", "random"])
@pytest.mark.parametrize("offset", [None, 2.0])
def test_the_contract_holds_from_every_start(init: str, offset: float | None) -> None:
    ct.check_algorithm(
        ct.FedMGS(3, init=init, n_init=2, offset=offset, max_rounds=3), processes=False
    )


# -- when it stops ----------------------------------------------------------------------------


def test_it_stops_when_all_rows_were_settled_three_times_over() -> None:
    p = problem()
    model = fit(p, 500, tol=0.01, penalty=0.2, penalty_growth=1.5, penalty_every=2)
    records = own_rounds(model.history_)
    calm = [max(r.metrics["changed"], r.metrics["undecided"]) <= 0.01 for r in records]
    assert len(records) < 500
    assert calm[-4:] == [False, True, True, True]
    assert not any(all(calm[i : i + 3]) for i in range(len(calm) - 3))


def test_rows_that_change_their_one_cluster_are_not_settled() -> None:
    """All begin in the wrong one of two clusters at right angles, and are right after a round."""
    labels = np.arange(20) % 2
    right = np.eye(2)[labels]
    p = Problem([right], np.eye(2), [1 - right])
    model = fit(p, 50, tol=0.01, penalty=0.0, ridge=0.0)
    records = own_rounds(model.history_)
    assert [record.metrics["changed"] for record in records] == [1, 0, 0, 0]
    assert [record.metrics["undecided"] for record in records] == [0, 0, 0, 0]
    np.testing.assert_array_equal(model.labels_, labels)


def test_cohorts_must_have_settled_rows_in_a_row_that_make_all_rows_three_times() -> None:
    p = problem()
    model = fit(p, 900, tol=0.01, penalty=0.2, clients_per_round=2, penalty_growth=1.5)
    records = own_rounds(model.history_)
    assert len(records) < 900
    cohorts = cohorts_of(p, len(records), 2)
    settled = 0
    for record, cohort in zip(records, cohorts, strict=True):
        assert settled < 3 * len(p.X)  # or it would have stopped
        calm = max(record.metrics["changed"], record.metrics["undecided"]) <= 0.01
        settled = settled + sum(len(p.clients[c]) for c in cohort) if calm else 0
    assert settled >= 3 * len(p.X)


def test_it_stops_at_the_first_small_relative_change_of_the_objective() -> None:
    p = problem()
    model = fit(p, 500, objective_tol=5e-3)
    changes = [record.metrics["relative_change"] for record in own_rounds(model.history_)]
    assert 1 < len(changes) < 500
    assert changes[-1] < 5e-3
    assert min(changes[:-1]) >= 5e-3


def test_the_relative_change_is_told_at_one_penalty() -> None:
    """A penalty that grows moves the objective; that is not progress."""
    p = problem()
    model = fit(p, 10, penalty_growth=3.0, penalty_every=1, penalty_max=1e9)
    history = twin(p, 10, penalty_growth=3.0, penalty_every=1)
    for record, (before, after) in zip(own_rounds(model.history_), pairwise(history), strict=True):
        value = objective(
            p.clients, before.centers, before.memberships, after.penalty, SETTINGS["ridge"]
        )
        expected = abs(after.objective - value) / value
        assert record.metrics["relative_change"] == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("n_rounds", [1, 7])
def test_with_no_tolerance_it_runs_all_rounds(n_rounds: int) -> None:
    still = problem([4, 4], n_clusters=1)  # settled from the first round on
    model = fit(still, n_rounds, tol=0.0, objective_tol=None)
    assert model.n_rounds_ == model.n_iter_ == n_rounds
    assert fit(still, 50, tol=0.01).n_rounds_ == 3

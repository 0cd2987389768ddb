"""Checks of the twins themselves. Nothing here needs the library."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import nnls

from twins.fedmgs import (
    TwinRound,
    centralised,
    count_changed,
    count_undecided,
    fedmgs,
    gradient_centers_from_sums,
    local_gradient_centers,
    local_gradient_memberships,
    local_objective,
    nearest_ray,
    next_penalty,
    objective,
    orthogonality,
    ray_errors,
)

Array = npt.NDArray[np.float64]
Steps = Literal["scaled", "as-printed"]

SIZES = (7, 12, 3, 20)  # uneven on purpose
M, K = 6, 3
SETTINGS: dict[str, Any] = {
    "membership_steps": 4,
    "center_steps": 5,
    "penalty": 0.02,
    "ridge": 0.003,
    "low": 0.0,
    "high": 1.5,
}


def problem(seed: int) -> tuple[list[Array], Array, list[Array]]:
    """Clients (N_p by M), centers (K by M) and memberships (N_p by K), with noise."""
    rng = np.random.default_rng(seed)
    truth = rng.uniform(0, 1, (K, M))
    clients: list[Array] = []
    memberships: list[Array] = []
    for n_p in SIZES:
        labels = rng.integers(0, K, n_p)
        lengths = rng.uniform(0.5, 1.5, (n_p, 1))
        clients.append(lengths * truth[labels] + 0.1 * rng.standard_normal((n_p, M)))
        memberships.append(rng.uniform(0, 1, (n_p, K)))
    return clients, rng.uniform(0, 1, (K, M)), memberships


def numerical_gradient(f: Callable[[Array], float], at: Array, step: float = 1e-3) -> Array:
    """Central differences, one entry at a time (exact but for rounding: f is quadratic)."""
    gradient = np.zeros(at.shape)
    for index in np.ndindex(*at.shape):
        up, down = at.copy(), at.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (f(up) - f(down)) / (2 * step)
    return gradient


def assert_same(ours: list[TwinRound], theirs: list[TwinRound], tol: float) -> None:
    """The same rounds; the memberships of all clients end to end."""
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.centers, b.centers, rtol=tol, atol=tol)
        np.testing.assert_allclose(
            np.concatenate(a.memberships), np.concatenate(b.memberships), rtol=tol, atol=tol
        )
        assert a.objective == pytest.approx(b.objective, rel=tol)
        assert a.penalty == b.penalty
        assert a.orthogonality == pytest.approx(b.orthogonality, rel=tol, abs=tol)
        assert (a.changed, a.undecided) == (b.changed, b.undecided)


# The objective and its gradients -----------------------------------------------------------


def test_objective_is_its_matrix_formula_and_the_weighted_sum_of_the_local_ones() -> None:
    clients, centers, memberships = problem(0)
    rho, nu = 0.7, 0.3
    n = sum(SIZES)
    X, H, W = np.concatenate(clients).T, np.concatenate(memberships).T, centers.T
    by_matrices = (
        np.linalg.norm(X - W @ H) ** 2 / n
        + rho / 2 * np.trace(H.T @ (np.ones((K, K)) - np.eye(K)) @ H)
        + nu / 2 * np.linalg.norm(H) ** 2
    )
    by_clients = sum(
        rows.shape[0] / n * local_objective(rows.T, W, own.T, n, rho, nu)
        for rows, own in zip(clients, memberships, strict=True)
    )
    value = objective(clients, centers, memberships, rho, nu)
    assert value == pytest.approx(by_matrices, rel=1e-13)
    assert value == pytest.approx(by_clients, rel=1e-13)


def test_gradient_in_the_memberships_matches_differences() -> None:
    clients, centers, memberships = problem(1)
    n, W = sum(SIZES), centers.T
    for rows, own in zip(clients, memberships, strict=True):
        X_p, H_p = rows.T, own.T
        analytic = local_gradient_memberships(X_p, W, H_p, n, 0.7, 0.3)

        def f(at: Array, X_p: Array = X_p) -> float:
            return local_objective(X_p, W, at, n, 0.7, 0.3)

        np.testing.assert_allclose(analytic, numerical_gradient(f, H_p), rtol=1e-7, atol=1e-8)


def test_gradient_in_the_centers_matches_differences() -> None:
    clients, centers, memberships = problem(2)
    n, W = sum(SIZES), centers.T
    for rows, own in zip(clients, memberships, strict=True):
        X_p, H_p = rows.T, own.T
        analytic = local_gradient_centers(X_p, W, H_p)

        def f(at: Array, X_p: Array = X_p, H_p: Array = H_p) -> float:
            return local_objective(X_p, at, H_p, n, 0.7, 0.3)

        np.testing.assert_allclose(analytic, numerical_gradient(f, W), rtol=1e-7, atol=1e-8)


def test_gradient_from_the_sums_is_that_of_the_whole_objective() -> None:
    clients, centers, memberships = problem(3)
    n, W = sum(SIZES), centers.T
    [start] = fedmgs(clients, centers, memberships, rounds=0, cohorts=[], **SETTINGS)
    assert start.G1 is not None
    assert start.G2 is not None
    from_sums = gradient_centers_from_sums(W, start.G1, start.G2)

    def f(at: Array) -> float:
        return objective(clients, at.T, memberships, 0.7, 0.3)

    np.testing.assert_allclose(from_sums, numerical_gradient(f, W), rtol=1e-7, atol=1e-8)
    weighted = np.zeros(W.shape)
    for rows, own in zip(clients, memberships, strict=True):
        weighted += rows.shape[0] / n * local_gradient_centers(rows.T, W, own.T)
    np.testing.assert_allclose(from_sums, weighted, rtol=1e-12, atol=1e-13)


# Rounds ------------------------------------------------------------------------------------


def test_one_number_by_hand() -> None:
    # M = N = K = 1, x = 2, w = h = 1, no penalty, no ridge.
    settings: dict[str, Any] = {
        "rounds": 1,
        "membership_steps": 1,
        "center_steps": 1,
        "penalty": 0.0,
        "ridge": 0.0,
        "low": -9.0,
        "high": 9.0,
    }
    x, one = np.array([[2.0]]), np.array([[1.0]])
    # c = 0.51 * 2 w^2 and the gradient is 2 w (w h - x) = -2.
    h = 1 + 2 / (0.51 * 2)
    # d = 0.501 * 2 h^2 and the gradient is 2 (w h - x) h.
    w = 1 - 2 * (h - 2) * h / (0.501 * 2 * h**2)
    for last in (
        fedmgs([x], one, [one], cohorts=[[0]], **settings)[-1],
        centralised(x, one, one, **settings)[-1],
    ):
        assert last.memberships[0][0, 0] == pytest.approx(h, rel=1e-14)
        assert last.centers[0, 0] == pytest.approx(w, rel=1e-14)
        assert last.objective == pytest.approx((2 - w * h) ** 2, rel=1e-12)
        assert (last.changed, last.undecided, last.orthogonality) == (0, 0, 0.0)
    # As printed: c = w^2 / 2 and d = h^2 / 2, with the same gradients (N is 1).
    h = 1 + 2 / 0.5
    w = 1 - 2 * (h - 2) * h / (h**2 / 2)
    for last in (
        fedmgs([x], one, [one], cohorts=[[0]], steps="as-printed", **settings)[-1],
        centralised(x, one, one, steps="as-printed", **settings)[-1],
    ):
        assert last.memberships[0][0, 0] == pytest.approx(h, rel=1e-14)
        assert last.centers[0, 0] == pytest.approx(w, rel=1e-14)


@pytest.mark.parametrize("steps", ["scaled", "as-printed"])
def test_one_client_is_the_centralised_algorithm(steps: Steps) -> None:
    clients, centers, memberships = problem(4)
    rows, own = np.concatenate(clients), np.concatenate(memberships)
    growing = {"penalty_growth": 1.5, "penalty_every": 3, "penalty_max": 0.05}
    options: dict[str, Any] = {"rounds": 12, "steps": steps, **SETTINGS, **growing}
    federated = fedmgs([rows], centers, [own], cohorts=[[0]] * 12, **options)
    pooled = centralised(rows, centers, own, **options)
    assert_same(federated, pooled, 1e-12)
    np.testing.assert_array_equal(federated[0].centers, centers)
    np.testing.assert_array_equal(federated[0].memberships[0], own)


def test_full_participation_is_the_centralised_algorithm() -> None:
    # Scaled steps only: c_p as printed is not proportional to 1/N_p, so that as printed
    # every client takes another step and the two differ.
    clients, centers, memberships = problem(5)
    options: dict[str, Any] = {"rounds": 20, **SETTINGS, "penalty_growth": 1.5, "penalty_every": 4}
    everyone = [list(range(len(SIZES)))] * 20
    federated = fedmgs(clients, centers, memberships, cohorts=everyone, **options)
    pooled = centralised(np.concatenate(clients), centers, np.concatenate(memberships), **options)
    assert_same(federated, pooled, 1e-10)
    assert federated[-1].undecided < federated[0].undecided  # something happened

    options["steps"] = "as-printed"
    federated = fedmgs(clients, centers, memberships, cohorts=everyone, **options)
    pooled = centralised(np.concatenate(clients), centers, np.concatenate(memberships), **options)
    assert np.max(np.abs(federated[-1].centers - pooled[-1].centers)) > 1e-3


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize(
    ("steps", "penalty"),
    # No promise for a large penalty as printed: that c lacks the penalty's part.
    [
        ("scaled", 0.0),
        ("scaled", 0.02),
        ("scaled", 2.0),
        ("as-printed", 0.0),
        ("as-printed", 0.02),
    ],
)
def test_the_objective_does_not_increase(steps: Steps, penalty: float, partial: bool) -> None:
    clients, centers, memberships = problem(6)
    cohorts = [[s % 4, (s + 1) % 4] if partial else [0, 1, 2, 3] for s in range(15)]
    settings = {**SETTINGS, "penalty": penalty}
    history = fedmgs(
        clients, centers, memberships, rounds=15, cohorts=cohorts, steps=steps, **settings
    )
    values = [entry.objective for entry in history]
    assert values[-1] < 0.9 * values[0]
    for earlier, later in pairwise(values):
        assert later <= earlier * (1 + 1e-12)


def test_sums_and_absent_clients_in_partial_rounds() -> None:
    clients, centers, memberships = problem(7)
    n = sum(SIZES)
    cohorts = [[1, 3], [0], [3, 2], [], [2, 0, 1]]
    history = fedmgs(clients, centers, memberships, rounds=5, cohorts=cohorts, **SETTINGS)
    for s, entry in enumerate(history):
        G1, G2 = np.zeros((K, K)), np.zeros((M, K))
        for rows, own in zip(clients, entry.memberships, strict=True):
            G1 += 2 / n * own.T @ own
            G2 += 2 / n * rows.T @ own
        assert entry.G1 is not None
        assert entry.G2 is not None
        np.testing.assert_allclose(entry.G1, G1, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(entry.G2, G2, rtol=1e-13, atol=1e-13)
        if s > 0:
            for p in range(len(SIZES)):
                moved = not np.array_equal(entry.memberships[p], history[s - 1].memberships[p])
                assert moved == (p in cohorts[s - 1])
            present = [entry.memberships[p] for p in cohorts[s - 1]]
            earlier = [history[s - 1].memberships[p] for p in cohorts[s - 1]]
            assert entry.undecided == sum(count_undecided(own) for own in present)
            assert entry.changed == sum(
                int(np.sum(a.argmax(axis=1) != b.argmax(axis=1)))
                for a, b in zip(earlier, present, strict=True)
            )
    assert history[0].undecided == n
    assert sum(entry.changed for entry in history) > 0


def test_constraints_hold_and_inputs_are_left_alone() -> None:
    clients, centers, memberships = problem(8)
    copies = [a.copy() for a in (*clients, centers, *memberships)]
    settings = {**SETTINGS, "low": 0.1, "high": 0.4}
    history = fedmgs(clients, centers, memberships, rounds=4, cohorts=[[0, 2]] * 4, **settings)
    for entry in history[1:]:
        assert np.all((entry.centers >= 0.1) & (entry.centers <= 0.4))
        assert all(np.all(entry.memberships[p] >= 0) for p in (0, 2))
    assert np.any(history[-1].centers == 0.4)
    for now, copy in zip((*clients, centers, *memberships), copies, strict=True):
        np.testing.assert_array_equal(now, copy)


def test_zero_memberships_and_zero_centers_stay_without_a_division_by_zero() -> None:
    clients, _, memberships = problem(9)
    settings = {**SETTINGS, "penalty": 0.0, "ridge": 0.0}
    nothing = [np.zeros_like(own) for own in memberships]
    zero = np.zeros((K, M))
    everyone = [[0, 1, 2, 3]]
    for last in (
        fedmgs(clients, zero, nothing, rounds=1, cohorts=everyone, **settings)[-1],
        centralised(np.concatenate(clients), zero, np.concatenate(nothing), rounds=1, **settings)[
            -1
        ],
    ):
        assert not np.any(last.centers)
        assert not np.any(np.concatenate(last.memberships))
        assert last.orthogonality == 0.0


# Penalty -----------------------------------------------------------------------------------


def test_penalty_grows_after_every_so_many_rounds_up_to_the_cap() -> None:
    clients, centers, memberships = problem(10)
    settings = {**SETTINGS, "penalty": 1.0, "penalty_growth": 2.0, "penalty_max": 5.0}
    cohorts = [[0, 1]] * 8
    history = fedmgs(
        clients, centers, memberships, rounds=8, cohorts=cohorts, penalty_every=2, **settings
    )
    assert [entry.penalty for entry in history] == [1, 1, 1, 2, 2, 4, 4, 5, 5]
    for entry in history:
        again = objective(clients, entry.centers, entry.memberships, entry.penalty, 0.003)
        assert entry.objective == again


def test_penalty_grows_when_the_objective_settles_at_one_penalty() -> None:
    clients, centers, memberships = problem(11)
    everyone = [[0, 1, 2, 3]] * 30
    tol = 3e-3
    growing: dict[str, Any] = {"penalty_growth": 1.5, "penalty_tol": tol}
    history = fedmgs(
        clients, centers, memberships, rounds=30, cohorts=everyone, **SETTINGS, **growing
    )
    grown = 0
    for before, now, after in zip(history[:-2], history[1:-1], history[2:], strict=True):
        reference = objective(clients, before.centers, before.memberships, now.penalty, 0.003)
        settled = abs(now.objective - reference) / abs(reference) < tol
        assert after.penalty == (now.penalty * 1.5 if settled else now.penalty)
        grown += settled
    assert 0 < grown < 29


def test_next_penalty_grows_once_for_two_reasons_and_knows_a_zero_objective() -> None:
    options: dict[str, Any] = {"penalty_growth": 2.0, "penalty_every": 3, "penalty_max": np.inf}
    assert next_penalty(1.0, 3, 5.0, 5.0, penalty_tol=0.1, **options) == 2.0
    assert next_penalty(1.0, 4, 5.0, 5.0, penalty_tol=None, **options) == 1.0
    assert next_penalty(1.0, 4, 0.0, 0.0, penalty_tol=0.1, **options) == 2.0
    assert next_penalty(1.0, 4, 0.0, 1.0, penalty_tol=0.1, **options) == 1.0


# Counts ------------------------------------------------------------------------------------


def test_counts_by_hand() -> None:
    before = np.array([[1.0, 1.0], [0.0, 2.0], [0.0, 0.0]])
    after = np.array([[0.0, 1.0], [0.5, 1.0], [0.0, 0.0]])
    assert count_changed(before, after) == 1  # the first row was a tie, hence label 0
    assert count_undecided(before) == 1
    assert count_undecided(after) == 1
    assert orthogonality([after]) == pytest.approx(0.5 / (0.5 * np.sqrt(2)))
    assert orthogonality([before[:2], before[2:]]) == pytest.approx(1 / np.sqrt(5))
    assert orthogonality([np.ones((4, 1))]) == 0.0
    three = np.array([[1.0, 1.0, 0.0]])  # cosine 1 for one pair of three, a zero vector
    assert orthogonality([three]) == pytest.approx(np.sqrt(2 / 6))


# The nearest ray ---------------------------------------------------------------------------


def test_ray_errors_and_labels_match_nnls() -> None:
    rng = np.random.default_rng(12)
    X = rng.standard_normal((40, 4))
    centers = rng.standard_normal((5, 4))
    centers[3] = 0.0
    X[7] = 0.0
    expected = np.zeros((40, 5))
    for i in range(40):
        for k in range(5):
            _, norm = nnls(centers[k][:, None], X[i])
            expected[i, k] = norm**2
    np.testing.assert_allclose(ray_errors(X, centers), expected, rtol=1e-10, atol=1e-12)
    labels = nearest_ray(X, centers)
    for i in range(40):
        best = expected[i].min()
        lowest = next(k for k in range(5) if expected[i, k] <= best + 1e-12)
        assert labels[i] == lowest
    assert labels[7] == 0


def test_nearest_ray_ties_go_to_the_lowest_and_a_zero_center_has_the_rows_own_length() -> None:
    centers = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    X = np.array([[3.0, 1.0], [1.0, 1.0], [0.0, 2.0], [-1.0, -1.0]])
    np.testing.assert_array_equal(nearest_ray(X, centers), [1, 1, 3, 0])
    np.testing.assert_array_equal(ray_errors(X, centers)[0], [10.0, 1.0, 1.0, 9.0])

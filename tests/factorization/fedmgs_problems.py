"""Small problems for FedMGS, solved by the library and by the independent twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import coterie as ct
from coterie.participation import participation
from coterie.rounds import Round
from twins.fedmgs import TwinRound, fedmgs

Array = npt.NDArray[Any]

SEED = 5
RAGGED = (7, 1, 12, 3, 20, 1)
NOT_TINY = (9, 12, 20)  # printed steps are too long for clients of one or two rows
SETTINGS: dict[str, Any] = {
    "membership_steps": 4,
    "center_steps": 6,
    "penalty": 0.02,
    "ridge": 0.003,
}
LOW, HIGH = -0.5, 1.5


@dataclass(frozen=True)
class Problem:
    """Rows of each client, and where to start from."""

    clients: list[Array]
    centers: Array
    memberships: list[Array]

    @property
    def X(self) -> Array:  # noqa: N802
        return np.concatenate(self.clients)

    @property
    def ids(self) -> Array:
        return np.repeat(np.arange(len(self.clients)), [len(rows) for rows in self.clients])

    @property
    def start(self) -> tuple[Array, Array]:
        return self.centers, np.concatenate(self.memberships)

    @property
    def federation(self) -> ct.Federation:
        return ct.Federation.from_arrays(self.X, clients=self.ids)


def problem(
    sizes: Sequence[int] = RAGGED, *, n_clusters: int = 3, n_features: int = 6, seed: int = 0
) -> Problem:
    """Noisy multiples of a few directions, a start that has nothing to do with them."""
    rng = np.random.default_rng(seed)
    truth = rng.uniform(0, 1, (n_clusters, n_features))
    clients, memberships = [], []
    for n in sizes:
        rows = rng.uniform(0.5, 1.5, (n, 1)) * truth[rng.integers(n_clusters, size=n)]
        clients.append(rows + 0.1 * rng.standard_normal((n, n_features)))
        memberships.append(rng.uniform(0, 1, (n, n_clusters)))
    return Problem(clients, rng.uniform(0, 1, (n_clusters, n_features)), memberships)


def estimator(p: Problem, rounds: int, **parameters: Any) -> ct.FedMGS:
    """The library's estimator with the settings of the twin."""
    defaults: dict[str, Any] = {
        "init": p.start,
        "max_rounds": rounds,
        "tol": 0.0,
        "bounds": (LOW, HIGH),
        "penalty_growth": 1.0,
        "random_state": SEED,
    }
    return ct.FedMGS(len(p.centers), **(defaults | SETTINGS | parameters))


def fit(p: Problem, rounds: int, **parameters: Any) -> ct.FedMGS:
    """The library's result."""
    return estimator(p, rounds, **parameters).fit(p.X, clients=p.ids)


def twin(
    p: Problem, rounds: int, cohorts: Sequence[Sequence[int]] | None = None, **settings: Any
) -> list[TwinRound]:
    """The twin's history, the start included."""
    everyone = [list(range(len(p.clients)))] * rounds
    return fedmgs(
        p.clients,
        p.centers,
        p.memberships,
        rounds=rounds,
        cohorts=everyone if cohorts is None else cohorts,
        **({"low": LOW, "high": HIGH} | SETTINGS | settings),
    )


def cohorts_of(p: Problem, rounds: int, clients_per_round: int | float) -> list[list[int]]:
    """The cohorts that the library draws in a run seeded with SEED."""
    spec = p.federation.spec()
    draws = participation(clients_per_round, "uniform", spec.n_clients)
    return [draws.draw(spec, r, 0, SEED).clients.tolist() for r in range(1, rounds + 1)]


def objective_of(record: Round) -> float:
    """The objective that the server told."""
    assert record.objective is not None
    return record.objective


def own_rounds(history: Sequence[Round]) -> list[Round]:
    """The records of the algorithm's rounds."""
    return [record for record in history if record.phase == "round"]


def check_equal(
    p: Problem,
    model: ct.FedMGS,
    expected: Sequence[TwinRound],
    cohorts: Sequence[Sequence[int]] | None = None,
    **tolerance: float,
) -> None:
    """All that the library tells of a run is what the twin found."""
    close: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9} | tolerance
    last = expected[-1]
    np.testing.assert_allclose(model.cluster_centers_, last.centers, **close)
    np.testing.assert_allclose(model.memberships_, np.concatenate(last.memberships), **close)
    np.testing.assert_allclose(model.objective_, last.objective, **close)
    (start,) = (record for record in model.history_ if record.phase == "sums")
    np.testing.assert_allclose(objective_of(start), expected[0].objective, **close)
    records = own_rounds(model.history_)
    assert [record.round for record in records] == list(range(1, len(expected)))
    for number, (record, found) in enumerate(zip(records, expected[1:], strict=True)):
        cohort = range(len(p.clients)) if cohorts is None else cohorts[number]
        rows = sum(len(p.clients[client]) for client in cohort)
        assert record.replied == len(cohort)
        np.testing.assert_allclose(objective_of(record), found.objective, **close)
        np.testing.assert_allclose(record.metrics["penalty"], found.penalty, rtol=1e-12)
        np.testing.assert_allclose(record.metrics["orthogonality"], found.orthogonality, **close)
        assert record.metrics["changed"] * rows == pytest.approx(found.changed, abs=1e-9)
        assert record.metrics["undecided"] * rows == pytest.approx(found.undecided, abs=1e-9)

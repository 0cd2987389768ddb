"""Who takes part in a round, and whose replies are lost on the way.

A participation is a frozen dataclass whose ``draw(spec, round, attempt, seed)`` names a `Cohort`.
The draw depends on nothing else, so a resumed run meets the clients that it would have met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from coterie.errors import ParameterError
from coterie.protocol import Cohort, Spec
from coterie.random import Stream


class Participation(Protocol):
    """Draws the cohort of a round."""

    def draw(self, spec: Spec, round: int, attempt: int, seed: int) -> Cohort:  # noqa: A002
        """The cohort of this round, at this attempt."""
        ...


def _generator(seed: int, round: int, attempt: int, purpose: str) -> np.random.Generator:  # noqa: A002
    return Stream(seed, round, f"{purpose}:{attempt}").server()


@dataclass(frozen=True)
class Full:
    """Everyone, every round."""

    def draw(self, spec: Spec, round: int, attempt: int, seed: int) -> Cohort:  # noqa: A002
        """All clients."""
        return Cohort(np.arange(spec.n_clients), np.ones(spec.n_clients))


@dataclass(frozen=True)
class Uniform:
    """`count` clients, evenly, without replacement."""

    count: int

    def draw(self, spec: Spec, round: int, attempt: int, seed: int) -> Cohort:  # noqa: A002
        """Clients of equal chance, so of equal weight."""
        rng = _generator(seed, round, attempt, "participation")
        drawn = rng.choice(spec.n_clients, size=self.count, replace=False, shuffle=False)
        return Cohort(np.sort(drawn), np.ones(self.count))


@dataclass(frozen=True)
class BySize:
    """`count` draws with replacement, a client's chance in proportion to its rows.

    A client drawn twice is asked once and counts twice: its weight is times drawn over
    ``n_clients`` times its chance, so that equal sizes and one draw each give weights that
    compare with those of `Uniform`.
    """

    count: int

    def draw(self, spec: Spec, round: int, attempt: int, seed: int) -> Cohort:  # noqa: A002
        """Distinct clients with their multiplicities as weights."""
        rng = _generator(seed, round, attempt, "participation")
        chance = spec.sizes / spec.n_samples
        drawn = rng.choice(spec.n_clients, size=self.count, p=chance)
        clients, times = np.unique(drawn, return_counts=True)
        return Cohort(clients, times / (spec.n_clients * chance[clients]))


SCHEMES: dict[str, Callable[[int], Participation]] = {"uniform": Uniform, "by-size": BySize}


def participation(
    clients_per_round: int | float | None, scheme: str, n_clients: int
) -> Participation:
    """The participation that an estimator's parameters name.

    An int counts clients (1 is one client), a float in (0, 1] is a fraction (1.0 is all), None is
    all.
    """
    if scheme not in SCHEMES:
        raise ParameterError(
            f"participation={scheme!r} was given; expected one of {sorted(SCHEMES)}"
        )
    if clients_per_round is None:
        return Full()
    count = _count(clients_per_round, n_clients)
    if count == n_clients and scheme == "uniform":
        return Full()
    return SCHEMES[scheme](count)


def _count(clients_per_round: int | float, n_clients: int) -> int:
    if isinstance(clients_per_round, float):
        if not 0 < clients_per_round <= 1:
            raise ParameterError(
                f"clients_per_round={clients_per_round} was given; a float is a fraction in "
                "(0, 1], an int is a count, None is all clients"
            )
        return max(1, round(clients_per_round * n_clients))
    if not 1 <= clients_per_round <= n_clients:
        raise ParameterError(
            f"clients_per_round={clients_per_round} was given for {n_clients} clients; expected "
            f"1 to {n_clients}, a fraction in (0, 1], or None for all"
        )
    return clients_per_round


class Faults(Protocol):
    """Says whose replies are lost. It hits phases for everyone too, so it stands apart."""

    def lose(self, cohort: Cohort, step: int, attempt: int, seed: int) -> Cohort:
        """The cohort with its lost replies marked."""
        ...


@dataclass(frozen=True)
class NoFaults:
    """Every reply arrives."""

    def lose(self, cohort: Cohort, step: int, attempt: int, seed: int) -> Cohort:
        """The cohort as it was."""
        return cohort


@dataclass(frozen=True)
class LostReplies:
    """Each reply is lost with this chance, on its own."""

    chance: float

    def lose(self, cohort: Cohort, step: int, attempt: int, seed: int) -> Cohort:
        """The cohort with some replies marked as lost."""
        rng = _generator(seed, step, attempt, "faults")
        return replace(cohort, lost=rng.random(len(cohort)) < self.chance)

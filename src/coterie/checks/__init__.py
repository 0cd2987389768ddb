"""`check_algorithm`: proves that an algorithm keeps the contract.

The algorithm runs on a small, ragged federation; at every exchange its halves are called again and
again, whole and in parts, and must agree with themselves. Then whole runs are compared: resumed
with uninterrupted ones, lost replies with clients never asked, permuted clients, processes.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from coterie.checks.halves import check_halves
from coterie.checks.runs import (
    Centralised,
    KeptSums,
    Run,
    check_centralised,
    check_clients_without_rows,
    check_kept_sums,
    check_lost_replies,
    check_permuted,
    check_processes,
    check_resume,
)
from coterie.data.federation import Federation
from coterie.errors import ContractError

EXCHANGES = 8  # of a run that is looked at
SIZES = (5, 1, 2, 21, 3, 13, 8)


def check_algorithm(
    algorithm: Any,
    federation: Federation | None = None,
    *,
    seed: int = 0,
    exchanges: int = EXCHANGES,
    centralised: Centralised | None = None,
    sums: KeptSums | None = None,
    processes: bool = True,
) -> None:
    """Raise a `ContractError` that names the first part of the contract that is broken.

    Parameters
    ----------
    algorithm : Algorithm or estimator
        An estimator stands for its algorithm with its parameters.
    federation : Federation, optional
        Rows to check on, few and in float64. By default seven clients of 1 to 21 rows.
    seed : int
        Of the run that is looked at.
    exchanges : int
        Most exchanges of that run.
    centralised : callable, optional
        Takes the pooled rows and returns, by name, what arrays of the last state must be when one
        client has all rows and takes part in every round: an independent twin. `exchanges` bounds
        the run that it is compared with.
    sums : callable, optional
        Takes the block of all clients and their private state and returns, by name, what arrays of
        the last state must be although replies got lost: for an algorithm whose clients send by
        how much their part of a sum has changed.
    processes : bool
        Also compare with every client in a process of its own.

    Raises
    ------
    ContractError
        Names the part of the contract, the phase, and what differs.
    """
    federation = example_federation() if federation is None else federation
    if hasattr(algorithm, "session"):
        session = algorithm.session(federation)
        session.engine.close()
        run = Run(session.algorithm, session.federation, seed, exchanges, session.given)
    else:
        run = Run(algorithm, federation, seed, exchanges, {})
    if not dataclasses.is_dataclass(type(run.algorithm)):
        raise ContractError(
            f"{type(run.algorithm).__name__} was given; an algorithm is a frozen dataclass of its "
            "hyper-parameters"
        )
    check_halves(run)
    check_resume(run)
    check_lost_replies(run)
    if sums is not None:
        check_kept_sums(run, sums)
    check_permuted(run)
    check_clients_without_rows(run)
    if processes:
        check_processes(run)
    if centralised is not None:
        check_centralised(run, centralised)


def example_federation(seed: int = 0) -> Federation:
    """Seven clients of 1 to 21 rows, 6 features, around three centers."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(0, 4, size=(3, 6))
    return Federation.from_clients(
        [centers[rng.integers(3, size=n)] + rng.uniform(size=(n, 6)) for n in SIZES],
        ids=[f"client-{i}" for i in range(len(SIZES))],
    )

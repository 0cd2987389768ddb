"""A round of FedMGS against the two matrix products that it is made of."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Measured, median_of
from coterie.data.federation import Federation
from coterie.engines.simulation import Simulation
from coterie.factorization.fedmgs import FedMGSAlgorithm
from coterie.rounds import rounds

FEATURES, CLUSTERS, ROUNDS = 784, 10, 12


def measure() -> Iterator[Measured]:
    """FedMGS at the sizes of MNIST, with few clients and with many."""
    for n_rows in (10_000, 60_000):
        X = np.random.default_rng(0).random((n_rows, FEATURES), dtype=np.float32)
        floor = two_products(X)
        for steps in (10, 50):
            few = seconds_a_round(X, 100, steps)
            setting = f"N={n_rows:,}, M=784, K=10, float32, Q1={steps}, Q2=100, n_init=1"
            yield Measured("FedMGS, 100 clients", setting, few, "X @ W.T and H.T @ X", floor)
            many = seconds_a_round(X, 10_000, steps)
            yield Measured("FedMGS, 10,000 clients", setting, many, "100 clients", few)
        scattered = seconds_a_round(X, 100, 10, in_order=False)
        ordered = seconds_a_round(X, 100, 10)
        setting = f"N={n_rows:,}, M=784, K=10, float32, Q1=10, 100 clients"
        yield Measured("FedMGS, rows in any order", setting, scattered, "by client", ordered)


def two_products(X: np.ndarray) -> float:
    """Seconds of the two products, on the same arrays and threads."""
    rng = np.random.default_rng(1)
    W = rng.random((CLUSTERS, FEATURES), dtype=np.float32)
    H = rng.random((len(X), CLUSTERS), dtype=np.float32)
    return median_of(lambda: (X @ W.T, H.T @ X))


def seconds_a_round(X: np.ndarray, clients: int, steps: int, *, in_order: bool = True) -> float:
    """Median seconds of a round, everyone taking part."""
    owners = np.arange(len(X)) * clients // len(X)
    if not in_order:
        owners = np.random.default_rng(2).permutation(owners)
    algorithm = FedMGSAlgorithm(
        n_clusters=CLUSTERS, n_init=1, membership_steps=steps, max_rounds=ROUNDS, tol=0.0
    )
    engine = Simulation(Federation.from_arrays(X, owners))
    records = [r for r in rounds(algorithm, engine) if r.phase == "round"]
    return float(statistics.median(r.seconds for r in records))

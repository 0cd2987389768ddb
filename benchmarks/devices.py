"""``python -m benchmarks.devices``: a round of FedMGS on an accelerator, beside two products."""

from __future__ import annotations

import statistics

import numpy as np

from benchmarks.measure import Measured, median_of
from coterie.backend import torch_module
from coterie.data.federation import Federation
from coterie.engines.simulation import Simulation
from coterie.factorization.fedmgs import FedMGSAlgorithm
from coterie.rounds import rounds

SIZES = ((2_000_000, 784, 10), (10_000, 2_000, 20))


def main() -> None:
    """Print a line a size."""
    torch = torch_module()
    for n_rows, n_features, n_clusters in SIZES:
        X = torch.rand((n_rows, n_features), device="cuda")
        W = torch.rand((n_features, n_clusters), device="cuda")
        H = torch.rand((n_rows, n_clusters), device="cuda")

        def products(X: object = X, W: object = W, H: object = H) -> None:
            X @ W, H.T @ X  # type: ignore[operator, attr-defined]
            torch.cuda.synchronize()

        floor = median_of(products, 20)
        owners = np.arange(n_rows) * 100 // n_rows
        engine = Simulation(Federation.from_arrays(X, owners), device="cuda")
        algorithm = FedMGSAlgorithm(
            n_clusters=n_clusters,
            n_init=1,
            membership_steps=10,
            max_rounds=30,
            tol=0.0,
            init="sums",
        )
        seconds = [r.seconds for r in rounds(algorithm, engine) if r.phase == "round"]
        setting = f"N={n_rows:,}, M={n_features}, K={n_clusters}, float32, Q1=10, Q2=100"
        print(Measured("FedMGS on cuda", setting, statistics.median(seconds), "products", floor))


if __name__ == "__main__":
    main()

"""Run folders to report on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coterie.experiments.config import make_config
from coterie.experiments.runner import run

HOSTILE = ('"><script>window.pwned=1</script>', "St <b>Mary</b>", "Nord & Süd", "%{x} $y$")
CLASSES = ("cold", "flu", "</script><img src=x onerror=window.pwned=1>")


def make_run(out: Path, tables: Mapping[str, Any], *, exchanges: int | None = None) -> Path:
    """Run a configuration into a folder; to its end, or for so many exchanges."""
    seen: list[object] = []
    told = None if exchanges is None else (lambda: len(seen) >= exchanges)
    run(make_config(tables), out, on_round=seen.append, stop=told)
    return out


def digits(clients: int = 5, **algorithm: Any) -> dict[str, Any]:
    """A configuration that takes a moment."""
    return {
        "data": {"name": "digits"},
        "partition": {"scheme": "iid", "n_clients": clients},
        "algorithm": {"name": "FedMGS", "n_clusters": 10, "max_rounds": 4, **algorithm},
    }


def hospitals(path: Path, *, labels: bool = True, n_features: int = 6) -> dict[str, Any]:
    """A configuration with rows in a Parquet file, of clients and classes with odd names."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 120)
    x = np.abs(rng.normal(0, 0.2, (120, n_features))) + 2 * np.eye(n_features)[truth]
    columns: dict[str, Any] = {f"f{j}": x[:, j] for j in range(n_features)}
    columns["hospital"] = [HOSTILE[i % len(HOSTILE)] for i in range(120)]
    if labels:
        columns["diagnosis"] = [CLASSES[k] for k in truth]
    pq.write_table(pa.table(columns), path)
    data = {"path": str(path), "client": "hospital"} | ({"label": "diagnosis"} if labels else {})
    return {"data": data, "algorithm": {"name": "FedMGS", "n_clusters": 3, "max_rounds": 4}}

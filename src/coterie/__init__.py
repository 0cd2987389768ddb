"""Clustering where the data may not move.

Rows stay with their clients; what crosses the network is a small model. ``coterie`` clusters rows
(federated matrix factorisation) with scikit-learn's interface, in a simulation of many clients or
with every client in a process of its own::

    import coterie as ct

    X, y = ct.datasets.load_digits()
    clients = ct.partition.by_classes(y, n_clients=20, random_state=0)
    model = ct.FedMGS(n_clusters=10, random_state=0).fit(X, clients=clients)
    model.labels_

Names are imported when they are first used, so that ``import coterie`` is quick and a client's
process loads only what a client needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from coterie._version import __version__

if TYPE_CHECKING:
    from coterie import errors as errors
    from coterie import metrics as metrics
    from coterie.checks import check_algorithm as check_algorithm
    from coterie.data import datasets as datasets
    from coterie.data import partition as partition
    from coterie.data.federation import Federation as Federation
    from coterie.errors import CoterieError as CoterieError
    from coterie.estimators.catalog import FedMGS as FedMGS
    from coterie.parameters import Diminishing as Diminishing
    from coterie.rounds import Round as Round

_MODULES = {
    "datasets": "coterie.data.datasets",
    "errors": "coterie.errors",
    "metrics": "coterie.metrics",
    "partition": "coterie.data.partition",
}
_HOMES = {
    "CoterieError": "coterie.errors",
    "Diminishing": "coterie.parameters",
    "FedMGS": "coterie.estimators.catalog",
    "Federation": "coterie.data.federation",
    "Round": "coterie.rounds",
    "check_algorithm": "coterie.checks",
}

__all__ = ["__version__", *sorted([*_HOMES, *_MODULES])]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = importlib.import_module(_MODULES[name])
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'coterie' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

"""The scikit-learn face of the algorithms."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from coterie.errors import ParameterError

if TYPE_CHECKING:
    from coterie.estimators.rows import RowClusterer

ESTIMATORS = {"FedMGS": "coterie.estimators.factorization"}


def estimator_type(name: str) -> type[RowClusterer]:
    """The estimator of this name."""
    if name not in ESTIMATORS:
        raise ParameterError(f"algorithm {name!r} is unknown; expected one of {sorted(ESTIMATORS)}")
    found: type[RowClusterer] = getattr(import_module(ESTIMATORS[name]), name)
    return found

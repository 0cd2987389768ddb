"""The scikit-learn face of the algorithms."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from coterie.errors import ParameterError

if TYPE_CHECKING:
    from coterie.estimators.rows import RowClusterer

ESTIMATORS = ("FedMGS",)


def estimator_type(name: str) -> type[RowClusterer]:
    """The estimator of this name."""
    if name not in ESTIMATORS:
        near = get_close_matches(name, ESTIMATORS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ParameterError(
            f"algorithm {name!r} is unknown; expected one of {', '.join(ESTIMATORS)}{hint}"
        )
    found: type[RowClusterer] = getattr(import_module("coterie.estimators.catalog"), name)
    return found

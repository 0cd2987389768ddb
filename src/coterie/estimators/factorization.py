"""What the estimators of the factorisation algorithms share."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from coterie.backend import Array, Arrays, host
from coterie.data.federation import Federation
from coterie.errors import ParameterError
from coterie.estimators.rows import RowClusterer
from coterie.estimators.session import Session
from coterie.parameters import check
from coterie.protocol import State


class FactorizationClusterer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, RowClusterer):  # type: ignore[misc]
    """A clusterer that factorises: rows have memberships in clusters."""

    def transform(self, X: Any) -> Array:
        """Memberships of each row with the centers fixed, (n_samples, n_clusters)."""
        federation, block = self._rows_to_use(X)
        return federation.scatter(self._fitted_algorithm.transform(self._model, block))

    def _algorithm(self, federation: Federation) -> tuple[Any, Arrays, Arrays]:
        values = self._values(self.algorithm_type)
        given: dict[str, Array] = {}
        extra: dict[str, Array] = {}
        if values["init"] is not None and not isinstance(values["init"], str):
            centers, memberships = _as_pair(values["init"])
            given["centers"] = centers
            if memberships is not None:
                n_clusters = values["n_clusters"]
                extra["memberships"] = federation.gather(
                    _checked_memberships(memberships, federation.n_samples, n_clusters)
                )
            values |= {"init": "auto", "n_init": 1, "offset": None}
        return self.algorithm_type(**check(self.algorithm_type, values)), given, extra

    def _adopt_more(self, session: Session, state: State) -> None:
        best = int(state["best"])
        memberships = session.engine.private().rows["memberships"]
        self.memberships_ = session.federation.scatter(host(memberships)[:, best])
        self.cluster_centers_ = state["centers"][best][:, : self.n_features_in_]
        self.objective_ = float(state["value"][best])
        self._n_features_out = len(self.cluster_centers_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _as_pair(init: Any) -> tuple[Array, Array | None]:
    """Centers, and memberships if they came along."""
    try:
        if isinstance(init, (tuple, list)) and len(init) == 2 and np.ndim(init[0]) == 2:
            return np.asarray(init[0], dtype=np.float64), np.asarray(init[1], dtype=np.float64)
        return np.asarray(init, dtype=np.float64), None
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"init of type {type(init).__name__} was given ({error}); expected the name of a "
            "start, centers (n_clusters, n_features), or a pair of centers and memberships"
        ) from error


def _checked_memberships(memberships: Array, n_rows: int, n_clusters: int) -> Array:
    if memberships.shape != (n_rows, n_clusters):
        raise ParameterError(
            f"init: memberships of shape {memberships.shape} were given; expected (n_samples, "
            f"n_clusters) = {(n_rows, n_clusters)}, in the order of the rows"
        )
    if not (memberships >= 0).all() or not np.isfinite(memberships).all():
        raise ParameterError("init: memberships must be finite and not negative")
    return memberships

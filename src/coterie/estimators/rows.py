"""The scikit-learn face of the algorithms that cluster rows.

An estimator validates, packs rows into a federation, iterates over the rounds and sets attributes;
the mathematics is its algorithm's. Its parameters are those that the algorithm's dataclass
declares, and those of a run.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from coterie.backend import Array, Arrays
from coterie.block import Block
from coterie.data.federation import Federation
from coterie.errors import DataError
from coterie.estimators.declaration import (
    RunParameters,
    as_dtype,
    as_seed,
    make_init,
    with_parameters,
)
from coterie.estimators.session import Session, check_device, make_engine
from coterie.parameters import check, parameters
from coterie.participation import participation
from coterie.protocol import State
from coterie.rounds import Round


class RowClusterer(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator whose clusters are clusters of rows.

    A subclass names its algorithm: ``class FedMGS(RowClusterer, algorithm=FedMGSAlgorithm)``.
    """

    algorithm_type: ClassVar[Any]

    def __init_subclass__(cls, algorithm: type | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if algorithm is None:
            return
        declarations = (algorithm, RunParameters)
        cls.algorithm_type = algorithm
        setattr(cls, "__init__", make_init(declarations))  # noqa: B010
        cls.__doc__ = with_parameters(cls.__doc__ or "", declarations)

    @classmethod
    def as_published(cls, **changes: Any) -> Self:
        """This estimator with the constants of its paper, and `changes` to them."""
        return cls(**(dict(cls.algorithm_type.published) | changes))

    # -- fitting ----------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, clients: Any = None) -> Self:
        """Cluster rows where they are.

        Parameters
        ----------
        X : Federation, or array-like or sparse matrix of shape (n_samples, n_features)
        y : ignored
        clients : array-like of shape (n_samples,), optional
            The owner of each row; without it all rows are one client's. A federation knows its
            own.

        Returns
        -------
        self
        """
        session = self.session(self._federation(X, clients))
        try:
            for record in session.rounds():
                if self.verbose:
                    print(record.line())
            self.adopt(session)
        finally:
            session.engine.close()
        return self

    def session(self, federation: Federation) -> Session:
        """A run on this federation that has not begun, for callers who drive it themselves."""
        run = check(RunParameters, self._values(RunParameters))
        check_device(run["device"])
        seed = as_seed(run["random_state"])
        algorithm, given, extra = self._algorithm(federation)
        cohorts = participation(
            run["clients_per_round"], run["participation"], federation.n_clients
        )
        federation = federation.prepared(dtype=as_dtype(run["dtype"]), extra=extra)
        engine = make_engine(run["engine"], federation, run["device"])
        return Session(algorithm, federation, engine, cohorts, seed, given)

    def adopt(self, session: Session) -> Self:
        """Set the fitted attributes from a session that has run."""
        federation, algorithm = session.federation, session.algorithm
        state = session.final_state()
        self.n_features_in_ = federation.n_features
        if federation.feature_names is not None:
            self.feature_names_in_ = np.array(federation.feature_names, dtype=object)
        self._fitted_algorithm, self._model = algorithm, algorithm.model(state)
        self.history_: list[Round] = session.history
        self.n_rounds_ = self.n_iter_ = state.round
        self.client_ids_ = federation.client_ids
        block = federation.block(device=self.device)
        labels = algorithm.assign(self._model, block)
        self.labels_: Array = federation.scatter(labels)
        self.cluster_means_ = cluster_means(block, labels, self.n_clusters)
        self._adopt_more(session, state)
        return self

    def _adopt_more(self, session: Session, state: State) -> None:
        """Set what only some clusterers have."""
        raise NotImplementedError

    def _algorithm(self, federation: Federation) -> tuple[Any, Arrays, Arrays]:
        """The algorithm; what the server starts from; what rows start from."""
        return (
            self.algorithm_type(**check(self.algorithm_type, self._values(self.algorithm_type))),
            {},
            {},
        )

    def _values(self, declaration: type) -> dict[str, Any]:
        return {p.name: getattr(self, p.name) for p in parameters(declaration)}

    # -- using ------------------------------------------------------------------------------------

    def predict(self, X: Any) -> Array:
        """The cluster of each row, in the order in which rows were given.

        Parameters
        ----------
        X : Federation, or array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        federation, block = self._rows_to_use(X)
        return federation.scatter(self._fitted_algorithm.assign(self._model, block))

    def _rows_to_use(self, X: Any) -> tuple[Federation, Block]:
        check_is_fitted(self, "labels_")
        check_device(self.device)
        federation = self._federation(X, None, fitting=False).prepared(dtype=as_dtype(self.dtype))
        return federation, federation.block(device=self.device)

    def _federation(self, X: Any, clients: Any, *, fitting: bool = True) -> Federation:
        if isinstance(X, Federation):
            if clients is not None:
                raise DataError("clients were given beside a federation, which knows its own")
            rows = X
        else:
            rows = Federation.from_arrays(X, clients)
        try:
            validate_data(self, _columns(X), reset=fitting, skip_check_array=True)
        except ValueError as error:
            raise DataError(str(error)) from error
        return rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _columns(X: Any) -> Any:
    """Something with these columns, in which scikit-learn finds their number and their names."""
    if not isinstance(X, Federation):
        return X
    if X.feature_names is None:
        return X.x
    import pyarrow

    return pyarrow.table({name: pyarrow.nulls(0) for name in X.feature_names})


def cluster_means(block: Block, labels: Array, n_clusters: int) -> Array:
    """The mean of each cluster's rows, (K, M); NaN for a cluster without rows."""
    one_hot = block.put(np.eye(n_clusters))

    def kernel(x: Any, label: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        mine = one_hot[label]
        return {}, {"total": mine.T @ x, "count": mine.sum(0)}

    _, sums = block.map_rows(kernel, block.move(labels))
    counts = np.asarray(sums["count"])[:, None]
    empty = np.full((n_clusters, block.n_features), np.nan)
    means: Array = np.divide(sums["total"], counts, out=empty, where=counts > 0)
    return means

"""The estimators, by name: an algorithm, the face it wears, and what users read about it.

Parameters are added to the docstrings from the algorithms' declarations; `make stubs` writes the
signatures for editors beside this file.
"""

from __future__ import annotations

from coterie.estimators.factorization import FactorizationClusterer
from coterie.factorization.fedmgs import FedMGSAlgorithm


class FedMGS(FactorizationClusterer, algorithm=FedMGSAlgorithm):
    """Federated clustering by gradient sharing (FedMGS).

    Clients keep their rows and how strongly each belongs to each cluster; the server keeps the
    centers and two sums, to which clients send by how much their part has changed. From the same
    start, with all clients in every round, it does not matter how rows are spread over clients.

    It clusters by direction: a center stands for all its multiples. Where distance matters (few
    features, data away from the origin) the parameter `offset` adds a constant feature.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        The cluster of each row, as `predict` gives it.
    memberships_ : ndarray of shape (n_samples, n_clusters)
        As the last round left them.
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        The model's centers; their scale is free.
    cluster_means_ : ndarray of shape (n_clusters, n_features)
        The mean of each cluster's rows; NaN for a cluster without rows.
    objective_ : float
    n_rounds_ : int
        Rounds of the algorithm; `n_iter_` is the same.
    history_ : list of Round
        One record an exchange: bytes, seconds, objective.
    client_ids_ : ndarray of shape (n_clients,)
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where the rows came with column names.

    See Also
    --------
    coterie.factorization.fedmgs : the algorithm, with its notation and what differs from the paper.

    References
    ----------
    S. Wang and T.-H. Chang, "Federated Matrix Factorization: Algorithm Design and Application to
    Data Clustering", 2020.

    Examples
    --------
    >>> import coterie as ct
    >>> X, y = ct.datasets.load_digits()
    >>> clients = ct.partition.by_classes(y, n_clients=20, random_state=0)
    >>> model = ct.FedMGS(n_clusters=10, random_state=0).fit(X, clients=clients)
    >>> model.labels_.shape, model.cluster_centers_.shape
    ((1797,), (10, 64))
    """

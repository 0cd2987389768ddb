"""Who owns which row: the ways in which papers deal one data set out to clients.

Every function returns one client id a row, an array of int64 in ``0 .. n_clients - 1``, and every
client owns at least one row. The first argument is what the scheme looks at: a number of rows,
labels, or the rows themselves. The same `random_state` gives the same clients; nothing is drawn
from NumPy's global state, and none is changed.
"""

from __future__ import annotations

import heapq
import math
import warnings
from typing import Any

import numpy as np
from scipy import sparse

from coterie.backend import Array, host, is_torch
from coterie.data.validation import as_labels, as_rows, check_finite
from coterie.errors import DataError, InputTypeError, ParameterError

RandomState = int | np.random.Generator | np.random.RandomState | None


def iid(rows: Any, n_clients: int, random_state: RandomState = None) -> Array:
    """Deal rows out evenly and at random.

    The "IID" split of McMahan et al., *Communication-efficient learning of deep networks from
    decentralized data*, AISTATS 2017.

    Parameters
    ----------
    rows : int, or anything with a length
        The number of rows, or the rows or labels themselves, of which only the number is used.
    n_clients : int
    random_state : int, Generator, RandomState or None

    Returns
    -------
    clients : ndarray of int64, one a row
        Sizes differ by at most one.
    """
    n_rows = _count_rows(rows, n_clients)
    return generator(random_state).permutation(np.arange(n_rows) % n_clients)


def sorted_by_label(y: Any, n_clients: int, random_state: RandomState = None) -> Array:
    """Sort rows by label, ties at random, and cut them into equal runs, one a client.

    The "pathological non-IID" split of McMahan et al., AISTATS 2017, with one shard a client;
    `by_classes` is the one with several.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels; they may be strings.
    n_clients : int
    random_state : int, Generator, RandomState or None

    Returns
    -------
    clients : ndarray of int64, one a row
        Sizes differ by at most one. Client 0 holds the lowest labels.
    """
    n_rows = _count_rows(y, n_clients)
    codes = _codes(y, n_rows)
    clients = np.empty(n_rows, dtype=np.int64)
    by_label = np.lexsort((generator(random_state).random(n_rows), codes))
    clients[by_label] = np.arange(n_rows) * n_clients // n_rows
    return clients


def by_classes(
    y: Any, n_clients: int, random_state: RandomState = None, *, classes_per_client: int = 2
) -> Array:
    """Give each client rows of a few classes only.

    Each class is cut at random into shards, larger classes into more, so that shards are of about
    one size; each client draws `classes_per_client` shards of distinct classes. After McMahan et
    al., AISTATS 2017, whose shards may repeat or straddle a class, and Li et al., *On the
    convergence of FedAvg on non-iid data*, ICLR 2020, whose clients hold images of two digits; the
    clustering papers follow the latter for MNIST.

    All rows are used and every client has some. So where `y` has more classes than
    ``n_clients * classes_per_client``, clients hold as few more as it takes; where it has too few
    rows to cut so many shards, they hold fewer. Then too, clients differ by at most one class.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels; they may be strings.
    n_clients : int
    random_state : int, Generator, RandomState or None
    classes_per_client : int, default=2

    Returns
    -------
    clients : ndarray of int64, one a row
    """
    n_rows = _count_rows(y, n_clients)
    codes = _codes(y, n_rows)
    sizes = np.bincount(codes)
    _check_integer("classes_per_client", classes_per_client)
    if classes_per_client > len(sizes):
        raise ParameterError(
            f"classes_per_client={classes_per_client} was given for labels of {len(sizes)} "
            f"classes; expected at most {len(sizes)}"
        )
    rng = generator(random_state)
    shards = _shards_of_classes(sizes, n_clients, n_clients * classes_per_client)
    hands = _deal(shards, n_clients, rng)
    clients = np.empty(n_rows, dtype=np.int64)
    for label, owners in enumerate(hands):
        rows = rng.permutation(np.flatnonzero(codes == label))
        clients[rows] = np.repeat(owners, _even(len(rows), len(owners)))
    return clients


def dirichlet(
    y: Any, n_clients: int, random_state: RandomState = None, *, alpha: float = 0.5
) -> Array:
    """Split each class over the clients in proportions drawn from a Dirichlet distribution.

    Small `alpha` gives a class to few clients, large `alpha` to all alike. Dirichlet label skew is
    from Hsu, Qi and Brown, *Measuring the effects of non-identical data distribution for federated
    visual classification*, 2019, who draw the classes of each client; here each class's
    proportions over the clients are drawn, as in Yurochkin et al., *Bayesian nonparametric
    federated learning of neural networks*, ICML 2019, so that every row is used once. A client
    that is left with nothing gets a random row of the client that has most at that moment.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels; they may be strings.
    n_clients : int
    random_state : int, Generator, RandomState or None
    alpha : float, default=0.5
        Concentration, above 0.

    Returns
    -------
    clients : ndarray of int64, one a row
    """
    n_rows = _count_rows(y, n_clients)
    codes = _codes(y, n_rows)
    _check_positive("alpha", alpha)
    rng = generator(random_state)
    # Above 1e12 shares are even anyway, and the sum of very large gamma draws would overflow.
    concentration = np.full(n_clients, min(float(alpha), 1e12))
    clients = np.empty(n_rows, dtype=np.int64)
    for label in range(codes.max() + 1):
        rows = rng.permutation(np.flatnonzero(codes == label))
        share = rng.dirichlet(concentration)
        clients[rows] = np.repeat(np.arange(n_clients), _proportional(len(rows), share))
    return _fill_empty(clients, n_clients, rng)


def power_law(
    rows: Any, n_clients: int, random_state: RandomState = None, *, exponent: float = 1.5
) -> Array:
    """Deal rows out at random to clients whose sizes follow a power law.

    The client of rank r, ranks dealt at random, owns a share in proportion to ``r ** -exponent``
    (Zipf) of the rows that are left when every client has got one. Power-law sizes are from Li et
    al., *Federated optimization in heterogeneous networks*, MLSys 2020, and *On the convergence of
    FedAvg on non-iid data*, ICLR 2020, which do not state their law.

    Parameters
    ----------
    rows : int, or anything with a length
        The number of rows, or the rows or labels themselves, of which only the number is used.
    n_clients : int
    random_state : int, Generator, RandomState or None
    exponent : float, default=1.5
        Above 0; near 0 sizes are even.

    Returns
    -------
    clients : ndarray of int64, one a row
    """
    n_rows = _count_rows(rows, n_clients)
    _check_positive("exponent", exponent)
    rng = generator(random_state)
    share = np.arange(1.0, n_clients + 1) ** -float(exponent)
    sizes = 1 + _proportional(n_rows - n_clients, share)
    return rng.permutation(np.repeat(rng.permutation(n_clients), sizes))


def by_similarity(
    X: Any, n_clients: int, random_state: RandomState = None, *, method: str = "kmeans"
) -> Array:
    """Give each client rows that are alike.

    The "similarity-based partition" of Wang and Chang, *Federated matrix factorization: algorithm
    design and application to data clustering*, 2020 (Case 2), and *Federated clustering via matrix
    factorization models: from model averaging to gradient sharing*, 2021 (syn_noniid), who took
    the name from Balcan, Ehrlich and Liang, *Distributed k-means and k-median clustering on
    general topologies*, NeurIPS 2013. Their text and their published program differ, hence the two
    methods. Sizes follow the data and are far from even.

    Every client has a row: with "kmeans" a cluster that stays empty gets a random row of the
    largest; with "anchors" an anchor belongs to its own client, even if it equals another anchor.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
    n_clients : int
    random_state : int, Generator, RandomState or None
    method : {"kmeans", "anchors"}, default="kmeans"
        "kmeans", as the papers say: the clusters of k-means with `n_clients` clusters.
        "anchors", as the program does: the nearest of `n_clients` random rows.

    Returns
    -------
    clients : ndarray of int64, one a row
    """
    if method not in ("kmeans", "anchors"):
        raise ParameterError(f"method={method!r} was given; expected 'kmeans' or 'anchors'")
    x = as_rows(X)
    if is_torch(x):
        x = host(x)
    n_rows = _count_rows(x, n_clients)
    check_finite(x)
    rng = generator(random_state)
    if method == "kmeans":
        return _fill_empty(_kmeans(x, n_clients, rng), n_clients, rng)
    from sklearn.metrics import pairwise_distances_argmin

    anchors = np.sort(rng.choice(n_rows, size=n_clients, replace=False))
    clients = np.asarray(pairwise_distances_argmin(x, x[anchors]), dtype=np.int64)
    clients[anchors] = np.arange(n_clients)
    return clients


# -- randomness and checks ------------------------------------------------------------------------


def generator(random_state: RandomState) -> np.random.Generator:
    """Turn what callers pass as `random_state` into a generator; None is fresh entropy.

    A `Generator` is used as it is, a `RandomState` gives the seed: both move on.
    """
    seed: Any = random_state
    if isinstance(random_state, np.random.RandomState):
        seed = random_state.randint(0, 2**32, size=4, dtype=np.uint64)
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"random_state={random_state!r} was given ({error}); expected an int of at least 0, a "
            "numpy Generator, a numpy RandomState, or None"
        ) from error


def _count_rows(rows: Any, n_clients: int) -> int:
    """Count the rows, and make sure that each client can have one."""
    if isinstance(rows, int | np.integer) and not isinstance(rows, bool):
        n_rows = int(rows)
    elif getattr(rows, "shape", ()):  # a sparse matrix has a shape but refuses len()
        n_rows = int(rows.shape[0])
    elif hasattr(rows, "__len__") and not isinstance(rows, str):
        n_rows = len(rows)
    else:
        raise InputTypeError(
            f"{type(rows).__name__} was given; expected a number of rows, or something with one "
            "entry a row"
        )
    _check_integer("n_clients", n_clients)
    if n_rows < n_clients:
        raise DataError(
            f"{n_rows} rows were given for n_clients={n_clients}; every client needs at least one "
            "row: give fewer clients, or more rows"
        )
    return n_rows


def _check_integer(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ParameterError(f"{name}={value!r} was given; expected an int of at least 1")


def _check_positive(name: str, value: Any) -> None:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise ParameterError(f"{name}={value!r} was given; expected a number above 0")


def _codes(y: Any, n_rows: int) -> Array:
    """Labels as 0 .. n_classes - 1, in sorted order."""
    labels = as_labels(y, n_rows)
    try:
        codes: Array = np.unique(labels, return_inverse=True)[1]
    except TypeError as error:
        raise InputTypeError(
            f"labels of several types cannot be put in order ({error}); expected all strings, or "
            "all numbers"
        ) from error
    return codes


# -- sizes and shards -----------------------------------------------------------------------------


def _even(total: int, parts: int) -> Array:
    """`total` as a sum of `parts` integers that differ by at most one."""
    return np.diff(np.arange(parts + 1) * total // parts)


def _proportional(total: int, share: Array) -> Array:
    """`total` as a sum of integers in proportion to `share`, each off by less than one."""
    ends = np.cumsum(share)
    return np.diff(np.rint(ends * (total / ends[-1])).astype(np.int64), prepend=0)


def _shards_of_classes(sizes: Array, n_clients: int, wanted: int) -> list[int]:
    """How many shards each class is cut into: `wanted` in all, or as near as can be.

    Every class is one shard; then the class of the largest shards is cut once more, again and
    again. A class has no more shards than rows, nor than clients, who hold one of it at most.
    """
    most = np.minimum(sizes, n_clients)
    shards = [1] * len(sizes)
    queue = [(-float(size), label) for label, size in enumerate(sizes) if most[label] > 1]
    heapq.heapify(queue)
    for _ in range(min(wanted, int(most.sum())) - len(sizes)):
        _, label = heapq.heappop(queue)
        shards[label] += 1
        if shards[label] < most[label]:
            heapq.heappush(queue, (-sizes[label] / shards[label], label))
    return shards


def _deal(shards: list[int], n_clients: int, rng: np.random.Generator) -> list[list[int]]:
    """Choose the owners of each class's shards: nobody gets two of a class, all about as many.

    Clients draw in turn, a class in proportion to its shards that are left. A class with as many
    shards left as there are clients left must be drawn by each of them; drawing it first keeps
    the rest possible.
    """
    left = np.array(shards)
    owners: list[list[int]] = [[] for _ in shards]
    quotas = rng.permutation(_even(sum(shards), n_clients))
    for client, quota in enumerate(quotas):
        # Exponential clocks: the `quota` first to ring are a draw in proportion to `left`.
        rings = np.full(len(left), np.inf)
        open_ = left > 0
        rings[open_] = rng.exponential(size=int(open_.sum())) / left[open_]
        rings[left == n_clients - client] = -1.0
        for label in np.argsort(rings)[:quota]:
            owners[label].append(client)
            left[label] -= 1
    return owners


def _fill_empty(clients: Array, n_clients: int, rng: np.random.Generator) -> Array:
    """Give each client without rows a random row of the client that has most."""
    sizes = np.bincount(clients, minlength=n_clients)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        clients[rng.choice(np.flatnonzero(clients == largest))] = empty
        sizes[largest] -= 1
        sizes[empty] = 1
    return clients


def _kmeans(x: Any, n_clients: int, rng: np.random.Generator) -> Array:
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    if sparse.issparse(x) and x.nnz <= np.iinfo(np.int32).max:  # k-means takes no others
        small = (x.data, x.indices.astype(np.int32), x.indptr.astype(np.int32))
        x = sparse.csr_array(small, shape=x.shape)
    model = KMeans(n_clients, n_init=1, random_state=int(rng.integers(2**31)))
    # Sums of several threads are added in any order: one thread, so that a seed names one result.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)  # too few distinct rows: said below
        clients: Array = model.fit_predict(x).astype(np.int64)
    if len(np.unique(clients)) < n_clients:
        distinct = len(np.unique(x.toarray() if sparse.issparse(x) else x, axis=0))
        if distinct < n_clients:
            raise DataError(
                f"rows of which {distinct} are distinct were given for n_clients={n_clients}; "
                "equal rows stay together: give fewer clients, or method='anchors'"
            )
    return clients

"""`make_onmf`: the synthetic data of the federated factorisation papers."""

from __future__ import annotations

import math

import numpy as np

from coterie.backend import Array
from coterie.data.partition import RandomState, generator
from coterie.errors import ParameterError

REPEATS = 200  # the papers' setting takes about a dozen
PUBLISHED_OUTLIERS = 0.03


def make_onmf(
    n_samples: int = 10_000,
    n_features: int = 2_000,
    n_clusters: int = 20,
    *,
    snr_db: float = -3.0,
    outliers: float = 0.0,
    as_published: bool = False,
    random_state: RandomState = None,
) -> tuple[Array, Array]:
    """Draw rows from the papers' model: a non-negative center each, and noise.

    Wang and Chang, *Federated matrix factorization* (2020) and *Federated clustering via matrix
    factorization models* (2021), draw ``X = WH + E``, with one column a sample, after Yang, Fu and
    Sidiropoulos, *Learning from hidden traits*, IEEE Trans. Signal Process. 65(1), 2017.

    **In the papers' text**: the model, 10,000 samples, 2,000 features, 20 clusters, and the
    signal-to-noise ratio ``10 log10(|WH|^2 / |E|^2) = -3 dB``.

    **Only in their program**: all else. Centers are uniform on [0, 1), a membership is one-hot and
    the noise standard Gaussian. ``X = max(0, WH + E)`` makes rows non-negative, which changes the
    noise to ``X - WH``; this is scaled to the wanted ratio, clipped again, and so on until the
    ratio holds. With ``as_published=True`` also:

    * sizes are drawn one after the other: of the r rows still left, cluster i of K gets a uniform
      integer from ``max(1, 0.01 r / (K - i))`` up to, not including, ``1.5 r / (K - i)``;
    * so some rows are left over. They belong to no cluster, are all zero, and are labelled 0 like
      the rows of cluster 0. Their number varies much with the seed; it is 1,028 of 10,000 for the
      program's own seed, 0;
    * then 3 % of the rows, drawn with replacement, become outliers.

    By default none of the three is done: labels are uniform, every cluster has a row, and there
    are no outliers unless asked for.

    The program draws from NumPy's legacy generator, and so does ``as_published=True``: an integer
    `random_state` gives the rows that the program makes of it, to 1e-9. For one seed in three the
    program stops with an error, as its last cluster asks for more rows than are left; here that
    size is drawn again.

    Parameters
    ----------
    n_samples, n_features, n_clusters : int
    snr_db : float, default=-3.0
        Signal-to-noise ratio in decibels, met to 1e-10, before outliers.
    outliers : float, default=0.0
        Fraction of rows, in [0, 1), replaced by 5 times a uniform row. They keep their labels.
    as_published : bool, default=False
        Do what the papers' program did. `outliers` must then be left at 0.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    X : ndarray of float64, (n_samples, n_features)
        In random order, non-negative.
    y : ndarray of int64, (n_samples,)
    """
    _check(n_samples, n_features, n_clusters, snr_db, outliers, as_published)
    if as_published:
        return _published(n_samples, n_features, n_clusters, snr_db, _legacy(random_state))
    rng = generator(random_state)
    centers = rng.random((n_clusters, n_features))
    # One label of each cluster is set, so that none is empty.
    drawn = rng.integers(n_clusters, size=n_samples - n_clusters)
    y = rng.permutation(np.concatenate([np.arange(n_clusters), drawn]))
    X = _add_noise(centers[y], rng.standard_normal((n_samples, n_features)), snr_db)
    hit = rng.choice(n_samples, size=round(outliers * n_samples), replace=False)
    X[hit] = 5 * rng.random((len(hit), n_features))
    return X, y


def _published(
    n_samples: int, n_features: int, n_clusters: int, snr_db: float, rng: np.random.RandomState
) -> tuple[Array, Array]:
    """Draw what the papers' program draws, in its order."""
    centers = rng.uniform(size=(n_features, n_clusters)).T
    sizes = _published_sizes(n_samples, n_clusters, rng)
    y = np.zeros(n_samples, dtype=np.int64)
    y[: sum(sizes)] = np.repeat(np.arange(n_clusters), sizes)
    noise = np.zeros((n_samples, n_features))
    noise[: sum(sizes)] = rng.standard_normal((sum(sizes), n_features))
    signal = centers[y]
    signal[sum(sizes) :] = 0  # rows of no cluster
    shuffled = rng.permutation(n_samples)
    X = _add_noise(signal[shuffled], noise[shuffled], snr_db)
    hit = rng.randint(n_samples, size=int(PUBLISHED_OUTLIERS * n_samples))
    X[hit] = 5 * rng.uniform(size=(n_features, len(hit))).T
    return X, y[shuffled]


def _published_sizes(n_samples: int, n_clusters: int, rng: np.random.RandomState) -> list[int]:
    sizes: list[int] = []
    left = n_samples
    for fair in range(n_clusters, 0, -1):
        low, high = int(max(1, 0.01 * left / fair)), int(1.5 * left / fair)
        if high <= low:
            raise ParameterError(
                f"n_samples={n_samples} was given for n_clusters={n_clusters}: the program's sizes "
                f"leave {left} rows for the last {fair} clusters; give more rows, fewer clusters, "
                "or as_published=False"
            )
        size = rng.randint(low, high)
        while size > left:
            size = rng.randint(low, high)
        sizes.append(size)
        left -= size
    return sizes


def _legacy(random_state: RandomState) -> np.random.RandomState:
    if isinstance(random_state, np.random.RandomState):
        return random_state
    if isinstance(random_state, np.random.Generator) or random_state is None:
        random_state = int(generator(random_state).integers(2**32))
    try:
        return np.random.RandomState(random_state)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"random_state={random_state!r} was given ({error}); with as_published=True expected "
            "an int from 0 to 2**32 - 1, a numpy RandomState or Generator, or None"
        ) from error


def _add_noise(signal: Array, noise: Array, snr_db: float) -> Array:
    """Non-negative rows: signal and noise at this ratio. Overwrites `noise`."""
    power = _power(signal)
    for _ in range(REPEATS):
        np.maximum(noise, -signal, out=noise)  # the noise of max(0, signal + noise)
        excess = 10 * math.log10(power / _power(noise)) - snr_db
        if abs(excess) <= 1e-10:
            noise += signal
            return noise
        noise *= 10 ** (excess / 20)
    raise ParameterError(
        f"snr_db={snr_db} was given; non-negative rows of shape {signal.shape} cannot have this "
        f"signal-to-noise ratio ({excess:+.2g} dB off after {REPEATS} repeats). Give more rows or "
        "features, or a ratio nearer to 0"
    )


def _power(values: Array) -> float:
    return float(np.einsum("ij,ij->", values, values))


def _check(
    n_samples: int,
    n_features: int,
    n_clusters: int,
    snr_db: float,
    outliers: float,
    as_published: bool,
) -> None:
    if min(n_samples, n_features, n_clusters) < 1 or n_samples < n_clusters:
        raise ParameterError(
            f"n_samples={n_samples}, n_features={n_features}, n_clusters={n_clusters} were given; "
            "expected each to be at least 1, and a row or more for each cluster"
        )
    if not -100 <= snr_db <= 100:  # beyond that float64 cannot hold signal and noise together
        raise ParameterError(f"snr_db={snr_db} was given; expected -100 to 100 decibels")
    if not 0 <= outliers < 1:
        raise ParameterError(f"outliers={outliers} was given; expected a fraction in [0, 1)")
    if as_published and outliers:
        raise ParameterError(
            f"outliers={outliers} was given with as_published=True, which draws 3 % outliers "
            "itself; leave outliers at 0"
        )

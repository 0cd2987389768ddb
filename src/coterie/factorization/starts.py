"""Where a factorisation starts.

"one-shot"
    Clients run k-means on their own rows and send centers and counts; the server clusters these.
    A client sends no center that stands for one row only, so no row leaves. Only as many clients
    are asked as the server can cluster in well under a second, drawn by size.
"sums"
    Centers are drawn around the mean of all rows, which is a sum.
"random"
    The papers': everything is drawn at the scale of the data.
"""

from __future__ import annotations

import numpy as np

from coterie.backend import Array
from coterie.block import Block
from coterie.errors import ParameterError
from coterie.factorization.declaration import Factorization
from coterie.fields import Reply, Stack
from coterie.protocol import Spec, Total
from coterie.random import Stream
from coterie.seeding import local_centers, weighted_kmeans

CLUSTERING_WORK = 3e7  # of the server: local centers times clusters times features
FEWEST_ASKED = 20


def resolve(p: Factorization, spec: Spec) -> str:
    """The start that "auto" means: one-shot where clients have rows enough to hide one."""
    if p.init != "auto":
        return p.init
    offered = np.minimum(spec.sizes // 2, p.n_clusters).sum()
    in_company = spec.sizes[spec.sizes >= 2].sum()
    return "one-shot" if offered >= p.n_clusters and 2 * in_company >= spec.n_samples else "sums"


def draw_asked(p: Factorization, spec: Spec, rng: np.random.Generator) -> tuple[Array, Array]:
    """Clients to ask for local centers, and the chance that each had of being asked.

    Draws with replacement by size, each client asked once: large clients, which hold most rows,
    are met first, and one over the chance makes up for it.
    """
    affordable = CLUSTERING_WORK / (p.n_clusters**2 * spec.n_features)
    draws = max(FEWEST_ASKED, int(affordable))
    able = np.flatnonzero(spec.sizes >= 2)
    if len(able) == 0:
        raise ParameterError(
            "init='one-shot' was given, but no client has two rows: a center of one row would be "
            "that row. Give init='sums', or 'auto', which chooses it here"
        )
    if len(able) <= draws:
        return able, np.ones(len(able))
    share = spec.sizes[able] / spec.sizes[able].sum()
    asked = np.unique(rng.choice(len(able), size=draws, p=share))
    return able[asked], 1 - (1 - share[asked]) ** draws


def seed_reply(block: Block, n_clusters: int, rng: Stream) -> Reply:
    """Each client's local centers, (C, K, M), and how many rows each stands for."""
    centers, counts = local_centers(block, n_clusters, rng)
    return {
        "centers": Stack(np.where(counts[:, :, None] > 0, centers, 0.0)),
        "counts": Stack(counts),
    }


def one_shot(
    total: Total, chances: Array, n_clusters: int, n_init: int, rng: np.random.Generator
) -> Array:
    """Centers for each start, (R, K, M), from the clients' local centers."""
    counts = total["counts"] / chances[:, None]
    used = counts > 0
    points, weights = total["centers"][used], counts[used]
    tries = 10 if n_init == 1 else 4
    return np.stack(
        [weighted_kmeans(points, weights, n_clusters, rng, tries) for _ in range(n_init)]
    )


def around_mean(
    mean: Array, spread: Array, n_clusters: int, n_init: int, rng: np.random.Generator
) -> Array:
    """Centers around the mean of all rows, (R, K, M): between 0 and twice the mean, or wider.

    Where a feature varies by more than its mean (data around the origin, say) a factor of the
    mean would leave all centers alike, so that its spread decides there.
    """
    reach = np.maximum(np.abs(mean), spread)
    return mean + reach * rng.uniform(-1, 1, size=(n_init, n_clusters, len(mean)))

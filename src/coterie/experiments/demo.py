"""Two scenes for people who meet the library: each is a run, and what others reach on its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coterie.backend import Array
from coterie.data.federation import Federation
from coterie.experiments.config import Config, make_config
from coterie.experiments.folder import COMPARISON, RunFolder
from coterie.experiments.runner import OnRound, load_rows, run
from coterie.metrics import clustering_accuracy

LEVEL = 0.01  # accuracies closer than this are called level


@dataclass(frozen=True)
class Scene:
    """A configuration with a title and what there is to see."""

    name: str
    title: str
    story: str
    tables: Mapping[str, Any]

    @property
    def config(self) -> Config:
        """The scene's configuration."""
        return make_config(self.tables)


SCENES = (
    Scene(
        "synthetic",
        "The papers' synthetic rows, split by similarity over 20 clients",
        "Rows that are alike sit together, so most clients know only a few of the ten clusters.",
        {
            "data": {
                "name": "onmf",
                "options": {
                    "n_samples": 2000,
                    "n_features": 200,
                    "n_clusters": 10,
                    "random_state": 0,
                },
            },
            "partition": {"scheme": "by_similarity", "n_clients": 20},
            "algorithm": {"name": "FedMGS", "n_clusters": 10},
        },
    ),
    Scene(
        "digits",
        "Handwritten digits, two of the ten at each of 20 clients",
        "Nobody has seen all digits; together the clients have.",
        {
            "data": {"name": "digits"},
            "partition": {"scheme": "by_classes", "n_clients": 20, "classes_per_client": 2},
            "algorithm": {"name": "FedMGS", "n_clusters": 10},
        },
    ),
)


@dataclass(frozen=True)
class Compared:
    """What a method reaches on the rows of a run."""

    name: str
    words: str
    accuracy: float
    spread: tuple[float, float] | None = None  # least and greatest, where it is a mean


def play(scene: Scene, out: Path, on_round: OnRound | None = None) -> RunFolder:
    """Run a scene into a folder, and compare."""
    folder = run(scene.config, out, on_round=on_round)
    result = folder.read_result()
    federation = load_rows(scene.config).federation
    n_clusters = scene.config.algorithm.n_clusters
    compared = [
        Compared(
            "FedMGS",
            "rows stay with their clients",
            clustering_accuracy(result["truth"], result["label"]),
        ),
        pooled_kmeans(federation, n_clusters),
        kmeans_alone(federation, n_clusters),
    ]
    methods = [asdict(c) for c in compared]
    folder.write_json(
        COMPARISON,
        {
            "title": scene.title,
            "story": scene.story,
            "methods": methods,
            "verdict": verdict(methods),
        },
    )
    return folder


def pooled_kmeans(federation: Federation, n_clusters: int) -> Compared:
    """k-means on all rows in one place: what is lost or won by leaving them where they are."""
    from sklearn.cluster import KMeans

    labels = KMeans(n_clusters, n_init=10, random_state=0).fit_predict(federation.X)
    accuracy = clustering_accuracy(federation.y, labels)
    return Compared("k-means, pooled", "all rows in one place, best of 10 starts", accuracy)


def kmeans_alone(federation: Federation, n_clusters: int) -> Compared:
    """k-means of one client on its own rows, asked about everyone's: the mean over clients."""
    from sklearn.cluster import KMeans

    scores = []
    everyone: Array = federation.X
    for position, size in enumerate(federation.sizes.tolist()):
        model = KMeans(min(n_clusters, size), n_init=1, random_state=0)
        model.fit(federation.client(position))
        scores.append(clustering_accuracy(federation.y, model.predict(everyone)))
    return Compared(
        "k-means, a client alone",
        "learns from one client's rows, is asked about everyone's; mean over clients",
        float(np.mean(scores)),
        (min(scores), max(scores)),
    )


def verdict(methods: list[dict[str, Any]]) -> str:
    """Who won, in words."""
    ours, pooled, alone = (m["accuracy"] for m in methods)
    gap = ours - pooled
    points = f"{abs(gap) * 100:.1f} points"
    if abs(gap) < LEVEL:
        against = f"FedMGS is level with k-means on the pooled rows ({points} apart)"
    elif gap > 0:
        against = f"FedMGS is {points} better than k-means on the pooled rows"
    else:
        against = f"k-means on the pooled rows is {points} better than FedMGS"
    behind = f"A client alone stays {(ours - alone) * 100:.0f} points behind."
    return f"{against}, and no row had to move. {behind}"

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coterie.metrics import clustering_accuracy
from coterie.report import tallies
from coterie.report.reading import Labels, read_runs

# three clients, three clusters (the last without rows), two classes
LABELS = Labels(
    clients=np.array([0, 0, 0, 1, 1, 2]),
    client_ids=("a", "b", "c"),
    clusters=np.array([1, 1, 0, 0, 0, 1]),
    n_clusters=3,
    classes=np.array([0, 0, 1, 1, 0, 0]),
    class_names=("x", "y"),
)


def test_clusters_by_client_counts_rows() -> None:
    grid = tallies.clusters_by_client(LABELS, most=60)
    found = {
        (name, k): int(grid.counts[i, j])
        for i, name in enumerate(grid.names)
        for j, k in enumerate(grid.clusters)
    }
    assert found == {
        **{("a", 0): 1, ("a", 1): 2, ("a", 2): 0},
        **{("b", 0): 2, ("b", 1): 0, ("b", 2): 0},
        **{("c", 0): 0, ("c", 1): 1, ("c", 2): 0},
    }
    assert grid.names[1] == "a"  # between the two that have nothing in common
    assert grid.clusters[-1] == 2  # nobody has it


def test_only_the_largest_clients_are_kept() -> None:
    grid = tallies.clusters_by_client(LABELS, most=2)
    assert set(grid.names) == {"a", "b"}


def test_confusion_puts_matched_clusters_on_the_diagonal() -> None:
    grid = tallies.confusion(LABELS)
    assert grid is not None
    assert grid.names == ("x", "y")
    assert grid.clusters == (1, 0, 2)
    np.testing.assert_array_equal(grid.counts, [[3, 1, 0], [0, 2, 0]])
    assert grid.matched == {(0, 0), (1, 1)}


@pytest.mark.parametrize(("n_classes", "n_clusters"), [(4, 4), (2, 5), (5, 2)])
def test_accuracy_is_that_of_the_metric(n_classes: int, n_clusters: int) -> None:
    rng = np.random.default_rng(n_classes)
    labels = Labels(
        clients=np.zeros(50, dtype=np.int64),
        client_ids=("a",),
        clusters=rng.integers(0, n_clusters, 50),
        n_clusters=n_clusters,
        classes=rng.integers(0, n_classes, 50),
        class_names=tuple("abcde"[:n_classes]),
    )
    expected = clustering_accuracy(labels.classes, labels.clusters)
    assert tallies.accuracy(labels) == pytest.approx(expected, abs=1e-12)


def test_majorities() -> None:
    assert tallies.majorities(LABELS) == [
        tallies.Majority(0, 3, "y", 2 / 3),
        tallies.Majority(1, 3, "x", 1.0),
        tallies.Majority(2, 0, None, 0.0),
    ]


def test_telling_features_weigh_clusters_by_size() -> None:
    means = np.array([[0.0, 1.0, 5.0], [0.0, 3.0, 5.5], [np.nan, np.nan, np.nan]])
    assert tallies.telling_features(means, LABELS, most=2).tolist() == [1, 2]


def test_traffic_by_phase_adds_up(demo: Path) -> None:
    (run,) = read_runs([demo])
    phases = tallies.traffic_by_phase(run.exchanges)
    assert [found.phase for found in phases] == ["measure", "seed", "sums", "round", "score"]
    assert sum(found.exchanges for found in phases) == len(run.exchanges)
    assert sum(found.traffic.up for found in phases) == run.traffic.up
    assert sum(found.traffic.framing_down for found in phases) == run.traffic.framing_down


def test_series_count_what_was_sent_before(demo: Path) -> None:
    (run,) = read_runs([demo])
    found = tallies.series(run, "objective")
    sent = np.cumsum([e.record.bytes_up for e in run.exchanges])
    assert found.rounds == list(range(run.n_rounds + 1))
    assert found.sent_up == sent[2:-1].tolist()  # after measure and seed, before score
    assert tallies.series(run, "nothing of the kind").values == []

"""Sentences about runs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coterie.report import tallies
from coterie.report.numbers import count, duration, number, percent, size
from coterie.report.reading import Run

ABOUT = (
    "Federated clustering sorts the rows of many owners, the clients, into clusters without "
    "collecting them in one place. A server sends requests, the clients reply with summaries of "
    "their rows, and this is repeated round after round."
)

SCHEMES = {
    "iid": "Rows were dealt out evenly and at random.",
    "sorted_by_label": "Rows were sorted by label and cut into equal runs, one a client.",
    "by_classes": "Each client got rows of {classes_per_client} classes only.",
    "dirichlet": (
        "Each class was split over the clients in proportions drawn from a Dirichlet distribution."
    ),
    "power_law": "Rows were dealt out at random, to clients whose sizes follow a power law.",
    "by_similarity": "Each client got rows that are alike.",
}

CROSSED = "Requests with centers on the way down; replies with sums, counts and centers up."

STILL = "Replies can still tell something about rows, the more so the fewer rows a client has."

ENGINES = {
    "simulation": "The clients were simulated in one process: bytes are those of the messages "
    "that a network would have carried.",
    "processes": "Each client was a process of its own on one machine: bytes are those of the "
    "messages between them.",
}


def title(runs: Sequence[Run]) -> str:
    """What the page is about."""
    if len(runs) > 1:
        return f"{len(runs)} runs of federated clustering, side by side"
    run = runs[0]
    if run.comparison is not None:
        return run.comparison.title
    facts = run.facts
    return f"{facts.name}: {count(facts.n_samples, 'row')} at {count(facts.n_clients, 'client')}"


def clustered(run: Run) -> str:
    """What was clustered."""
    facts = run.facts
    rows = (
        f"{count(facts.n_samples, 'row')} of {count(facts.n_features, 'feature')} each "
        f"({facts.name}), owned by {count(facts.n_clients, 'client')}"
    )
    return f"{rows}{_sizes(run)}. {_dealt(run)}".strip()


def _sizes(run: Run) -> str:
    if run.labels is None or run.facts.n_clients == 1:
        return ""
    sizes = np.bincount(run.labels.clients)
    least, greatest = int(sizes.min()), int(sizes.max())
    return f" with {_between(least, greatest)} rows each"


def _between(least: int, greatest: int) -> str:
    return count(least) if least == greatest else f"{count(least)} to {count(greatest)}"


def _dealt(run: Run) -> str:
    partition = run.tables.get("partition")
    if partition is not None:
        scheme = str(partition.get("scheme"))
        words = SCHEMES.get(scheme, f"Rows were dealt out by the scheme {scheme!r}.")
        return words.replace("{classes_per_client}", str(partition.get("classes_per_client")))
    column = run.tables.get("data", {}).get("client")
    return "" if column is None else f"The column {column!r} says who owns a row."


def method(run: Run) -> str:
    """With what it was clustered."""
    table: Mapping[str, Any] = run.tables.get("algorithm", {})
    n_clusters = table.get("n_clusters")
    looked = run.algorithm + ("" if n_clusters is None else f", looking for {n_clusters} clusters")
    return f"{looked}. {_cohort(table)}"


def _cohort(table: Mapping[str, Any]) -> str:
    chosen = table.get("clients_per_round", "none")
    if isinstance(chosen, int):
        return f"{count(chosen, 'client')} took part in a round."
    if isinstance(chosen, float) and chosen < 1:
        return f"{number(chosen * 100)}% of the clients took part in a round."
    return "All clients took part in every round."


def outcome(run: Run) -> str:
    """What came out."""
    took = f"{count(run.n_rounds, 'round')} in {duration(run.seconds)}."
    if run.labels is None:
        return f"{took} The run has not finished. {_so_far(run)}".strip()
    sizes = np.bincount(run.labels.clusters, minlength=run.labels.n_clusters)
    held = sizes[sizes > 0]
    found = f"{count(len(held), 'cluster')} of {_between(int(held.min()), int(held.max()))} rows."
    return f"{took} {found} {agreement(run)}".strip()


def _so_far(run: Run) -> str:
    scores = tallies.series(run, "accuracy").values
    if not scores:
        return ""
    return f"So far, {percent(scores[-1])} of the rows are in the cluster of their true label."


def agreement(run: Run) -> str:
    """How clusters and true labels agree, where these are known."""
    score = None if run.labels is None else tallies.accuracy(run.labels)
    if score is None:
        return "No true labels are known, so there is no accuracy."
    return (
        f"{percent(score)} of the rows are in the cluster that matches their true label: that is "
        "the accuracy. True labels served to score, never to cluster."
    )


def stayed(run: Run) -> str:
    """What never left the clients."""
    facts = run.facts
    return (
        f"The rows, {count(facts.n_samples)} × {count(facts.n_features)} numbers (as a table of "
        f"{facts.dtype}), and the private state that clients keep between rounds."
    )


def proportion(run: Run) -> str:
    """How what crossed compares with what stayed."""
    traffic, rows = run.traffic, run.facts.n_bytes
    framing = traffic.framing_down + traffic.framing_up
    crossed = traffic.down + traffic.up + framing
    if not crossed:
        return ""
    whole = f"With {size(framing)} of framing, that is"
    if crossed < rows:
        return f"{whole} {percent(crossed / rows)} of what the rows weigh."
    times = number(crossed / rows)
    return (
        f"{whole} {times} times what the rows weigh: they stay for the sake of their owners, not "
        "to save traffic."
    )


def caveats(runs: Sequence[Run]) -> str:
    """What a reader should keep in mind: where clients were, and what replies may tell."""
    engines = (str(run.tables.get("run", {}).get("engine", "simulation")) for run in runs)
    said = [ENGINES[name] for name in dict.fromkeys(engines) if name in ENGINES]
    alone = "What a client with a single row sends may all but tell that row."
    sparse = any(run.labels is not None and 1 in np.bincount(run.labels.clients) for run in runs)
    return " ".join([*said, STILL, *([alone] if sparse else [])])


def resume(run: Run) -> str:
    """The command that goes on with a run."""
    return f"coterie run --resume --out {shlex.quote(str(run.path))}"


def course(run: Run, measure: str) -> str:
    """A measure's course, for those who cannot see the chart."""
    values = tallies.series(run, measure).values
    if not values:
        return f"{run.name}: not recorded"
    show = percent if measure == "accuracy" else number
    return f"{run.name}: from {show(values[0])} to {show(values[-1])}"

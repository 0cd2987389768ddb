"""Run folders as plain values: all that a report knows."""

from __future__ import annotations

import contextlib
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coterie.backend import Array
from coterie.errors import InputError, RunFolderError
from coterie.experiments.folder import (
    COMPARISON,
    CONFIG,
    ENVIRONMENT,
    MODEL,
    RESULT,
    ROUNDS,
    RunFolder,
)
from coterie.protocol import Traffic
from coterie.rounds import Round


@dataclass(frozen=True)
class Facts:
    """What a run's folder says of its rows."""

    name: str
    n_samples: int
    n_features: int
    n_clients: int
    dtype: str
    image_shape: tuple[int, ...] | None
    class_names: tuple[str, ...] | None
    feature_names: tuple[str, ...]

    @property
    def n_bytes(self) -> int:
        """What the rows weigh as a dense table."""
        return self.n_samples * self.n_features * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Exchange:
    """The record of an exchange, and all finite numbers that go with it, by name."""

    record: Round
    measures: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Labels:
    """What the run says of each row; clients and classes are positions in lists of names."""

    clients: Array
    client_ids: tuple[str, ...]
    clusters: Array
    n_clusters: int
    classes: Array | None
    class_names: tuple[str, ...]


@dataclass(frozen=True)
class Method:
    """What a method reaches on the rows of a run."""

    name: str
    words: str
    accuracy: float
    spread: tuple[float, float] | None


@dataclass(frozen=True)
class Comparison:
    """A run's scene, and other methods on the same rows."""

    title: str
    story: str
    methods: tuple[Method, ...]
    verdict: str


@dataclass(frozen=True, eq=False)
class Run:
    """All that a report knows of a run. What only a finished run has is None before."""

    name: str
    path: Path
    tables: Mapping[str, Mapping[str, Any]]
    config: str
    versions: Mapping[str, str]
    facts: Facts
    exchanges: tuple[Exchange, ...]
    comparison: Comparison | None
    labels: Labels | None
    means: Array | None

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.labels is not None

    @property
    def algorithm(self) -> str:
        """The algorithm's name."""
        return str(self.tables.get("algorithm", {}).get("name", "an unnamed algorithm"))

    @property
    def n_rounds(self) -> int:
        """Rounds so far."""
        return max((e.record.round for e in self.exchanges), default=0)

    @property
    def seconds(self) -> float:
        """How long the exchanges took."""
        return sum(e.record.seconds for e in self.exchanges)

    @property
    def traffic(self) -> Traffic:
        """What crossed the network in all."""
        return sum((e.record.traffic for e in self.exchanges), Traffic())


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Read run folders; one that is given twice is read once."""
    paths = list({path.resolve(): path for path in map(Path, folders)}.values())
    if not paths:
        raise InputError("no run folder was given; give one or more, as `coterie run` makes them")
    names = [path.resolve().name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    return [_read(path, name) for path, name in zip(paths, names, strict=True)]


def _read(path: Path, name: str) -> Run:
    folder = RunFolder.open(path)
    with _understood(path / CONFIG):
        config = (path / CONFIG).read_text(encoding="utf-8")
        tables = {name: dict(table) for name, table in tomllib.loads(config).items()}
    with _understood(path / ENVIRONMENT):
        environment = folder.read_json(ENVIRONMENT)
        facts, versions = _facts(environment["data"]), _versions(environment)
    with _understood(path / ROUNDS):
        exchanges = tuple(_exchange(record) for record in folder.rounds())
    with _understood(path / COMPARISON):
        compared = (path / COMPARISON).is_file()
        comparison = _comparison(folder.read_json(COMPARISON)) if compared else None
    labels, means = None, None
    if folder.finished:
        with _understood(path / MODEL):
            means = folder.load_model().get("means")
        with _understood(path / RESULT):
            labels = _labels(folder.read_result(), facts, 0 if means is None else len(means))
    return Run(name, path, tables, config, versions, facts, exchanges, comparison, labels, means)


@contextlib.contextmanager
def _understood(path: Path) -> Iterator[None]:
    """Turn what goes wrong with odd contents into an error that names the file."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunFolderError(
            f"{str(path)!r} does not hold what a run writes there: {error!r}; restore the file, "
            "or run the configuration again in another folder"
        ) from error


def _facts(data: Mapping[str, Any]) -> Facts:
    np.dtype(data["dtype"])  # an unknown one is an error of this file
    shape, names = data["image_shape"], data["class_names"]
    return Facts(
        name=str(data["name"]),
        n_samples=int(data["n_samples"]),
        n_features=int(data["n_features"]),
        n_clients=int(data["n_clients"]),
        dtype=str(data["dtype"]),
        image_shape=None if shape is None else tuple(int(side) for side in shape),
        class_names=None if names is None else tuple(str(name) for name in names),
        feature_names=_feature_names(data.get("feature_names"), int(data["n_features"])),
    )


def _versions(environment: Mapping[str, Any]) -> dict[str, str]:
    """What the environment says besides of the rows."""
    plain = {name: value for name, value in environment.items() if isinstance(value, str)}
    return plain | {name: str(value) for name, value in environment["packages"].items()}


def _feature_names(names: Sequence[Any] | None, n_features: int) -> tuple[str, ...]:
    """As the folder has them; numbers where it has none."""
    if names is None or len(names) != n_features:
        return tuple(f"feature {j}" for j in range(n_features))
    return tuple(str(name) for name in names)


def _exchange(line: Mapping[str, Any]) -> Exchange:
    record = Round.from_record(line)
    numbers = {"objective": record.objective, **record.metrics, **line.get("evaluation", {})}
    return Exchange(
        record,
        {k: float(v) for k, v in numbers.items() if v is not None and math.isfinite(v)},
    )


def _comparison(value: Mapping[str, Any]) -> Comparison:
    methods = [
        Method(str(m["name"]), str(m["words"]), float(m["accuracy"]), _spread(m["spread"]))
        for m in value["methods"]
    ]
    verdict = str(value.get("verdict", ""))
    return Comparison(str(value["title"]), str(value["story"]), tuple(methods), verdict)


def _spread(value: Sequence[float] | None) -> tuple[float, float] | None:
    if value is None:
        return None
    least, greatest = value
    return float(least), float(greatest)


def _labels(columns: Mapping[str, Array], facts: Facts, n_clusters: int) -> Labels:
    client_ids, clients = np.unique(columns["client"].astype(str), return_inverse=True)
    clusters = np.asarray(columns["label"], dtype=np.int64)
    truth, classes, found = columns.get("truth"), None, []
    if truth is not None:
        names, classes = np.unique(_comparable(truth), return_inverse=True)
        found = names.tolist()
    return Labels(
        clients=clients,
        client_ids=tuple(client_ids.tolist()),
        clusters=clusters,
        n_clusters=max(n_clusters, int(clusters.max(initial=-1)) + 1),
        classes=classes,
        class_names=tuple(_class_name(value, facts.class_names) for value in found),
    )


def _comparable(values: Array) -> Array:
    return values.astype(str) if values.dtype.kind == "O" else values


def _class_name(value: Any, names: tuple[str, ...] | None) -> str:
    if names is not None and isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    return str(value)

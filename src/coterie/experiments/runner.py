"""Run a configuration into a folder, from the start or from where it stopped."""

from __future__ import annotations

import inspect
import platform
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from coterie import codec
from coterie._version import __version__
from coterie.backend import available_threads
from coterie.block import Block
from coterie.data import partition
from coterie.data.datasets import DATASETS, Dataset
from coterie.data.federation import Federation
from coterie.engines.processes import Processes
from coterie.errors import CheckpointError, ConfigError
from coterie.estimators import estimator_type
from coterie.estimators.rows import RowClusterer
from coterie.estimators.session import Session
from coterie.experiments.config import OF_THE_RUN, Config, nearest
from coterie.experiments.folder import ENVIRONMENT, RunFolder
from coterie.metrics import clustering_accuracy
from coterie.rounds import Checkpoint, Round

SPARE = 20  # a checkpoint is written when the time since the last is so many times what it cost
PACKAGES = ("numpy", "scipy", "scikit-learn", "pydantic", "safetensors", "pyarrow")

Record = Mapping[str, Any]
OnRound = Callable[[Record], None]


@dataclass(frozen=True)
class Rows:
    """The rows of a run, and what people want to know of them."""

    federation: Federation
    name: str
    image_shape: tuple[int, ...] | None = None
    class_names: tuple[str, ...] | None = None


def load_rows(config: Config) -> Rows:
    """The rows that a configuration names, with their owners."""
    table = config.data
    if table.path is not None:
        if config.partition is not None:
            raise ConfigError("[partition] was given beside data.path, whose rows have owners")
        federation = Federation.from_parquet(table.path, table.client or "", table.label)
        return Rows(federation, table.path.name, table.image_shape)
    loader = DATASETS[table.name or ""].loader
    allowed = inspect.signature(loader).parameters
    for option in table.options:
        if option not in allowed:
            raise ConfigError(f"unknown key 'data.options.{option}'{nearest(option, allowed)}")
    found = loader(**table.options)
    dataset = (
        found if isinstance(found, Dataset) else Dataset(found[0], found[1], table.name or "", "")
    )
    clients = None if config.partition is None else _owners(config, dataset)
    shape = table.image_shape or dataset.image_shape
    return Rows(dataset.federation(clients), dataset.name, shape, dataset.class_names)


def _owners(config: Config, dataset: Dataset) -> Any:
    options = config.partition.model_dump()
    scheme = getattr(partition, options.pop("scheme"))
    looks_at = {"rows": len(dataset.y), "y": dataset.y, "X": dataset.X}
    first = next(iter(inspect.signature(scheme).parameters))
    return scheme(looks_at[first], **options)


def make_estimator(config: Config, engine_folder: Path) -> RowClusterer:
    """The estimator that a configuration names."""
    options = {k: getattr(config.algorithm, k) for k in type(config.algorithm).model_fields}
    kind = estimator_type(options.pop("name"))
    of_run = {k: getattr(config.run, k) for k in OF_THE_RUN if hasattr(config.run, k)}
    if config.run.engine == "processes":
        of_run["engine"] = partial(Processes, folder=engine_folder)
    return kind(**options, **of_run)


def run(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    on_round: OnRound | None = None,
    stop: Callable[[], bool] | None = None,
) -> RunFolder:
    """Run a configuration into a folder.

    Parameters
    ----------
    config : Config
    out : Path
        The run's folder; new, unless `resume`.
    resume : bool
        Go on from the folder's last checkpoint; a run that had ended is left as it is.
    on_round : callable, optional
        Gets each record as it is written.
    stop : callable, optional
        Asked after every exchange; where it says True the run is saved and left.

    Returns
    -------
    folder : RunFolder
        `RunFolder.finished` says whether the run came to its end.
    """
    if resume:
        folder = RunFolder.open(out)
        _check_same(folder.config(), config)
        if folder.finished:
            return folder
    rows = load_rows(config)
    facts = describe(rows)
    if not resume:
        folder = RunFolder.create(out, config, _environment(facts))
    environment = folder.read_json(ENVIRONMENT)
    if environment["data"]["fingerprint"] != facts["fingerprint"]:
        raise CheckpointError(
            f"{str(out)!r} was run on other rows than are there now: their fingerprints differ"
        )
    estimator = make_estimator(config, out / "state" / "clients")
    session = estimator.session(rows.federation)
    try:
        driver = _Driver(folder, session, environment["run"], config.run.evaluate_every)
        if driver.drive(on_round or _silent, stop or _never):
            _write_result(folder, estimator.adopt(session), rows)
    finally:
        session.engine.close()
    return folder


def _silent(record: Record) -> None:
    """What is done with a record when nobody looks."""


def _never() -> bool:
    return False


class _Driver:
    """Takes a session from round to round, and keeps the folder up to date."""

    def __init__(self, folder: RunFolder, session: Session, run: str, evaluate_every: int) -> None:
        self._folder = folder
        self._session = session
        self._run = run
        self._every = evaluate_every
        self._block: Block = session.federation.block()
        self._saved_at = time.perf_counter()
        self._cost = 0.0

    def drive(self, on_round: OnRound, stop: Callable[[], bool]) -> bool:
        """Run to the end, or until told to stop; True at the end."""
        checkpoint = self._resume()
        record: Round | None = None
        for record in self._session.rounds(run=self._run, resume=checkpoint):
            line = self._with_evaluation(record)
            self._folder.append_round(line)
            on_round(line)
            stopping = stop()
            if stopping or self._due():
                self._save(record)
            if stopping:
                return False
        if record is not None:
            self._save(record)
        return True

    def _resume(self) -> Checkpoint | None:
        """The last checkpoint; records of later exchanges go, since these will be run again."""
        checkpoint = self._folder.load_checkpoint(self._run)
        step = 0 if checkpoint is None else checkpoint.step
        records = [r for r in self._folder.rounds() if r["step"] < step]
        self._folder.keep_rounds(records)
        self._session.history.extend(Round.from_record(r) for r in records)
        if checkpoint is not None:
            self._session.state = checkpoint.state
        return checkpoint

    def _with_evaluation(self, record: Round) -> dict[str, Any]:
        line = record.record()
        truth = self._session.federation.y
        state = record.state
        if truth is None or state is None or not self._every or record.objective is None:
            return line
        if record.round % self._every == 0:
            algorithm = self._session.algorithm
            labels = algorithm.assign(algorithm.model(state), self._block)
            line["evaluation"] = {"accuracy": clustering_accuracy(truth, labels)}
        return line

    def _due(self) -> bool:
        return time.perf_counter() - self._saved_at >= SPARE * self._cost

    def _save(self, record: Round) -> None:
        began = time.perf_counter()
        state = self._session.final_state()
        checkpoint = Checkpoint(state, record.step + 1, self._session.engine.snapshot())
        self._folder.save_checkpoint(checkpoint, self._run)
        self._saved_at = time.perf_counter()
        self._cost = self._saved_at - began


def _write_result(folder: RunFolder, estimator: RowClusterer, rows: Rows) -> None:
    federation = rows.federation
    owners = np.repeat(np.arange(federation.n_clients), federation.sizes)
    ids = np.array([str(i) for i in federation.client_ids.tolist()])
    columns = {
        "row": np.arange(federation.n_samples),
        "client": ids[federation.scatter(owners)],
        "label": estimator.labels_,
    }
    if federation.y is not None:
        columns["truth"] = federation.scatter(federation.y)
    folder.save_model({"centers": estimator.cluster_centers_, "means": estimator.cluster_means_})
    folder.write_result(columns)


def _check_same(kept: Config, given: Config) -> None:
    for name in type(kept).model_fields:
        a, b = getattr(kept, name), getattr(given, name)
        if a != b:
            raise ConfigError(
                f"--resume was given with another [{name}] than the run began with: {b!r}, not "
                f"{a!r}; leave the configuration out to go on as it began"
            )


def describe(rows: Rows) -> dict[str, Any]:
    """What a run's folder says of its rows."""
    federation = rows.federation
    x = federation.x
    arrays = (
        {"data": x.data, "indices": x.indices} if hasattr(x, "indptr") else {"x": np.asarray(x)}
    )
    return {
        "name": rows.name,
        "n_samples": federation.n_samples,
        "n_features": federation.n_features,
        "n_clients": federation.n_clients,
        "feature_names": federation.feature_names,
        "dtype": str(x.dtype),
        "image_shape": rows.image_shape,
        "class_names": rows.class_names,
        "fingerprint": codec.checksum({**arrays, "offsets": federation.offsets}),
    }


def _environment(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "run": secrets.token_hex(8),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "coterie": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {available_threads()} processors",
        "packages": {name: version(name) for name in PACKAGES},
        "data": dict(data),
    }

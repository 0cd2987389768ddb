"""Configurations: what is taken, what is refused and in which words, and that they round-trip."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest

from coterie.errors import ConfigError
from coterie.estimators import ESTIMATORS, estimator_type
from coterie.estimators.declaration import RunParameters
from coterie.experiments.config import OF_THE_RUN, algorithm_table, load_config, make_config
from coterie.parameters import Diminishing, parameters

TABLES: dict[str, Any] = {
    "data": {"name": "digits"},
    "partition": {"scheme": "by_classes", "n_clients": 20},
    "algorithm": {"name": "FedMGS", "n_clusters": 10},
}


def changed(**changes: Any) -> dict[str, Any]:
    """TABLES with ``table__key=value`` changes."""
    tables = copy.deepcopy(TABLES)
    for path, value in changes.items():
        table, _, key = path.partition("__")
        tables.setdefault(table, {})[key] = value
    return tables


def test_defaults_are_those_of_the_algorithm() -> None:
    config = make_config(TABLES)
    assert config.algorithm.n_clusters == 10
    for p in parameters(estimator_type("FedMGS").algorithm_type):
        if p.name != "n_clusters":
            assert getattr(config.algorithm, p.name) == p.default, p.name


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_a_table_takes_what_its_algorithm_declares_and_no_more(name: str) -> None:
    declared = {p.name for p in parameters(estimator_type(name).algorithm_type)}
    of_the_cohort = {p.name for p in parameters(RunParameters)} - set(OF_THE_RUN)
    assert set(algorithm_table(name).model_fields) == declared | of_the_cohort | {"name"}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"algorithm__offset": "none", "algorithm__penalty_every": "none"},
        {"algorithm__center_steps": {"start": 30}, "algorithm__bounds": [0, 16]},
        {"algorithm__clients_per_round": 0.5, "run__dtype": "float32"},
        {"data__options": {}, "partition__classes_per_client": 3, "run__random_state": 7},
    ],
)
def test_what_is_written_reads_as_it_was(changes: dict[str, Any]) -> None:
    config = make_config(changed(**changes))
    again = make_config(tomllib.loads(config.to_toml()))
    assert again == config
    assert again.to_toml() == config.to_toml()


def test_none_and_nested_values_arrive() -> None:
    config = make_config(changed(algorithm__offset="none", algorithm__center_steps={"start": 30}))
    assert config.algorithm.offset is None
    assert config.algorithm.center_steps == Diminishing(30)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm__n_cluster": 3}, ["algorithm.n_cluster", "did you mean 'n_clusters'"]),
        ({"algorithm__n_clusters": 0}, ["algorithm.n_clusters = 0", "int >= 1"]),
        ({"algorithm__tol": "x"}, ["algorithm.tol = 'x'", "float"]),
        ({"algorithm__penalty": float("nan")}, ["algorithm.penalty", "'auto'"]),
        ({"algorithm__name": "FedMG"}, ["FedMG", "did you mean 'FedMGS'"]),
        ({"algorithm__center_steps": {"strt": 1}}, ["algorithm.center_steps"]),
        ({"data__names": 3}, ["data.names", "did you mean 'name'"]),
        ({"data__name": "digit"}, ["digit", "did you mean 'digits'"]),
        ({"data__path": "rows.parquet"}, ["either name", "path"]),
        ({"partition__scheme": "by_class"}, ["by_class", "did you mean 'by_classes'"]),
        ({"partition__classes": 2}, ["partition.classes"]),
        ({"partition__n_clients": "many"}, ["partition.n_clients = 'many'"]),
        ({"run__engin": "simulation"}, ["run.engin", "did you mean 'engine'"]),
        ({"run__engine": "cluster"}, ["run.engine = 'cluster'"]),
        ({"rnu__engine": "simulation"}, ["rnu", "did you mean 'run'"]),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        make_config(changed(**changes))
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize("missing", ["data", "algorithm"])
def test_a_missing_table_is_named(missing: str) -> None:
    tables = {name: table for name, table in TABLES.items() if name != missing}
    with pytest.raises(ConfigError, match=f"'{missing}' is missing"):
        make_config(tables)


def test_a_path_needs_the_column_of_clients() -> None:
    tables = {"data": {"path": "rows.parquet"}, "algorithm": {"name": "FedMGS"}}
    with pytest.raises(ConfigError, match="client"):
        make_config(tables)


# -- files ----------------------------------------------------------------------------------------


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_with_changes(tmp_path: Path) -> None:
    path = write(tmp_path / "run.toml", make_config(TABLES).to_toml())
    changes = ["algorithm.n_clusters=4", "run.dtype=float32", 'partition.scheme="iid"']
    with pytest.raises(ConfigError, match="classes_per_client"):
        load_config(path, changes)  # iid has no such option, and says so
    config = load_config(path, changes[:2])
    assert (config.algorithm.n_clusters, config.run.dtype) == (4, "float32")


def test_a_path_is_meant_from_the_file(tmp_path: Path) -> None:
    text = '[data]\npath = "rows.parquet"\nclient = "who"\n[algorithm]\nname = "FedMGS"\n'
    config = load_config(write(tmp_path / "run.toml", text))
    assert config.data.path == tmp_path / "rows.parquet"


@pytest.mark.parametrize("change", ["n_clusters=3", "algorithm.n_clusters", "=3", "a.b.c=1"])
def test_a_change_that_cannot_be_is_refused(tmp_path: Path, change: str) -> None:
    path = write(tmp_path / "run.toml", make_config(TABLES).to_toml())
    with pytest.raises(ConfigError):
        load_config(path, [change])


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"[data\n", "not TOML"), (b"\xff\xfe", "not a text file"), (None, "cannot be read")],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "run.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        load_config(path)

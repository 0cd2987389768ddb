"""A run as a TOML file, and the same checked.

The tables ``[data]``, ``[partition]``, ``[algorithm]`` and ``[run]`` are pydantic models. What an
algorithm takes comes from its own declaration and what a partition takes from its signature, so
that there is no second list to keep.
"""

from __future__ import annotations

import inspect
import tomllib
import typing
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from annotated_types import Ge
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator

from coterie.data import partition
from coterie.data.datasets import DATASETS
from coterie.errors import ConfigError
from coterie.estimators import ESTIMATORS, estimator_type
from coterie.estimators.declaration import RunParameters
from coterie.parameters import parameters

SCHEMES = ("iid", "sorted_by_label", "by_classes", "dirichlet", "power_law", "by_similarity")
OF_THE_RUN = ("random_state", "engine", "device", "dtype", "verbose")


NONE = "none"  # TOML has no word for it


class Table(BaseModel):
    """A table of the file: keys that it does not know are errors, and "none" is None."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _read_none(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return {key: None if value == NONE else value for key, value in values.items()}

    def plain(self) -> dict[str, Any]:
        """As the file has it; what is None by default is left out."""
        fields = type(self).model_fields
        values = self.model_dump(mode="json")
        return {
            key: NONE if value is None else value
            for key, value in values.items()
            if not (value is None and fields[key].default is None) and value != {}
        }


class DataTable(Table):
    """Where rows come from."""

    name: str | None = Field(None, description="A data set that `coterie list datasets` names.")
    path: Path | None = Field(None, description="Or a Parquet file or folder of your own.")
    client: str | None = Field(None, description="With path: the column of client ids.")
    label: str | None = Field(None, description="With path: the column of labels, if any.")
    image_shape: tuple[int, int] | None = Field(None, description="Where rows are images.")
    options: dict[str, Any] = Field({}, description="Arguments of the data set's loader.")

    @model_validator(mode="after")
    def _one_source(self) -> DataTable:
        if (self.name is None) == (self.path is None):
            raise ValueError("give either name (a known data set) or path (a file of your own)")
        if self.name is not None and self.name not in DATASETS:
            raise ValueError(f"data set {self.name!r} is unknown{nearest(self.name, DATASETS)}")
        if self.path is not None and self.client is None:
            raise ValueError("with path, give client: the column that says who owns a row")
        return self


class RunTable(Table):
    """How the run is done."""

    random_state: Annotated[int, Ge(0)] = Field(0, description="Seeds all draws.")
    engine: Literal["simulation", "processes"] = "simulation"
    device: str = "cpu"
    dtype: Literal["float32", "float64"] | None = None
    evaluate_every: Annotated[int, Ge(0)] = Field(
        1, description="Rounds between evaluations against labels, where there are any; 0: never."
    )


class Config(Table):
    """A whole run."""

    data: DataTable = Field(description="a table [data] that says where rows come from")
    partition: Any = Field(None, description="a table [partition] with a scheme")
    algorithm: Any = Field(description="a table [algorithm] with a name")
    run: RunTable = Field(default_factory=lambda: RunTable.model_validate({}))

    @model_validator(mode="before")
    @classmethod
    def _tables(cls, values: Any) -> Any:
        """The models of the tables whose keys depend on what they name."""
        if not isinstance(values, Mapping):
            return values
        values = dict(values)
        for name, key, choices, model in (
            ("algorithm", "name", tuple(ESTIMATORS), algorithm_table),
            ("partition", "scheme", SCHEMES, partition_table),
        ):
            table = values.get(name)
            if table is None:
                continue
            chosen = table.get(key) if isinstance(table, Mapping) else None
            if chosen not in choices:
                raise ValueError(
                    f"[{name}] {key} = {chosen!r}; expected one of {', '.join(choices)}"
                    f"{nearest(str(chosen), choices)}"
                )
            values[name] = _validated(model(chosen), table, (name,))
        return values

    def to_toml(self) -> str:
        """The file that gives this configuration, all defaults written out."""
        tables = {name: getattr(self, name) for name in type(self).model_fields}
        return tomli_w.dumps({n: table.plain() for n, table in tables.items() if table is not None})


@cache
def algorithm_table(name: str) -> type[BaseModel]:
    """The model of ``[algorithm]`` for one algorithm, from its declaration."""
    algorithm = estimator_type(name).algorithm_type
    declared = [*parameters(algorithm), *parameters(RunParameters)]
    fields: dict[str, Any] = {
        p.name: (p.annotation, Field(p.default, description=p.expected))
        for p in declared
        if p.name not in OF_THE_RUN
    }
    fields = {"name": (Literal[name], ...)} | fields
    return create_model(f"{name}Table", __base__=Table, **fields)


@cache
def partition_table(scheme: str) -> type[BaseModel]:
    """The model of ``[partition]`` for one scheme, from its signature."""
    function = getattr(partition, scheme)
    hints = typing.get_type_hints(function)
    _, *options = inspect.signature(function).parameters.values()
    fields: dict[str, Any] = {
        p.name: (hints[p.name], ... if p.default is p.empty else p.default)
        for p in options
        if p.name != "random_state"
    }
    fields["random_state"] = (Annotated[int, Ge(0)], 0)
    fields = {"scheme": (Literal[scheme], ...)} | fields
    return create_model(f"{scheme}Table", __base__=Table, **fields)


# -- reading --------------------------------------------------------------------------------------


def load_config(path: Path, changes: Sequence[str] = ()) -> Config:
    """Read a configuration file, with ``table.key=value`` changes to it.

    Parameters
    ----------
    path : Path
    changes : sequence of str
        As for ``--set``: values are TOML, or plain words.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"configuration {str(path)!r} cannot be read: {error.strerror or error}"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"configuration {str(path)!r} is not a text file: {error}") from error
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"configuration {str(path)!r} is not TOML: {error}") from error
    for change in changes:
        _apply(values, change)
    config = make_config(values)
    if config.data.path is not None:
        config.data.path = (path.parent / config.data.path).resolve()
    return config


def make_config(values: Mapping[str, Any]) -> Config:
    """A configuration from plain values, or a `ConfigError` that says what is wrong with them."""
    config: Config = _validated(Config, values, ())
    return config


def _apply(values: dict[str, Any], change: str) -> None:
    key, sign, text = change.partition("=")
    *tables, last = key.strip().split(".")
    if not sign or not tables or not last:
        raise ConfigError(f"--set {change!r}; expected table.key=value: algorithm.n_clusters=12")
    for name in tables:
        values = values.setdefault(name, {})
        if not isinstance(values, dict):
            raise ConfigError(f"--set {change!r}: {name!r} is not a table")
    values[last] = _value(text.strip())


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _validated(model: type[BaseModel], values: Any, where: tuple[str, ...]) -> Any:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_message(model, error, where)) from error


def _message(model: type[BaseModel], error: ValidationError, where: tuple[str, ...]) -> str:
    """The first thing that is wrong, in words."""
    first = error.errors()[0]
    if first["type"] == "value_error":
        return ": ".join([*where, *map(str, first["loc"]), str(first["ctx"]["error"])])
    *tables, key = first["loc"]
    for table in tables:
        inner = (
            model.model_fields[str(table)].annotation if str(table) in model.model_fields else None
        )
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            key = table  # the rest names a part of the value, or of its type
            break
        model, where = inner, (*where, str(table))
    name = ".".join([*where, str(key)])
    if first["type"] == "extra_forbidden":
        return f"unknown key {name!r}{nearest(str(key), model.model_fields)}"
    description = model.model_fields[str(key)].description or first["msg"]
    if first["type"] == "missing":
        return f"key {name!r} is missing: {description}"
    return f"{name} = {first['input']!r}; expected {description}"


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint at what was meant, or at all that there is."""
    near = get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(sorted(known))}"

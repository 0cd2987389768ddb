"""Hyper-parameters, declared once: types, bounds and words ride on a dataclass's annotations.

An algorithm writes ``n_clusters: Annotated[int, Ge(1), Doc("Number of clusters.")] = 8``. The
estimator's signature and docstring, the configuration file's schema and the command line's help
are all made from that line.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin

import numpy as np
from annotated_types import Ge
from typing_extensions import Doc

from coterie.errors import ParameterError


@dataclass(frozen=True)
class Diminishing:
    """Local steps that become fewer: ``start // round + 1`` of them in a round.

    Parameters
    ----------
    start : int
        The papers' Q-hat, not negative.
    """

    start: Annotated[int, Ge(0)]

    def __post_init__(self) -> None:
        start: Any = self.start
        if isinstance(start, bool) or not isinstance(start, (int, np.integer)) or start < 0:
            raise ParameterError(f"Diminishing({start!r}) was given; expected an int >= 0")


Steps = Annotated[int, Ge(1)] | Diminishing


def steps_in(steps: int | Diminishing, round: int) -> int:  # noqa: A002
    """How many local steps `steps` means in this round (counted from 1)."""
    return steps.start // max(round, 1) + 1 if isinstance(steps, Diminishing) else steps


@dataclass(frozen=True)
class Parameter:
    """One hyper-parameter, as declared."""

    name: str
    annotation: Any
    default: Any
    doc: str

    @property
    def kind(self) -> str:
        """The type in words."""
        return _words(self.annotation)

    @property
    def expected(self) -> str:
        """What a value must be, for a message."""
        return f"{self.kind}. {self.doc}" if self.doc else self.kind


@cache
def parameters(declaration: type) -> tuple[Parameter, ...]:
    """The hyper-parameters that a dataclass declares, in order."""
    hints = typing.get_type_hints(declaration, include_extras=True)
    return tuple(
        Parameter(field.name, hints[field.name], field.default, _doc(hints[field.name]))
        for field in dataclasses.fields(declaration)
        if field.init
    )


def check(declaration: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the types and within the bounds declared, or a `ParameterError`."""
    return {p.name: _check_one(p, values[p.name]) for p in parameters(declaration)}


def _check_one(parameter: Parameter, value: Any) -> Any:
    from pydantic import ValidationError

    plain = value.item() if isinstance(value, np.generic) else value
    plain = tuple(plain) if isinstance(plain, list) else plain
    try:
        return _adapter(parameter.annotation).validate_python(plain, strict=True)
    except ValidationError as error:
        raise ParameterError(
            f"{parameter.name}={value!r} was given; expected {parameter.expected}"
        ) from error


@cache
def _adapter(annotation: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(annotation)


def _doc(annotation: Any) -> str:
    notes = getattr(annotation, "__metadata__", ())
    return next((note.documentation for note in notes if isinstance(note, Doc)), "")


def _words(annotation: Any) -> str:
    """A type as a docstring shows it: "int >= 1 or Diminishing"."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
        bounds = [
            f"{signs[name]} {value:g}"
            for note in annotation.__metadata__
            if not isinstance(note, Doc)
            for name, value in dataclasses.asdict(note).items()
            if value < math.inf  # that a number is finite goes without saying
        ]
        return " ".join([_words(inner[0]), ", ".join(bounds)]).rstrip()
    if origin is typing.Literal:
        return " or ".join(repr(value) for value in inner)
    if origin is tuple:
        return f"({', '.join(_words(a) for a in inner)})"
    if inner:
        return " or ".join(dict.fromkeys(_words(a) for a in inner))
    return "None" if annotation is type(None) else str(annotation.__name__)

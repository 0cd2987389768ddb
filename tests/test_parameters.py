"""Hyper-parameters, declared once on a dataclass, and checked from there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from annotated_types import Ge, Gt, Le
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import Doc

from coterie.errors import InputError, ParameterError
from coterie.parameters import Diminishing, Steps, check, parameters, steps_in


@dataclass(frozen=True)
class Declared:
    n_clusters: Annotated[int, Ge(1), Doc("Number of clusters.")] = 8
    share: Annotated[float, Gt(0), Le(1)] = 0.5
    steps: Steps = 10
    bounds: Literal["data"] | tuple[float, float] = "data"
    every: Annotated[int, Ge(1)] | None = None
    quiet: bool = False
    made: int = field(default=3, init=False)


DEFAULTS: dict[str, Any] = {
    "n_clusters": 8,
    "share": 0.5,
    "steps": 10,
    "bounds": "data",
    "every": None,
    "quiet": False,
}


def test_parameters_are_the_fields_of_init_in_order() -> None:
    assert [p.name for p in parameters(Declared)] == list(DEFAULTS)
    assert {p.name: p.default for p in parameters(Declared)} == DEFAULTS


def test_types_and_bounds_are_told_in_words() -> None:
    kinds = {p.name: p.kind for p in parameters(Declared)}
    assert kinds == {
        "n_clusters": "int >= 1",
        "share": "float > 0, <= 1",
        "steps": "int >= 1 or Diminishing",
        "bounds": "'data' or (float, float)",
        "every": "int >= 1 or None",
        "quiet": "bool",
    }
    first = parameters(Declared)[0]
    assert first.doc == "Number of clusters."
    assert first.expected == "int >= 1. Number of clusters."


@pytest.mark.parametrize(
    "right",
    [
        {},
        {"n_clusters": 1},
        {"n_clusters": np.int64(3)},
        {"share": 1},
        {"share": np.float32(0.25)},
        {"steps": Diminishing(0)},
        {"bounds": (0.0, 1.0)},
        {"bounds": [0, 1]},
        {"every": 2},
        {"every": None},
        {"quiet": np.True_},
    ],
)
def test_values_within_bounds_pass(right: dict[str, Any]) -> None:
    checked = check(Declared, DEFAULTS | right)
    for name, value in (DEFAULTS | right).items():
        plain = tuple(value) if isinstance(value, list) else value
        assert checked[name] == plain
        assert not isinstance(checked[name], np.generic)
    assert Declared(**checked).n_clusters == checked["n_clusters"]


@pytest.mark.parametrize(
    ("name", "wrong", "expected"),
    [
        ("n_clusters", 0, "int >= 1. Number of clusters."),
        ("n_clusters", 2.0, "int >= 1"),
        ("n_clusters", "3", "int >= 1"),
        ("n_clusters", True, "int >= 1"),
        ("n_clusters", None, "int >= 1"),
        ("share", 0.0, "float > 0, <= 1"),
        ("share", float("nan"), "float > 0, <= 1"),
        ("share", 1.5, "float > 0, <= 1"),
        ("steps", 0, "int >= 1 or Diminishing"),
        ("bounds", "rows", "'data' or"),
        ("bounds", (0.0, 1.0, 2.0), "'data' or"),
        ("every", 0, "int >= 1 or None"),
        ("quiet", 1, "bool"),
        ("quiet", "yes", "bool"),
    ],
)
def test_other_values_are_refused_with_what_was_expected(
    name: str, wrong: Any, expected: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        check(Declared, DEFAULTS | {name: wrong})
    assert str(caught.value).startswith(f"{name}={wrong!r} was given; expected {expected}")
    assert isinstance(caught.value, InputError | ValueError)


@given(start=st.integers(0, 500), round_=st.integers(1, 500))
def test_diminishing_steps_fall_to_one(start: int, round_: int) -> None:
    steps = Diminishing(start)
    assert steps_in(steps, round_) == start // round_ + 1
    assert steps_in(steps, round_) >= steps_in(steps, round_ + 1) >= 1
    assert steps_in(steps, start + 1) == 1


def test_steps_before_the_first_round_are_those_of_the_first() -> None:
    assert steps_in(Diminishing(100), 0) == steps_in(Diminishing(100), 1) == 101


def test_a_number_of_steps_is_the_same_in_every_round() -> None:
    assert {steps_in(7, round_) for round_ in range(20)} == {7}


@pytest.mark.parametrize("wrong", [-1, 1.5, "3", True, None])
def test_diminishing_from_below_zero_is_refused(wrong: Any) -> None:
    with pytest.raises(ParameterError, match="Diminishing"):
        Diminishing(wrong)

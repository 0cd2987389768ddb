"""Estimators whose signature and docstring are made of what is declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge
from typing_extensions import Doc

from coterie.estimators.declaration import as_seed, signature, with_parameters


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What an algorithm writes."""

    n: Annotated[int, Ge(1), Doc("How many.")] = 8
    share: Annotated[float, Doc("How much.")] = 0.5


def test_a_signature_and_a_docstring_are_made_of_them() -> None:
    made = signature((Declared,))
    assert list(made.parameters) == ["self", "n", "share"]
    assert made.parameters["n"].kind is made.parameters["n"].POSITIONAL_OR_KEYWORD
    assert made.parameters["share"].kind is made.parameters["share"].KEYWORD_ONLY
    doc = with_parameters(
        "Do things.\n\n    Attributes\n    ----------\n    x : int\n", (Declared,)
    )
    head, tail = doc.split("\nAttributes\n")
    assert head.startswith("Do things.\n\nParameters\n----------\nn : int >= 1, default=8\n")
    assert "    How many.\n" in head
    assert tail.startswith("----------\nx : int")
    assert "Parameters" in with_parameters("Do things.", (Declared,))


def test_seeds_are_whole_numbers_of_63_bits() -> None:
    assert as_seed(0) == 0
    assert as_seed(2**63 - 1) == 2**63 - 1
    assert type(as_seed(np.uint8(7))) is int
    drawn = [as_seed(make()) for make in (lambda: None, np.random.default_rng) for _ in range(50)]
    assert len(set(drawn)) == 100
    assert all(0 <= seed < 2**63 for seed in drawn)
    old = np.random.RandomState(0)
    assert len({as_seed(old) for _ in range(50)}) == 50
    assert as_seed(np.random.RandomState(3)) == as_seed(np.random.RandomState(3))

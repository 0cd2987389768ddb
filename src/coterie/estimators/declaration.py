"""Parameters of a run, and how an estimator's signature is made of what is declared."""

from __future__ import annotations

import inspect
import secrets
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt, Le
from typing_extensions import Doc

from coterie.errors import InputTypeError, ParameterError
from coterie.parameters import Parameter, parameters


@dataclass(frozen=True, kw_only=True)
class RunParameters:
    """What every estimator takes besides its algorithm's hyper-parameters."""

    clients_per_round: Annotated[
        Annotated[int, Ge(1)] | Annotated[float, Gt(0), Le(1)] | None,
        Doc("Clients of a round: a count, a fraction (1.0 is all), or None for all."),
    ] = None
    participation: Annotated[
        Literal["uniform", "by-size"],
        Doc("How they are drawn: evenly without replacement, or by size with replacement."),
    ] = "uniform"
    random_state: Annotated[
        Any,
        Doc("Seeds all draws: an int, a NumPy RandomState or Generator, or None for a fresh seed."),
    ] = None
    engine: Annotated[
        Any,
        Doc(
            "Where clients live: 'simulation' (all in this process, as one block), 'processes' "
            "(a process for each), or a callable that makes an engine of a federation."
        ),
    ] = "simulation"
    device: Annotated[
        str, Doc("'cpu' for NumPy, or a torch device such as 'cuda' (needs torch).")
    ] = "cpu"
    dtype: Annotated[
        Any,
        Doc("Type to compute in: 'float32' or 'float64'; None keeps that of the rows."),
    ] = None
    verbose: Annotated[bool | int, Doc("Print a line for every round.")] = False


def signature(declarations: tuple[type, ...]) -> inspect.Signature:
    """``(self, first, *, others...)`` from the dataclasses that declare the parameters."""
    declared = all_parameters(declarations)
    by_place, by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    first, *others = declared
    return inspect.Signature(
        [
            inspect.Parameter("self", by_place),
            inspect.Parameter(first.name, by_place, default=first.default),
            *(inspect.Parameter(p.name, by_name, default=p.default) for p in others),
        ]
    )


def all_parameters(declarations: tuple[type, ...]) -> tuple[Parameter, ...]:
    """The parameters of several declarations, in order."""
    return tuple(p for declaration in declarations for p in parameters(declaration))


def make_init(declarations: tuple[type, ...]) -> Callable[..., None]:
    """An ``__init__`` that keeps what it is given, as scikit-learn asks."""
    declared = signature(declarations)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        unknown = [name for name in kwargs if name not in declared.parameters]
        if unknown:
            near = get_close_matches(unknown[0], declared.parameters, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputTypeError(
                f"{type(self).__name__} got an unexpected keyword argument {unknown[0]!r}{hint}"
            )
        if len(args) > 1:
            raise InputTypeError(
                f"{type(self).__name__} got {len(args)} arguments without a name; only the first, "
                f"{list(declared.parameters)[1]}, may do without"
            )
        bound = declared.bind(self, *args, **kwargs)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            if name != "self":
                setattr(self, name, value)

    __init__.__signature__ = declared  # type: ignore[attr-defined]
    return __init__


def with_parameters(doc: str, declarations: tuple[type, ...]) -> str:
    """A docstring with its Parameters section, before the first section that it has."""
    lines = ["Parameters", "----------"]
    for p in all_parameters(declarations):
        lines.append(f"{p.name} : {p.kind}, default={p.default!r}")
        lines.extend(textwrap.wrap(p.doc, 90, initial_indent="    ", subsequent_indent="    "))
    section = "\n".join(lines)
    clean = inspect.cleandoc(doc)
    head, mark, tail = clean.partition("\nAttributes\n")
    return f"{head}\n{section}\n{mark}{tail}" if mark else f"{clean}\n\n{section}\n"


def as_dtype(dtype: Any) -> str | None:
    """The name of the type to compute in, from a name or a type."""
    if dtype is None:
        return None
    try:
        name = str(np.dtype(dtype).name)
    except TypeError:
        name = ""
    if name not in ("float32", "float64"):
        raise ParameterError(f"dtype={dtype!r} was given; expected 'float32', 'float64' or None")
    return name


def as_seed(random_state: Any) -> int:
    """A seed of 63 bits from what scikit-learn users pass as random_state."""
    if random_state is None:
        return secrets.randbits(63)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31)) << 32 | int(random_state.randint(2**31))
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if 0 <= random_state < 2**63:
            return int(random_state)
        raise ParameterError(f"random_state={random_state} was given; expected 0 to 2**63 - 1")
    raise ParameterError(
        f"random_state={random_state!r} was given; expected an int, a NumPy RandomState or "
        "Generator, or None"
    )

"""Write signatures for editors and type checkers, as the estimators make them at run time.

``python tools/stubs.py`` writes `catalog.pyi`; with ``--check`` it says whether the file is fresh.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

from coterie.estimators import ESTIMATORS, estimator_type
from coterie.estimators.declaration import RunParameters, all_parameters
from coterie.parameters import Diminishing, Parameter
from docs import ROOT

STUB = ROOT / "src" / "coterie" / "estimators" / "catalog.pyi"
HEAD = '''"""Made by `make stubs` from the algorithms' declarations: do not edit."""

from typing import Any, Literal

from numpy.typing import ArrayLike

from coterie.estimators.factorization import FactorizationClusterer
from coterie.parameters import Diminishing

'''
WIDER = {"init": "str | ArrayLike | tuple[ArrayLike, ArrayLike]"}  # an estimator takes arrays, too


def stub() -> str:
    """The text of the file."""
    return formatted(HEAD + "\n".join(class_stub(name) for name in sorted(ESTIMATORS)))


def class_stub(name: str) -> str:
    """One estimator."""
    kind = estimator_type(name)
    declared = all_parameters((kind.algorithm_type, RunParameters))
    first, *others = (argument(p) for p in declared)
    base = kind.__mro__[1].__name__
    return (
        f"class {name}({base}):\n"
        f"    def __init__(self, {first}, *, {', '.join(others)}) -> None: ...\n"
    )


def argument(parameter: Parameter) -> str:
    """A parameter with its type and default."""
    kind = WIDER.get(parameter.name) or plain(parameter.annotation)
    return f"{parameter.name}: {kind} = {parameter.default!r}"


def plain(annotation: Any) -> str:
    """A type without what rides on it."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return plain(inner[0])
    if origin is typing.Literal:
        return f"Literal[{', '.join(repr(v) for v in inner)}]"
    if origin is tuple:
        return f"tuple[{', '.join(plain(a) for a in inner)}]"
    if inner:
        return " | ".join(plain(a) for a in inner)
    if annotation is type(None):
        return "None"
    return inspect.formatannotation(annotation, base_module=Diminishing.__module__)


def formatted(text: str) -> str:
    """As ruff would have it."""
    ruff = Path(sys.executable).with_name("ruff")
    done = subprocess.run(
        [ruff, "format", "--stdin-filename", STUB, "-"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def main() -> int:
    """Write the file, or check it."""
    if "--check" not in sys.argv:
        STUB.write_text(stub(), encoding="utf-8")
        return 0
    if STUB.read_text(encoding="utf-8") == stub():
        return 0
    print(f"{STUB.relative_to(ROOT)} is stale: run `make stubs`")
    return 1


if __name__ == "__main__":
    sys.exit(main())

"""What `import coterie` gives, and what it does not load."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import coterie as ct
from coterie import errors

EXPORTED = {
    "CoterieError",
    "Diminishing",
    "FedMGS",
    "Federation",
    "Round",
    "__version__",
    "check_algorithm",
    "datasets",
    "errors",
    "metrics",
    "partition",
}


def test_the_public_names_are_these() -> None:
    assert set(ct.__all__) == EXPORTED
    assert set(dir(ct)) >= EXPORTED
    for name in EXPORTED:
        assert getattr(ct, name) is not None


def test_another_name_is_an_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="FedMG'"):
        ct.FedMG  # noqa: B018


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


EXTRAS = {"torch", "nvflare", "ray", "plotly"}
HEAVY = EXTRAS | {"pyarrow", "pandas", "polars", "narwhals", "rich", "sklearn"}


def test_importing_loads_nothing_heavy() -> None:
    assert not loaded_by("import coterie") & HEAVY


def test_all_names_load_nothing_that_only_some_use() -> None:
    # scikit-learn itself loads pandas and pyarrow where they are installed.
    assert not loaded_by("import coterie; [getattr(coterie, n) for n in dir(coterie)]") & EXTRAS


def test_a_client_loads_what_a_client_needs() -> None:
    modules = loaded_by("import coterie.engines.worker, coterie.factorization.fedmgs")
    assert not modules & (HEAVY | {"pydantic", "typer"})


def test_every_module_can_be_imported() -> None:
    for module in pkgutil.walk_packages(ct.__path__, "coterie."):
        importlib.import_module(module.name)


def test_every_error_is_in_the_tree_and_in_its_picture() -> None:
    kinds = [
        k for _, k in inspect.getmembers(errors, inspect.isclass) if k.__module__ == errors.__name__
    ]
    for kind in kinds:
        assert issubclass(kind, errors.CoterieError)
        assert kind.__name__ in str(errors.__doc__)
    assert issubclass(errors.InputError, ValueError)
    assert issubclass(errors.InputTypeError, TypeError)

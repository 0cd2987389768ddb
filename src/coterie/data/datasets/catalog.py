"""`DATASETS`: the data sets by name, for the command line and for configurations."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from coterie.data.datasets import images, text
from coterie.data.datasets.synthetic import make_onmf
from coterie.errors import DatasetError, ParameterError

Home = str | os.PathLike[str] | None


@dataclass(frozen=True)
class Entry:
    """A data set by name.

    Attributes
    ----------
    loader : callable
        Returns a `Dataset`, or a pair of rows and labels.
    description : str
        One line.
    n_classes : int
        With the loader's defaults.
    image_shape : tuple of int, optional
        What a row reshapes to, where rows are images.
    cached : callable, optional
        Whether its files are in a folder; None for a set that needs no files.
    """

    loader: Callable[..., Any]
    description: str
    n_classes: int
    image_shape: tuple[int, ...] | None = None
    cached: Callable[[Home], bool] | None = None

    @property
    def bundled(self) -> bool:
        """Whether the set needs no files."""
        return self.cached is None


def _has_tdt2(data_home: Home) -> bool:
    try:
        text.find(data_home)
    except DatasetError:
        return False
    return True


DATASETS: Mapping[str, Entry] = MappingProxyType(
    {
        "digits": Entry(
            images.load_digits,
            "1,797 images of digits, 8 x 8, bundled with scikit-learn",
            10,
            (8, 8),
        ),
        "mnist": Entry(
            images.load_mnist,
            "70,000 images of handwritten digits, 28 x 28",
            10,
            (28, 28),
            lambda folder: images.is_stored(images.MNIST, folder),
        ),
        "fashion-mnist": Entry(
            images.load_fashion_mnist,
            "70,000 images of clothes, 28 x 28",
            10,
            (28, 28),
            lambda folder: images.is_stored(images.FASHION_MNIST, folder),
        ),
        "tdt2": Entry(
            text.load_tdt2,
            "9,394 news stories of 30 topics, as 36,771 terms; cannot be fetched",
            30,
            None,
            _has_tdt2,
        ),
        "onmf": Entry(
            make_onmf,
            "synthetic rows of the federated factorisation papers; drawn, not stored",
            20,
        ),
    }
)


def is_cached(name: str, data_home: Home = None) -> bool:
    """Whether a data set can be loaded without a download.

    Parameters
    ----------
    name : str
        A key of `DATASETS`.
    data_home : path, optional
        The folder; by default $COTERIE_DATA, or else the user's cache folder.
    """
    cached = _entry(name).cached
    return cached is None or cached(data_home)


def fetch(name: str, data_home: Home = None) -> None:
    """Make sure that a data set can be loaded without a download, or raise `DatasetError`.

    What is there already is read and checked. Parameters as for `is_cached`.
    """
    entry = _entry(name)
    if not entry.bundled:
        entry.loader(data_home)


def _entry(name: str) -> Entry:
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ParameterError(
            f"data set {name!r} was given; expected one of {', '.join(DATASETS)}{hint}"
        )
    return DATASETS[name]

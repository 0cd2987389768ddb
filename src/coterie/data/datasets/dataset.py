"""`Dataset`: what a loader returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from coterie.backend import Array
from coterie.data.federation import Federation


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows with labels, and what is known of them.

    Unpacks as ``X, y = load_digits()``.

    Attributes
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
    y : ndarray of int64, (n_samples,)
        Classes 0, 1, 2 ...
    name : str
        For people. It says so where the rows are a part of the set.
    source : str
        Whom to cite, and the licence.
    image_shape : tuple of int, optional
        What a row reshapes to, where rows are images.
    class_names : tuple of str, optional
        One a class, where classes have names.
    """

    X: Any
    y: Array
    name: str
    source: str
    image_shape: tuple[int, ...] | None = None
    class_names: tuple[str, ...] | None = None

    def __iter__(self) -> Iterator[Any]:
        yield self.X
        yield self.y

    def federation(self, clients: Any = None) -> Federation:
        """Give each row to a client.

        Parameters
        ----------
        clients : array-like of shape (n_samples,), optional
            Who owns each row, as `coterie.partition` gives it. Without it all rows are one
            client's.
        """
        return Federation.from_arrays(self.X, clients, self.y)

    def __repr__(self) -> str:
        rows, columns = self.X.shape
        return f"Dataset({self.name!r}, {rows:,} x {columns:,} rows of {self.X.dtype})"

"""Data sets: loaders, the papers' synthetic model, and a catalogue of both."""

from coterie.data.datasets.catalog import DATASETS, Entry, fetch, is_cached
from coterie.data.datasets.dataset import Dataset
from coterie.data.datasets.images import load_digits, load_fashion_mnist, load_mnist
from coterie.data.datasets.synthetic import make_onmf
from coterie.data.datasets.text import load_tdt2

__all__ = [
    "DATASETS",
    "Dataset",
    "Entry",
    "fetch",
    "is_cached",
    "load_digits",
    "load_fashion_mnist",
    "load_mnist",
    "load_tdt2",
    "make_onmf",
]

"""`load_tdt2`: news stories as counts of terms."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from coterie.backend import Array
from coterie.data.datasets import store
from coterie.data.datasets.dataset import Dataset
from coterie.errors import DatasetError, ParameterError

NAMES = ("TDT2.mat", "tdt2_top30.npz")
WAYS = (
    "take TDT2.mat from Deng Cai's page of text data sets in MATLAB format, and put it into the "
    "folder. It cannot be fetched: the corpus is the Linguistic Data Consortium's"
)


@dataclass(frozen=True)
class TextSet:
    """What a set of counts must be: documents of each class, largest first, and terms."""

    counts: tuple[int, ...]
    n_terms: int


# fmt: off
CLASS_SIZES = (
    1844, 1828, 1222, 811, 441, 407, 272, 238, 226, 167, 160, 145, 141, 140, 131,
    123, 123, 120, 104, 98, 76, 74, 72, 71, 66, 65, 63, 58, 56, 52,
)
# fmt: on
TDT2 = TextSet(CLASS_SIZES, n_terms=36_771)


def load_tdt2(
    data_home: str | os.PathLike[str] | None = None,
    *,
    n_terms: int | None = None,
    terms: str = "frequent",
    weighting: str = "log-tfidf",
) -> Dataset:
    """Load TDT2: 9,394 news stories of the 30 largest topics of 1998, as terms.

    Looked for as TDT2.mat (Deng Cai's file, of these 30 categories or of all) and as
    tdt2_top30.npz. It cannot be fetched.

    The papers on federated factorisation use all these documents and 5,000 terms "chosen as
    top-ranked ones by the Pearson's Chi-Squared Test": ``n_terms=5000, terms="chi2"``. That test
    asks how well a term tells the classes apart, so it **uses the labels**, which a clustering
    must not know: take it to reproduce the papers, and "frequent" otherwise. The weighting is ours;
    the papers do not state theirs.

    Parameters
    ----------
    data_home : path, optional
        The folder; by default $COTERIE_DATA, or else the user's cache folder.
    n_terms : int, optional
        How many terms to keep; by default all 36,771.
    terms : {"frequent", "chi2"}, default="frequent"
        Keep the terms of most documents, or the terms of the highest chi-squared statistic between
        their counts and the labels. A document may be left without any term: 1 of the 9,394 is,
        with 5,000 terms by "chi2".
    weighting : {"log-tfidf", "counts"}, default="log-tfidf"
        "log-tfidf": ``(1 + ln count) * (1 + ln((1 + N) / (1 + n)))`` for a term in n of N
        documents, then rows of length 1. "counts": as they are.

    Returns
    -------
    Dataset
        X (9394, n_terms) csr_array of float64; y is 0 for the largest class, 1 for the next ...
    """
    if terms not in ("frequent", "chi2"):
        raise ParameterError(f"terms={terms!r} was given; expected 'frequent' or 'chi2'")
    if weighting not in ("log-tfidf", "counts"):
        raise ParameterError(f"weighting={weighting!r} was given; expected 'log-tfidf' or 'counts'")
    counts, y = read_counts(TDT2, find(data_home))
    if n_terms is not None:
        counts = _select(counts, y, n_terms, terms)
    return Dataset(
        counts if weighting == "counts" else _log_tfidf(counts),
        y,
        "TDT2 (30 classes)",
        "Cai, He and Han, Locally consistent concept factorization for document clustering, IEEE "
        "TKDE 23(6), 2011; the corpus is the Linguistic Data Consortium's, for research only",
    )


def find(data_home: str | os.PathLike[str] | None = None) -> Path:
    """Find the file of the set, or raise a `DatasetError` that says how to get one."""
    folder = store.home(data_home)
    folders = [folder, folder / "tdt2"]
    path = store.first(folders, NAMES)
    if path is None:
        raise store.missing("TDT2", NAMES, folders, WAYS)
    return path


def read_counts(text: TextSet, path: Path) -> tuple[sparse.csr_array, Array]:
    """Read the counts of the largest classes, and labels in order of class size, and check them."""
    counts, labels = _read_mat(path) if path.suffix == ".mat" else _read_npz(path)
    if counts.shape[0] != len(labels):
        raise DatasetError(f"{path} holds {len(labels)} labels for {counts.shape[0]} documents")
    classes, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    by_size = np.argsort(-sizes, kind="stable")
    rank = np.empty(len(classes), dtype=np.int64)
    rank[by_size] = np.arange(len(classes))
    y = rank[codes]
    kept = y < len(text.counts)
    found = tuple(sizes[by_size][: len(text.counts)].tolist())
    whole = np.isfinite(counts.data).all() and not (counts.data < 0).any()
    if counts.shape[1] != text.n_terms or found != text.counts or not whole:
        raise DatasetError(
            f"{path} is not the set: its largest classes have {found} documents of "
            f"{counts.shape[1]} columns; expected {text.counts} of {text.n_terms} counts, none "
            "below 0"
        )
    return counts[kept], y[kept]


def _read_npz(path: Path) -> tuple[sparse.csr_array, Array]:
    arrays = store.read_npz(path, ("data", "indices", "indptr", "shape", "y"))
    with store.reading(path):
        parts = (
            arrays["data"].astype(np.float64),
            arrays["indices"].astype(np.int32),
            arrays["indptr"].astype(np.int32),
        )
        counts = sparse.csr_array(parts, shape=tuple(arrays["shape"].tolist()))
        counts.check_format(full_check=True)
    return counts, arrays["y"]


def _read_mat(path: Path) -> tuple[sparse.csr_array, Array]:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    with store.reading(path):
        try:
            variables = loadmat(path, variable_names=("fea", "gnd"))
        except (MatReadError, NotImplementedError, TypeError) as error:
            raise ValueError(f"not a MATLAB file that scipy reads: {error}") from error
        counts = sparse.csr_array(variables["fea"], dtype=np.float64)
        return counts, np.asarray(variables["gnd"]).ravel()


def _select(counts: sparse.csr_array, y: Array, n_terms: int, terms: str) -> sparse.csr_array:
    """Keep the columns of the highest score, in their order; ties go to the first."""
    if not 1 <= n_terms <= counts.shape[1]:
        raise ParameterError(
            f"n_terms={n_terms} was given; expected 1 to {counts.shape[1]}, or None for all"
        )
    documents = np.bincount(counts.indices, minlength=counts.shape[1])
    score: Any = documents.astype(np.float64)
    if terms == "chi2":
        from sklearn.feature_selection import chi2

        seen = documents > 0  # the statistic of a term that is nowhere is 0 / 0
        score[seen] = chi2(counts[:, seen], y)[0]
    best = np.argsort(-score, kind="stable")[:n_terms]
    return sparse.csr_array(counts[:, np.sort(best)])


def _log_tfidf(counts: sparse.csr_array) -> sparse.csr_array:
    from sklearn.feature_extraction.text import TfidfTransformer

    return sparse.csr_array(TfidfTransformer(sublinear_tf=True).fit_transform(counts))

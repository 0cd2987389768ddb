"""Data sets on disk: where they are looked for, how their files are read and checked, and kept.

Nothing here unpickles a file. A file that is cut short, damaged or not what its name says is a
`DatasetError` that names it.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import struct
import uuid
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from platformdirs import user_cache_dir

from coterie.backend import Array
from coterie.errors import DatasetError

DAMAGE = (OSError, EOFError, ValueError, KeyError, zlib.error, zipfile.BadZipFile)


def home(data_home: str | os.PathLike[str] | None = None) -> Path:
    """Choose the folder: `data_home`, else $COTERIE_DATA, else the user's cache folder."""
    chosen = data_home or os.environ.get("COTERIE_DATA") or user_cache_dir("coterie")
    return Path(chosen).expanduser()


def first(folders: Iterable[Path], names: Iterable[str]) -> Path | None:
    """Find the first file that exists, folder by folder."""
    names = list(names)
    paths = (folder / name for folder in folders for name in names)
    return next((path for path in paths if path.is_file()), None)


def missing(name: str, names: Iterable[str], folders: Iterable[Path], ways: str) -> DatasetError:
    """Say what was looked for, where, and how to get it."""
    return DatasetError(
        f"{name} was not found: looked for {', '.join(names)} in "
        f"{', '.join(str(folder) for folder in folders)} (the folder is data_home, or "
        f"$COTERIE_DATA, or the user's cache folder). To get it: {ways}"
    )


def read_idx(path: Path, shape: tuple[int, ...], md5: str | None = None) -> Array:
    """Unsigned bytes in the format of the MNIST files, plain or gzipped.

    Parameters
    ----------
    path : Path
    shape : tuple of int
        What the file must hold.
    md5 : str, optional
        Of the file, unpacked.
    """
    header = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)
    size = len(header) + int(np.prod(shape))
    content = unpack(path, size + 1)
    if not content.startswith(header):
        raise DatasetError(
            f"{path} is not an idx file of {' x '.join(map(str, shape))} bytes: it begins with "
            f"{content[: len(header)].hex() or 'nothing'}, expected {header.hex()}"
        )
    if len(content) != size:
        has = "more" if len(content) > size else f"{len(content):,}"
        raise DatasetError(f"{path} holds {has} bytes; expected {size:,}")
    if md5 not in (None, md5_of(content)):
        raise DatasetError(f"{path} has the MD5 sum {md5_of(content)} unpacked; expected {md5}")
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)


def unpack(path: Path, limit: int) -> bytes:
    """Read up to `limit` bytes of a file, unpacked if it is gzipped."""
    opener = gzip.open if path.suffix == ".gz" else open
    with reading(path), cast("BinaryIO", opener(path, "rb")) as file:
        return file.read(limit)


def md5_of(content: bytes) -> str:
    """Sum up a file's content, to tell which file it is."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def read_npz(path: Path, keys: Iterable[str]) -> dict[str, Array]:
    """Read some of the arrays of an .npz file."""
    with reading(path):
        if not zipfile.is_zipfile(path):
            raise ValueError("not an .npz file")
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in keys}


def write_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write an .npz file at once: a reader finds all of it or none."""
    part = path.with_name(f".{path.stem}-{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("xb") as file:
                np.savez_compressed(file, **arrays)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise DatasetError(
            f"{path} cannot be written ({error}); give a folder that can, as data_home or "
            "$COTERIE_DATA"
        ) from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what readers raise on damaged files into a `DatasetError` that names the file."""
    try:
        yield
    except DatasetError:
        raise
    except DAMAGE as error:
        raise DatasetError(
            f"{path} cannot be read ({type(error).__name__}: {error}); it is damaged, cut short or "
            "something else. Delete it and get it again"
        ) from error

"""Where arrays live: NumPy or torch, and the threads that work on them.

The six places in which the two differ are here; all else is written once (`coterie.arrays`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from threadpoolctl import ThreadpoolController

from coterie.errors import DataError, ParameterError

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

DEVICE_SHARE = 0.7  # of an accelerator's free memory that rows may take


def is_torch(array: object) -> bool:
    """Whether `array` is a torch tensor, found without importing torch."""
    return type(array).__module__.partition(".")[0] == "torch"


def torch_module() -> ModuleType:
    """Import torch, or say how to get it."""
    try:
        import torch
    except ImportError as error:
        raise ParameterError(
            "device other than 'cpu' needs torch, which is not installed: "
            "pip install 'coterie[torch]'"
        ) from error
    return torch


def host(array: Any) -> Array:
    """Any dense array as NumPy."""
    return np.asarray(array.detach().cpu().numpy() if is_torch(array) else array)


def dtype_name(x: Any) -> str:
    """The type of an array's entries in NumPy's words."""
    return str(x.dtype).removeprefix("torch.")


def to_device(x: Any, device: str) -> Any:
    """Rows where kernels run, if they fit there; else as they are, to be streamed in pieces."""
    if device == "cpu":
        return x
    if is_torch(x):
        return x.to(device)
    if sparse.issparse(x):
        raise DataError(
            f"sparse rows were given with device={device!r}; sparse rows run on device='cpu' only"
        )
    torch = torch_module()
    if device.startswith("cuda") and x.nbytes > DEVICE_SHARE * torch.cuda.mem_get_info(device)[0]:
        return x
    return as_tensor(x, device)


def as_tensor(x: Array, device: str) -> Any:
    """A tensor; of memory that may not be written to, or lies on disk, a copy."""
    safe = x if x.flags.writeable and x.flags.c_contiguous else np.array(x)
    tensor: Any = torch_module().as_tensor(safe, device=device)
    return tensor


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Run BLAS on one thread inside the ``with``: the threads are ours, and sums repeat."""
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit


@cache
def thread_pool(threads: int) -> ThreadPoolExecutor:
    """The pool of so many threads; made once."""
    return ThreadPoolExecutor(threads, thread_name_prefix="coterie-rows")


@cache
def available_threads() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

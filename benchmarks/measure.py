"""Timing, and what a benchmark reports."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Measured:
    """A time, beside the one that it is compared with.

    Attributes
    ----------
    name : str
    setting : str
        Sizes and settings: a ratio means nothing without them.
    seconds : float
    against : str
        What the other side is.
    other : float
        Its seconds, or a bound.
    """

    name: str
    setting: str
    seconds: float
    against: str
    other: float
    ratio: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ratio", self.seconds / self.other)


def median_of(work: Callable[[], object], repeats: int = 7) -> float:
    """Median seconds of a call, after one to warm up."""
    work()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)

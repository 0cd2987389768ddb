"""What loop and engine add to a round, and what `import coterie` adds to `import sklearn`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from benchmarks.measure import Measured
from coterie.backend import Array
from coterie.block import Block, Private
from coterie.data.federation import Federation
from coterie.engines.simulation import Simulation
from coterie.fields import Reply, Sum
from coterie.participation import Full, Participation, Uniform
from coterie.protocol import Phase, Request, Spec, State, Total
from coterie.random import Stream
from coterie.rounds import rounds

CLIENTS, ROWS_EACH = 100_000, 10


@dataclass(frozen=True)
class Idle:
    """An algorithm that does nothing, with private state that is kept."""

    max_rounds: int = 40

    phases: ClassVar = {"round": Phase({"nothing": Sum}, private=True)}

    def start(self, spec: Spec, rng: Stream, given: Mapping[str, Array]) -> State:
        return State("round", 0, {})

    def request(self, state: State) -> Request | None:
        if state.round == self.max_rounds:
            return None
        return Request("round", state.round + 1, {"centers": np.zeros((10, 784))})

    def join(self, request: Request, block: Block, rng: Stream) -> Private:
        memberships = np.zeros((block.n_rows, 10), dtype=np.float32)
        return Private({"memberships": memberships}, {"known": np.zeros(block.n_clients)})

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        return {"nothing": Sum(np.zeros(1))}, private

    def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Mapping[str, float]]:
        return state.to("round", round=state.round + 1), {}

    def model(self, state: State) -> Request:
        return Request("model", state.round, {})

    def assign(self, model: Request, block: Block) -> Array:
        return np.zeros(block.n_rows, dtype=np.int64)


def measure() -> Iterator[Measured]:
    """Overheads against the bounds that the project set itself."""
    setting = f"{CLIENTS:,} clients of {ROWS_EACH} rows"
    everyone = seconds_a_round(Full())
    yield Measured("loop and engine, everyone", setting, everyone, "bound of 2 ms", 2e-3)
    tenth = seconds_a_round(Uniform(CLIENTS // 10))
    yield Measured("loop and engine, a tenth", setting, tenth, "bound of 25 ms", 25e-3)
    alone, beside = import_seconds("import sklearn"), import_seconds("import sklearn, coterie")
    added = max(beside - alone, 0.0)
    yield Measured("import coterie, over import sklearn", "", added, "bound of 0.5 s", 0.5)


def seconds_a_round(cohorts: Participation) -> float:
    """Median seconds of a round of nothing."""
    rows = np.zeros((CLIENTS * ROWS_EACH, 20), dtype=np.float32)
    engine = Simulation(Federation.from_arrays(rows, np.repeat(np.arange(CLIENTS), ROWS_EACH)))
    marks = [time.perf_counter() for _ in rounds(Idle(), engine, cohorts)]
    return float(statistics.median(np.diff(marks[5:])))


def import_seconds(statement: str, repeats: int = 5) -> float:
    """Median seconds of an import in a fresh interpreter."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times)

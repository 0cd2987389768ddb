"""A fit that is under way: algorithm, clients, and the loop between them.

`Session` is what an estimator's ``fit`` drives to the end, and what a runner drives with
checkpoints, progress and evaluation between the rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from coterie.backend import Arrays, torch_module
from coterie.block import Private
from coterie.data.federation import Federation
from coterie.engines.processes import Processes
from coterie.engines.simulation import Simulation
from coterie.errors import ContractError, InputTypeError, ParameterError
from coterie.participation import Participation
from coterie.protocol import Algorithm, Engine, State
from coterie.rounds import Checkpoint, Round, rounds


class LocalEngine(Engine, Protocol):
    """An engine on this machine, whose owner may look at private state when all is done."""

    def private(self) -> Private:
        """Private state of all clients, in the order of the roster."""
        ...

    def close(self) -> None:
        """Let go of processes and files."""
        ...


EngineMaker = Callable[[Federation], LocalEngine]


def check_device(device: str) -> None:
    """Refuse a device on which torch cannot compute here."""
    if device == "cpu":
        return
    torch = torch_module()
    try:
        torch.ones(1, device=device).sum().item()
    except Exception as error:  # torch raises AssertionError, RuntimeError and others
        raise ParameterError(
            f"device={device!r} was given, but torch cannot compute on it here "
            f"({str(error).splitlines()[0]}); expected 'cpu', or a torch device that this machine "
            "has"
        ) from error


def make_engine(kind: str | EngineMaker, federation: Federation, device: str) -> LocalEngine:
    """The engine that an estimator's parameters name."""
    if callable(kind):
        return kind(federation)
    if kind == "simulation":
        return Simulation(federation, device=device)
    if kind == "processes":
        if device != "cpu":
            raise ParameterError(
                f"device={device!r} was given with engine='processes', which runs on 'cpu' only"
            )
        return Processes(federation)
    if isinstance(kind, str):
        raise ParameterError(
            f"engine={kind!r} was given; expected 'simulation', 'processes' or a callable"
        )
    raise InputTypeError(
        f"engine of type {type(kind).__name__} was given; expected str or callable"
    )


@dataclass
class Session:
    """One run of one algorithm on one federation."""

    algorithm: Any
    federation: Federation
    engine: LocalEngine
    participation: Participation
    seed: int
    given: Arrays
    history: list[Round] = field(default_factory=list)
    state: State | None = None

    def rounds(self, *, run: str = "", resume: Checkpoint | None = None) -> Iterator[Round]:
        """Run to the end, exchange by exchange; keep the history."""
        algorithm: Algorithm = self.algorithm
        for record in rounds(
            algorithm,
            self.engine,
            self.participation,
            seed=self.seed,
            run=run,
            given=self.given,
            resume=resume,
        ):
            self.state = record.state
            self.history.append(replace(record, state=None))
            yield record

    def final_state(self) -> State:
        """The state at which the run stands."""
        if self.state is None:
            raise ContractError("this session has not run: iterate over its rounds first")
        return self.state

"""The one loop between an algorithm and an engine.

`rounds` is an iterator: progress bars, checkpoints, loggers and early stopping by a caller are
iteration over it, and an engine whose control is inverted can drive it from within.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coterie.backend import Arrays
from coterie.errors import ContractError, QuorumError
from coterie.participation import Faults, Full, NoFaults, Participation
from coterie.protocol import Algorithm, Cohort, Engine, Request, State, Total, Traffic
from coterie.random import Stream


@dataclass(frozen=True)
class Round:
    """The record of one exchange.

    Attributes
    ----------
    step : int
        Counts exchanges, the start's included.
    round : int
        The paper's count, 0 while starting. A round may take several exchanges.
    phase : str
        The phase that was exchanged.
    asked, replied : int
        Clients in the cohort, and those whose reply was counted.
    attempt : int
        0, or how often the exchange had to be tried again.
    objective : float or None
        The objective after the exchange, where the server can compute it.
    traffic : Traffic
        Bytes down and up: arrays, and framing apart.
    seconds : float
        From request to next state.
    metrics : mapping of str to float
        What the algorithm recorded.
    state : State or None
        The state after the exchange; dropped from histories.
    """

    step: int
    round: int
    phase: str
    asked: int
    replied: int
    attempt: int
    objective: float | None
    traffic: Traffic
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    state: State | None = field(default=None, repr=False, compare=False)

    @property
    def bytes_down(self) -> int:
        """Bytes of the arrays that went down."""
        return self.traffic.down

    @property
    def bytes_up(self) -> int:
        """Bytes of the arrays that came up."""
        return self.traffic.up

    def line(self) -> str:
        """One line for people."""
        value = "" if self.objective is None else f"  objective {self.objective:.6g}"
        return (
            f"round {self.round:4d}  {self.phase:8s}{value}  {self.replied} clients  "
            f"up {self.bytes_up:,} B  {self.seconds:.3f} s"
        )

    def record(self) -> dict[str, Any]:
        """As a flat mapping for a log."""
        return {
            "step": self.step,
            "round": self.round,
            "phase": self.phase,
            "asked": self.asked,
            "replied": self.replied,
            "attempt": self.attempt,
            "objective": self.objective,
            "bytes_down": self.traffic.down,
            "bytes_up": self.traffic.up,
            "framing_down": self.traffic.framing_down,
            "framing_up": self.traffic.framing_up,
            "seconds": self.seconds,
            "metrics": dict(self.metrics),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Round:
        """The record of `record`."""
        keep = ("step", "round", "phase", "asked", "replied", "attempt", "objective", "seconds")
        traffic = Traffic(
            record["bytes_down"], record["bytes_up"], record["framing_down"], record["framing_up"]
        )
        return cls(**{k: record[k] for k in keep}, traffic=traffic, metrics=record["metrics"])


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands between two exchanges: enough to go on to the same result."""

    state: State
    step: int
    engine: Arrays = field(default_factory=dict)


def rounds(
    algorithm: Algorithm,
    engine: Engine,
    participation: Participation | None = None,
    *,
    seed: int = 0,
    run: str = "",
    given: Arrays | None = None,
    resume: Checkpoint | None = None,
    faults: Faults | None = None,
    need: int | float = 1,
    retries: int = 2,
) -> Iterator[Round]:
    """Run `algorithm` on the clients of `engine`; yield a `Round` after every exchange.

    Parameters
    ----------
    algorithm : Algorithm
    engine : Engine
    participation : Participation, optional
        Who takes part in a round; everyone by default.
    seed : int
        Seeds all draws: those of server, clients, participation and faults.
    run : str
        Names the run in every message, so that messages of another are refused.
    given : mapping of str to array, optional
        What the caller starts from.
    resume : Checkpoint, optional
        Go on from here instead of from the start.
    faults : Faults, optional
        Replies to lose, for tests and rehearsals.
    need : int or float
        Fewest replies that an exchange counts: an int is a number of clients, a float a fraction
        of those asked.
    retries : int
        How often an exchange with too few replies is tried again, each time with a new cohort.

    Yields
    ------
    Round
    """
    participation = participation or Full()
    faults = faults or NoFaults()
    if resume is None:
        step = 0
        state = algorithm.start(engine.spec, Stream(seed, 0, "start"), given or {})
    else:
        step, state = resume.step, resume.state
    engine.restore(resume.engine if resume else {})
    while (request := algorithm.request(state)) is not None:
        started = time.perf_counter()
        request = replace(request, run=run, step=step, seed=seed)
        total, traffic, asked, attempt = _exchange(
            algorithm, engine, request, participation, faults, need, retries
        )
        state, metrics = algorithm.server(state, total, Stream(seed, step, "server"))
        numbers = dict(metrics)
        yield Round(
            step=step,
            round=request.round,
            phase=request.phase,
            asked=asked,
            replied=len(total.clients),
            attempt=attempt,
            objective=numbers.pop("objective", None),
            traffic=traffic,
            seconds=time.perf_counter() - started,
            metrics=numbers,
            state=state,
        )
        step += 1


def _exchange(
    algorithm: Algorithm,
    engine: Engine,
    request: Request,
    participation: Participation,
    faults: Faults,
    need: int | float,
    retries: int,
) -> tuple[Total, Traffic, int, int]:
    """One exchange, tried again with another cohort while too few reply."""
    attempt, wasted = 0, Traffic()
    while True:
        cohort = _cohort(algorithm, engine, request, participation, attempt)
        cohort = faults.lose(cohort, request.step, attempt, request.seed)
        least = _fewest(need, len(cohort))
        try:
            total, traffic = engine.exchange(
                algorithm, replace(request, attempt=attempt), cohort, least
            )
        except QuorumError as error:
            wasted += error.traffic
            if attempt == retries:
                error.traffic = wasted
                raise
            attempt += 1
        else:
            return total, traffic + wasted, len(cohort), attempt


def _fewest(need: int | float, asked: int) -> int:
    """How many replies are enough: 0.1 of 30 is 3, though 0.1 * 30 is a little more than 3."""
    return int(np.ceil(round(need * asked, 9))) if isinstance(need, float) else int(need)


def _cohort(
    algorithm: Algorithm,
    engine: Engine,
    request: Request,
    participation: Participation,
    attempt: int,
) -> Cohort:
    who = algorithm.phases[request.phase].who
    if who == "everyone":
        return Full().draw(engine.spec, request.round, attempt, request.seed)
    if who == "chosen":
        if request.clients is None:
            raise ContractError(
                f"phase {request.phase!r} asks chosen clients, but its request names none"
            )
        chosen = np.unique(request.clients)
        return Cohort(chosen, np.ones(len(chosen)))
    return participation.draw(engine.spec, request.round, attempt, request.seed)

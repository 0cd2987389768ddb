"""Whole runs, compared with runs that must end alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie import codec
from coterie.backend import Array
from coterie.block import Block, Private
from coterie.checks.compare import close, compare_states, difference, same_state
from coterie.data.federation import Federation
from coterie.engines.processes import Processes
from coterie.engines.simulation import Simulation
from coterie.errors import ContractError, CoterieError, DataError
from coterie.participation import Faults
from coterie.protocol import Algorithm, Cohort, State
from coterie.rounds import Checkpoint, Round, rounds

Centralised = Callable[[Array], Mapping[str, Array]]
KeptSums = Callable[[Block, Private], Mapping[str, Array]]


@dataclass(frozen=True)
class Run:
    """What is run again and again."""

    algorithm: Algorithm
    federation: Federation
    seed: int
    exchanges: int
    given: Mapping[str, Array]

    def steps(
        self,
        engine: Any = None,
        *,
        algorithm: Algorithm | None = None,
        resume: Checkpoint | None = None,
        faults: Faults | None = None,
    ) -> Iterator[Round]:
        """The first exchanges."""
        engine = engine or Simulation(self.federation, threads=1)
        done = 0 if resume is None else resume.step
        every = rounds(
            algorithm or self.algorithm,
            engine,
            seed=self.seed,
            given=self.given,
            resume=resume,
            faults=faults,
        )
        for record, _ in zip(every, range(done, self.exchanges), strict=False):
            yield record

    def last_state(self, engine: Any = None, **how: Any) -> State:
        """The state after the first exchanges."""
        state = None
        for record in self.steps(engine, **how):
            state = record.state
        if state is None:
            raise ContractError("the algorithm finished before its first exchange")
        return state


def state_of(record: Round) -> State:
    """The state after an exchange."""
    if record.state is None:
        raise ContractError(f"exchange {record.step} left no state")
    return record.state


def check_resume(run: Run) -> None:
    """From a checkpoint after any exchange, through bytes, a run ends in the same bits.

    It is resumed by an algorithm that was made anew, as by another process.
    """
    anew = replace(run, algorithm=replace(run.algorithm))  # type: ignore[type-var]
    engine = Simulation(run.federation, threads=1)
    saved, last = [], None
    for record in run.steps(engine):
        last = state_of(record)
        saved.append((codec.encode_state(last), record.step + 1, codec.pack(engine.snapshot())))
    for state, step, private in saved[:-1]:
        checkpoint = Checkpoint(codec.decode_state(state), step, codec.unpack(private)[0])
        again = anew.last_state(resume=checkpoint)
        if last is None or not same_state(last, again):
            raise ContractError(f"resume: a run resumed before exchange {step} ends differently")


@dataclass(frozen=True)
class _Lose:
    """Loses the replies of some clients, or leaves these clients out."""

    leave_out: bool

    def lose(self, cohort: Cohort, step: int, attempt: int, seed: int) -> Cohort:
        lost = (cohort.clients + step) % 3 == 0 if len(cohort) > 2 else np.zeros(len(cohort), bool)
        marked = replace(cohort, lost=lost)
        return marked.arriving() if self.leave_out else marked


def check_lost_replies(run: Run) -> None:
    """A lost reply is a client never asked, and the server half can do without it."""
    try:
        lost, left_out = (run.last_state(faults=_Lose(leave_out=f)) for f in (False, True))
    except CoterieError:
        raise
    except Exception as error:
        raise ContractError(f"lost replies: {type(error).__name__}: {error}") from error
    compare_states("a lost reply = a client never asked", lost, left_out)


def check_kept_sums(run: Run, sums: KeptSums) -> None:
    """Where replies got lost, the sums that the server keeps are still those of the clients."""
    engine = Simulation(run.federation, threads=1)
    state = run.last_state(engine, faults=_Lose(leave_out=False))
    expected = sums(run.federation.block(), engine.private())
    for name in expected:
        if not close(state[name], expected[name]):
            detail = difference(state.arrays, expected, name)
            raise ContractError(f"the server's sums = the clients': {name!r} differs by {detail}")


def check_permuted(run: Run) -> None:
    """The roster's order does not matter while everyone takes part."""
    everyone = run.federation
    order = np.random.default_rng(run.seed).permutation(everyone.n_clients)
    permuted = everyone.select(order)
    one, other = run.last_state(), replace(run, federation=permuted).last_state()
    one, other = (_without_clients(state, len(order)) for state in (one, other))
    compare_states("order of the roster does not matter", one, other)


def _without_clients(state: State, n_clients: int) -> State:
    """A state without its arrays of one entry a client, which are in the roster's order."""
    kept = {name: a for name, a in state.arrays.items() if a.shape[:1] != (n_clients,)}
    return State(state.phase, state.round, kept)


def check_clients_without_rows(run: Run) -> None:
    """A federation refuses clients that have nothing to say."""
    rows = run.federation.client(0)
    try:
        Federation.from_clients([rows, rows[:0]])
    except DataError:
        return
    raise ContractError("clients without rows: a federation took one")


def check_processes(run: Run) -> None:
    """With every client in a process of its own the run ends in the same state, to 1e-9.

    Replies are lost here too: it is where private state is tentative.
    """
    faults = _Lose(leave_out=False)
    with Processes(run.federation) as engine:
        apart = run.last_state(engine, faults=faults)
    compare_states("processes = simulation", run.last_state(faults=faults), apart)


def check_centralised(run: Run, twin: Centralised) -> None:
    """One client with all rows is the centralised method."""
    pooled = Federation.from_arrays(run.federation.X)
    state = replace(run, federation=pooled).last_state()
    for name, expected in twin(pooled.X).items():
        if not close(state[name], expected):
            raise ContractError(f"one client = centralised: {name!r} differs from the twin's")

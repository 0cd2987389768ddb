"""The one loop: quorum, retries, faults, records, resuming, stopping."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from algorithms import Changes, Mean, Mixed, Small
from coterie.backend import Arrays
from coterie.block import Block, Private
from coterie.data.federation import Federation
from coterie.engines.simulation import Simulation
from coterie.errors import ContractError, QuorumError
from coterie.fields import Reply, Stack
from coterie.participation import LostReplies, Uniform
from coterie.protocol import Algorithm, Cohort, Phase, Request, Spec, State, Total, Traffic
from coterie.random import Stream
from coterie.rounds import Checkpoint, Round, rounds

N = 10


def federation(n_clients: int = N) -> Federation:
    rng = np.random.default_rng(1)
    return Federation.from_clients(
        [rng.integers(0, 9, size=(2 + i, 3)).astype(float) for i in range(n_clients)]
    )


@dataclass
class Recording:
    """A simulation that remembers whom it was asked for."""

    inner: Simulation = field(default_factory=lambda: Simulation(federation()))
    requests: list[Request] = field(default_factory=list)
    cohorts: list[Cohort] = field(default_factory=list)
    needs: list[int] = field(default_factory=list)

    @property
    def spec(self) -> Spec:
        return self.inner.spec

    def exchange(
        self, algorithm: Algorithm, request: Request, cohort: Cohort, need: int = 1
    ) -> tuple[Total, Traffic]:
        self.requests.append(request)
        self.cohorts.append(cohort)
        self.needs.append(need)
        return self.inner.exchange(algorithm, request, cohort, need)

    def snapshot(self) -> Arrays:
        return self.inner.snapshot()

    def restore(self, arrays: Arrays) -> None:
        self.inner.restore(arrays)


@dataclass(frozen=True)
class LoseFirst:
    """Loses the replies of `several` clients in the first `attempts` attempts of `steps`."""

    several: int
    attempts: int = 1
    steps: tuple[int, ...] = (1,)

    def lose(self, cohort: Cohort, step: int, attempt: int, seed: int) -> Cohort:
        if step not in self.steps or attempt >= self.attempts:
            return cohort
        return replace(cohort, lost=np.arange(len(cohort)) < self.several)


def states(records: list[Round]) -> list[Mapping[str, Any]]:
    return [{n: a.tolist() for n, a in r.state.arrays.items()} for r in records if r.state]


# -- what the loop does ---------------------------------------------------------------------------


def test_an_exchange_a_step_and_what_the_paper_counts() -> None:
    engine = Recording()
    records = list(rounds(Mixed(), engine, seed=3, run="r"))
    assert [(r.step, r.phase, r.round) for r in records] == [
        (0, "look", 0),
        (1, "round", 1),
        (2, "ask", 1),
        (3, "round", 2),
        (4, "round", 3),
    ]
    assert [(q.run, q.step, q.attempt, q.seed) for q in engine.requests] == [
        ("r", step, 0, 3) for step in range(5)
    ]
    assert all(r.attempt == 0 and r.seconds > 0 and r.asked == r.replied for r in records)


@dataclass(frozen=True)
class Shaken(Changes):
    """`Changes` with a server half that draws."""

    def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Mapping[str, float]]:
        after, metrics = super().server(state, total, rng)
        return after.to(after.phase, w=after["w"] + rng.server().random()), metrics


def test_the_loop_is_its_definition_written_out() -> None:
    algorithm, seed = Shaken(), 5
    engine = Simulation(federation())
    state = algorithm.start(engine.spec, Stream(seed, 0, "start"), {})
    for record in rounds(algorithm, Simulation(federation()), Uniform(4), seed=seed):
        request = algorithm.request(state)
        assert request is not None
        request = replace(request, step=record.step, seed=seed)
        everyone = record.phase == "sums"
        cohort = (
            Cohort(np.arange(N), np.ones(N))
            if everyone
            else Uniform(4).draw(engine.spec, request.round, 0, seed)
        )
        total, traffic = engine.exchange(algorithm, request, cohort)
        state, _ = algorithm.server(state, total, Stream(seed, record.step, "server"))
        assert record.traffic == traffic
        assert states([record]) == [{n: a.tolist() for n, a in state.arrays.items()}]
    assert algorithm.request(state) is None


def test_a_cohort_is_the_participations_everyone_is_all_and_the_chosen_are_named() -> None:
    engine = Recording()
    records = list(rounds(Mixed(), engine, Uniform(4), seed=2))
    by_phase = [(r.phase, c) for r, c in zip(records, engine.cohorts, strict=True)]
    for record, (phase, cohort) in zip(records, by_phase, strict=True):
        if phase == "look":
            assert cohort.clients.tolist() == list(range(N))
        elif phase == "ask":
            assert cohort.clients.tolist() == [0, 2]  # sorted, each once
        else:
            drawn = Uniform(4).draw(engine.spec, record.round, 0, 2)
            assert cohort.clients.tolist() == drawn.clients.tolist()
        assert record.asked == len(cohort)
        assert (cohort.weights == 1).all()


def test_both_exchanges_of_a_round_have_the_same_cohort() -> None:
    @dataclass(frozen=True)
    class Twice(Mean):
        def server(
            self, state: State, total: Total, rng: Stream
        ) -> tuple[State, Mapping[str, float]]:
            after, metrics = super().server(state, total, rng)
            again = float(state.arrays.get("again", 1.0))
            return replace(
                after.to("round", again=1 - again), round=state.round + int(again == 0)
            ), metrics

    engine = Recording()
    records = list(rounds(Twice(), engine, Uniform(3)))
    assert [r.round for r in records] == [1, 1, 2, 2, 3, 3]
    drawn = [tuple(c.clients.tolist()) for c in engine.cohorts]
    assert drawn[0::2] == drawn[1::2]
    assert len(set(drawn)) == 3


def test_chosen_without_names_breaks_the_contract() -> None:
    @dataclass(frozen=True)
    class Nameless(Mean):
        phases = {"round": replace(Mean.phases["round"], who="chosen")}  # noqa: RUF012

    with pytest.raises(ContractError, match="names none"):
        next(rounds(Nameless(), Simulation(federation())))


def test_what_the_caller_gives_reaches_the_start() -> None:
    given = {"mean": np.full(3, 100.0)}
    first = next(rounds(Mean(), Simulation(federation()), given=given))
    assert first.state is not None
    assert (first.state["mean"] > 50).all()


def test_an_engine_begins_every_run_anew() -> None:
    engine = Simulation(federation())
    once = states(list(rounds(Changes(), engine, Uniform(4), seed=1)))
    again = states(list(rounds(Changes(), engine, Uniform(4), seed=1)))
    assert once == again


# -- quorum and retries ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("need", "least"),
    [
        (1, 1),
        (4, 4),
        (np.int64(4), 4),
        (0.5, 5),
        (0.1, 1),
        (0.41, 5),
        (1.0, 10),
        (0.3, 3),
        (0.7, 7),
    ],
)
def test_a_quorum_is_a_count_or_a_fraction(need: float, least: int) -> None:
    engine = Recording()
    next(rounds(Mean(), engine, need=need))
    assert engine.needs == [least]


@pytest.mark.parametrize("n_clients", [3, 10, 30, 100, 300])
def test_a_fraction_of_the_asked_is_not_one_more_for_rounding(n_clients: int) -> None:
    engine = Recording(Simulation(federation(n_clients)))
    for percent in range(1, 101):
        next(rounds(Mean(), engine, need=percent / 100))
    exact = [-(-percent * n_clients // 100) for percent in range(1, 101)]
    assert engine.needs == exact


def test_a_retry_draws_a_new_cohort_and_pays_for_both() -> None:
    engine = Recording()
    faults = LoseFirst(several=2)
    records = list(rounds(Mean(), engine, Uniform(4), faults=faults, need=3, seed=4))
    assert [r.attempt for r in records] == [0, 1, 0]
    assert [(q.step, q.attempt) for q in engine.requests] == [(0, 0), (1, 0), (1, 1), (2, 0)]
    failed, tried = engine.cohorts[1:3]
    assert failed.clients.tolist() != tried.clients.tolist()
    drawn = Uniform(4).draw(engine.spec, 2, 1, 4)
    assert tried.clients.tolist() == drawn.clients.tolist()
    assert records[1].traffic.down == 2 * records[0].traffic.down
    assert records[1].traffic.framing_down == 2 * records[0].traffic.framing_down
    assert records[1].traffic.up == records[0].traffic.up
    assert (records[1].asked, records[1].replied) == (4, 4)


def test_enough_replies_are_enough() -> None:
    records = list(rounds(Mean(), Recording(), Uniform(4), faults=LoseFirst(several=2), need=2))
    assert [(r.asked, r.replied, r.attempt) for r in records] == [(4, 4, 0), (4, 2, 0), (4, 4, 0)]
    assert records[1].traffic.down == records[0].traffic.down
    assert records[1].traffic.up * 2 == records[0].traffic.up


def test_after_all_retries_the_error_tells_what_it_cost() -> None:
    engine = Recording()
    faults = LoseFirst(several=2, attempts=99)
    loop = rounds(Mean(), engine, Uniform(4), faults=faults, need=3, retries=2)
    first = next(loop)
    with pytest.raises(QuorumError, match=r"2 of 4 clients replied in round 2.*3 are needed") as e:
        next(loop)
    assert len(engine.requests) == 1 + 3
    assert e.value.traffic.down == 3 * first.traffic.down
    assert next(loop, None) is None


def test_a_failed_attempt_changes_nothing() -> None:
    plain = list(rounds(Changes(), Simulation(federation()), seed=2))
    faults = LoseFirst(several=9, steps=(0, 1, 2, 3), attempts=2)
    tried = list(rounds(Changes(), Simulation(federation()), seed=2, faults=faults, need=10))
    assert [r.attempt for r in tried] == [2] * 4
    assert states(tried) == states(plain)


def test_nobody_is_never_enough() -> None:
    faults = LoseFirst(several=N, attempts=9, steps=(0,))
    with pytest.raises(QuorumError, match="0 of 10"):
        next(rounds(Mean(), Simulation(federation()), faults=faults, need=0))


def test_faults_hit_everyone_and_the_chosen_too() -> None:
    faults = LoseFirst(several=1, steps=(0, 1, 2), attempts=9)
    records = list(rounds(Mixed(), Simulation(federation()), Uniform(4), faults=faults))
    assert [(r.phase, r.asked - r.replied) for r in records[:3]] == [
        ("look", 1),
        ("round", 1),
        ("ask", 1),
    ]


def test_a_lost_reply_is_a_client_never_asked() -> None:
    @dataclass(frozen=True)
    class LeaveOut:
        of: LostReplies

        def lose(self, cohort: Cohort, step: int, attempt: int, seed: int) -> Cohort:
            return self.of.lose(cohort, step, attempt, seed).arriving()

    lossy = LostReplies(0.4)
    lost, left_out = (
        list(rounds(Changes(8), Simulation(federation()), Uniform(6), faults=faults, seed=9))
        for faults in (lossy, LeaveOut(lossy))
    )
    assert states(lost) == states(left_out)
    assert any(r.replied < r.asked for r in lost)


# -- resuming and stopping ------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [Mixed(4), Changes(4)], ids=["mixed", "changes"])
def test_resumed_after_any_exchange_a_run_ends_in_the_same_bits(algorithm: Small) -> None:
    engine = Simulation(federation())
    how: dict[str, Any] = {"seed": 6, "faults": LostReplies(0.3)}
    records, checkpoints = [], []
    for record in rounds(algorithm, engine, Uniform(4), **how):
        records.append(record)
        assert record.state is not None
        checkpoints.append(Checkpoint(record.state, record.step + 1, engine.snapshot()))
    for checkpoint in reversed(checkpoints):
        for on in (Simulation(federation()), engine):  # a new process, or the same one
            rest = list(rounds(algorithm, on, Uniform(4), resume=checkpoint, **how))
            want = records[checkpoint.step :]
            assert states(rest) == states(want)
            assert [strip(r) for r in rest] == [strip(r) for r in want]


def strip(record: Round) -> Round:
    """A record but for its time."""
    return replace(record, seconds=0.0)


def test_an_algorithm_without_private_state_resumes_from_its_state_alone() -> None:
    records = list(rounds(Mean(5), Simulation(federation()), Uniform(4)))
    middle = records[1]
    assert middle.state is not None
    rest = rounds(Mean(5), Simulation(federation()), Uniform(4), resume=Checkpoint(middle.state, 2))
    assert states(list(rest)) == states(records[2:])


@pytest.mark.parametrize("after", range(5))
def test_iteration_may_stop_at_any_point(after: int) -> None:
    engine = Recording()
    loop = rounds(Mixed(), engine)
    assert len(engine.requests) == 0  # nothing moves before the first record is asked for
    seen = list(itertools.islice(loop, after))
    assert len(seen) == len(engine.requests) == after
    loop.close()  # type: ignore[attr-defined]
    assert len(engine.requests) == after


def test_an_engine_that_raises_is_the_callers_to_hear() -> None:
    @dataclass
    class Broken(Recording):
        def exchange(self, *args: Any, **more: Any) -> tuple[Total, Traffic]:
            if len(self.requests) == 2:
                raise ConnectionError("the cable")
            return super().exchange(*args, **more)

    loop = rounds(Mean(5), Broken(), retries=5)
    assert [next(loop).step, next(loop).step] == [0, 1]
    with pytest.raises(ConnectionError, match="the cable"):
        next(loop)


# -- records --------------------------------------------------------------------------------------


def test_a_record_goes_through_json() -> None:
    @dataclass(frozen=True)
    class Told(Mean):
        def server(
            self, state: State, total: Total, rng: Stream
        ) -> tuple[State, Mapping[str, float]]:
            state, metrics = super().server(state, total, rng)
            return state, {**metrics, "objective": 1.5}

    for record in rounds(Told(), Simulation(federation()), Uniform(3)):
        assert record.objective == 1.5
        assert set(record.metrics) == {"gap"}
        back = Round.from_record(json.loads(json.dumps(record.record())))
        assert back == replace(record, state=None)
        assert (back.bytes_down, back.bytes_up) == (record.traffic.down, record.traffic.up)


def test_a_line_says_round_phase_objective_clients_and_bytes() -> None:
    record = Round(3, 2, "round", 5, 4, 0, 0.25, Traffic(1, 2000, 3, 4), 1.5)
    assert record.line() == ("round    2  round     objective 0.25  4 clients  up 2,000 B  1.500 s")
    assert "objective" not in replace(record, objective=None).line()


def test_a_stack_is_in_the_order_of_the_total() -> None:
    @dataclass(frozen=True)
    class Keys(Small):
        phases = {"round": Phase({"key": Stack})}  # noqa: RUF012

        def start(self, spec: Spec, rng: Stream, given: Arrays) -> State:
            return State("round", 0, {})

        def client(
            self, request: Request, block: Block, private: Private, rng: Stream
        ) -> tuple[Reply, Private]:
            return {"key": Stack(block.keys)}, private

        def server(
            self, state: State, total: Total, rng: Stream
        ) -> tuple[State, Mapping[str, float]]:
            return state.to("round", round=state.round + 1, who=total.clients, key=total["key"]), {}

    crowd = federation()
    for record in rounds(Keys(), Simulation(crowd), Uniform(5)):
        assert record.state is not None
        assert record.state["key"].tolist() == crowd.keys[record.state["who"]].tolist()

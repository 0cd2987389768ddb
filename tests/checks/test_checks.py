"""`check_algorithm` lets correct algorithms pass, and names what is broken in every other."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

import coterie as ct
from algorithms import (
    ByPlace,
    Changes,
    Failing,
    Farthest,
    Forgetful,
    KMeans,
    Mean,
    Models,
    Profiles,
    Small,
    sums_of_changes,
)
from coterie.backend import Arrays
from coterie.block import Block, Private
from coterie.checks import check_algorithm, example_federation
from coterie.errors import ClientError, ContractError
from coterie.fields import Field, Reply, Slots, Stack, Sum, Top
from coterie.protocol import Phase, Request, Spec, State, Total
from coterie.random import Stream

Array = npt.NDArray[Any]
Answer = tuple[Reply, Private]
Metrics = Mapping[str, float]


def check(algorithm: Any, **how: Any) -> None:
    check_algorithm(algorithm, processes=False, **how)


def broken(algorithm: Any, words: str, **how: Any) -> None:
    with pytest.raises(ContractError, match=words):
        check(algorithm, **how)


# -- what keeps the contract ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm",
    [Mean(), KMeans(), Profiles(), Models(), Farthest(), Changes(), KMeans(8), Farthest(k=40)],
    ids=repr,
)
def test_correct_algorithms_pass(algorithm: Small) -> None:
    check(algorithm)


@pytest.mark.parametrize("algorithm", [Models(), Changes()], ids=repr)
def test_correct_algorithms_pass_with_processes_too(algorithm: Small) -> None:
    check_algorithm(algorithm)


def test_kept_sums_are_checked_where_replies_get_lost() -> None:
    check(Changes(), sums=sums_of_changes)


def plain_kmeans(x: Array) -> dict[str, Array]:
    """Lloyd's k-means, row by row, from where `KMeans` starts."""
    centers = Stream(0, 0, "start").server().uniform(0, 4, size=(3, x.shape[1]))
    for _ in range(3):
        mine = [int(np.argmin([((row - c) ** 2).sum() for c in centers])) for row in x]
        for k in range(3):
            rows = [row for row, label in zip(x, mine, strict=True) if label == k]
            if rows:
                centers[k] = np.mean(rows, axis=0)
    return {"centers": centers}


def test_a_centralised_twin_is_compared() -> None:
    check(KMeans(), centralised=plain_kmeans)


def test_other_seeds_and_federations_are_looked_at_too() -> None:
    rows = [np.random.default_rng(i).normal(size=(n, 2)) for i, n in enumerate((4, 1, 6))]
    check(KMeans(), federation=ct.Federation.from_clients(rows), seed=5, exchanges=2)
    one = ct.Federation.from_clients(rows[:1])
    check(Changes(), federation=one)


def test_the_example_is_small_ragged_and_has_a_client_of_one_row() -> None:
    federation = example_federation()
    assert federation.sizes.min() == 1
    assert len(set(federation.sizes.tolist())) == federation.n_clients
    assert federation.n_samples < 100


# -- planted bugs: clients ------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted(Mean):
    """`Mean`, and what a bug makes of the answer."""

    def client(self, request: Request, block: Block, private: Private, rng: Stream) -> Answer:
        reply, private = super().client(request, block, private, rng)
        return {**reply, **self.bug(request, block, reply)}, private

    def bug(self, request: Request, block: Block, reply: Reply) -> Reply:
        raise NotImplementedError


def test_a_client_half_that_changes_its_request_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Planted):
        def bug(self, request: Request, block: Block, reply: Reply) -> Reply:
            request["mean"][:] = 7
            return reply

    broken(Bug(), "purity, phase 'round': the client half changed its inputs")


def test_a_client_half_that_changes_private_state_in_place_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Changes):
        def client(self, request: Request, block: Block, private: Private, rng: Stream) -> Answer:
            answer = super().client(request, block, private, rng)
            private.clients["known"][:] = 1
            return answer

    broken(Bug(), "purity, phase 'sums': the client half changed its inputs")


@pytest.mark.parametrize("what", ["x", "weights"])
def test_a_client_half_that_changes_its_block_is_caught(what: str) -> None:
    @dataclass(frozen=True)
    class Bug(Planted):
        def bug(self, request: Request, block: Block, reply: Reply) -> Reply:
            array = getattr(block, what)
            np.minimum(array, 0.5, out=array)  # the second call finds nothing to change
            return reply

    broken(Bug(), "purity, phase 'round': the client half changed its inputs")


def test_a_client_half_with_a_memory_is_caught() -> None:
    calls = itertools.count()

    @dataclass(frozen=True)
    class Bug(Planted):
        def bug(self, request: Request, block: Block, reply: Reply) -> Reply:
            return {"total": Sum(reply["total"].value + next(calls))}

    broken(Bug(), "purity, phase 'round': the same call gave two different answers")


def test_an_answer_that_depends_on_the_order_of_clients_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Planted):
        def bug(self, request: Request, block: Block, reply: Reply) -> Reply:
            first = block.dense()[:1].sum(0) * (block.n_clients > 0)
            return {"total": Sum(reply["total"].value + first)}

    broken(Bug(), "block of many = sum of its parts, phase 'round': 'total.value' differs by")


def test_an_order_that_only_a_whole_block_shows_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Profiles):
        def client(self, request: Request, block: Block, private: Private, rng: Stream) -> Answer:
            reply, private = super().client(request, block, private, rng)
            if block.n_clients == len(example_federation().sizes):
                reply = {"profile": Stack(np.sort(reply["profile"].value, axis=0))}
            return reply, private

    broken(Bug(), "block of many|order of clients")


def test_a_half_that_takes_clients_to_be_in_the_rosters_order_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Planted):
        def bug(self, request: Request, block: Block, reply: Reply) -> Reply:
            backwards = block.index is not None and bool((np.diff(block.index) < 0).any())
            return {"total": Sum(reply["total"].value * (1 + backwards))}

    broken(Bug(), "order of clients does not matter, phase 'round': 'total.value'")


def test_a_mean_over_the_block_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Planted):
        def bug(self, request: Request, block: Block, reply: Reply) -> Reply:
            return {"total": Sum(reply["total"].value / max(block.n_rows, 1))}

    broken(Bug(), "block of many = sum of its parts, phase 'round': 'total.value' differs by")


@pytest.mark.parametrize("power", [2, 0.5])
def test_weights_that_are_not_applied_once_are_caught(power: float) -> None:
    @dataclass(frozen=True)
    class Bug(Planted):
        def bug(self, request: Request, block: Block, reply: Reply) -> Reply:
            return {"total": Sum((block.spread(block.weights) ** power) @ block.dense())}

    broken(Bug(), "weights, phase 'round': field 'total' neither scales")


def test_weights_given_to_the_wrong_clients_are_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Planted):
        def bug(self, request: Request, block: Block, reply: Reply) -> Reply:
            return {"mass": Sum(np.array((block.weights[::-1] * block.sizes).sum()))}

    broken(Bug(), "weights, phase 'round': field 'mass' neither scales")


def test_a_stack_that_is_weighted_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Profiles):
        def client(self, request: Request, block: Block, private: Private, rng: Stream) -> Answer:
            reply, private = super().client(request, block, private, rng)
            return {"profile": Stack(reply["profile"].value * block.weights[:, None])}, private

    broken(Bug(), "weights, phase 'round': 'profile.value' differs")


def test_weights_that_reach_private_state_are_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Changes):
        def client(self, request: Request, block: Block, private: Private, rng: Stream) -> Answer:
            reply, private = super().client(request, block, private, rng)
            return reply, Private({"h": block.weighted(private.rows["h"])}, private.clients)

    broken(Bug(), "weights, phase 'sums': 'rows.h' differs")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"more": Sum(np.zeros(1))}, "mass: Sum, more: Sum, total: Sum"),
        ({"total": Stack(np.zeros((7, 6)))}, "total: Stack"),
        ({"total": None}, "replied mass: Sum$"),
    ],
    ids=["undeclared", "wrong kind", "missing"],
)
def test_fields_other_than_declared_are_caught(change: dict[str, Field | None], words: str) -> None:
    @dataclass(frozen=True)
    class Bug(Planted):
        def client(self, request: Request, block: Block, private: Private, rng: Stream) -> Answer:
            reply, private = Mean.client(self, request, block, private, rng)
            changed = {**reply, **change}
            return {n: f for n, f in changed.items() if f is not None}, private

    broken(Bug(), f"phase 'round' declares mass: Sum, total: Sum; .*{words}")


def test_a_phase_that_was_not_declared_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Mean):
        def request(self, state: State) -> Request | None:
            request = super().request(state)
            return request and replace(request, phase="surprise")

    broken(Bug(), "phase 'surprise' is not among the declared ones")


def test_a_reply_whose_size_tells_the_number_of_rows_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Farthest):
        phases: ClassVar[Mapping[str, Phase]] = {"round": Phase({"far": Top})}

        def client(self, request: Request, block: Block, private: Private, rng: Stream) -> Answer:
            reply, private = super().client(request, block, private, rng)
            top = reply["far"]
            assert isinstance(top, Top)
            blurred = Top(top.value, top.score, top.k, top.sent)
            object.__setattr__(blurred, "value", np.round(top.value, 1))
            return {"far": blurred}, private

    broken(Bug(), "no row leaves, phase 'round': the size of a reply depends on the number of rows")


@pytest.mark.parametrize("beside", [0, 1, 6], ids=["a row", "a row and more", "two rows"])
def test_a_row_that_leaves_in_a_stack_is_caught(beside: int) -> None:
    @dataclass(frozen=True)
    class Bug(Profiles):
        def client(self, request: Request, block: Block, private: Private, rng: Stream) -> Answer:
            x = block.dense()
            first = x[block.offsets[:-1]] if block.n_clients else x
            last = x[block.offsets[1:] - 1] if block.n_clients else x
            return {
                "profile": Stack(np.concatenate([last[:, :beside] / 2, first], axis=1))
            }, private

        def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Metrics]:
            return state.to("round", round=state.round + 1), {}

    broken(Bug(), "no row leaves, phase 'round': field 'profile' shows the server a row")


def test_rows_may_leave_where_the_phase_says_so() -> None:
    assert Farthest.phases["round"].uploads_rows
    check(Farthest())


def test_a_client_half_that_cannot_stand_an_empty_block_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Planted):
        def bug(self, request: Request, block: Block, reply: Reply) -> Reply:
            block.dense()[0]
            return reply

    broken(Bug(), "a block of no clients adds nothing, phase 'round': IndexError")


def test_an_empty_block_that_adds_something_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Planted):
        def bug(self, request: Request, block: Block, reply: Reply) -> Reply:
            return {"mass": Sum(np.array(max(block.mass.sum(), 1.0)))}

    broken(Bug(), "a block of no clients adds nothing, phase 'round': 'mass.value'")


def test_a_slot_filled_beside_the_one_that_is_named_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Models):
        def client(self, request: Request, block: Block, private: Private, rng: Stream) -> Answer:
            reply, private = super().client(request, block, private, rng)
            mass = reply["mass"]
            assert isinstance(mass, Slots)
            spread = mass.value + block.weights.sum()
            return {**reply, "mass": Slots(spread, mass.slot)}, private

    broken(Bug(), "replies travel, phase 'round': 'mass.value'")


def test_a_reply_of_a_type_that_does_not_travel_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Planted):
        def bug(self, request: Request, block: Block, reply: Reply) -> Reply:
            return {"total": Sum(reply["total"].value.astype(np.complex128))}

    broken(Bug(), "requests and replies travel, phase 'round': ProtocolError.*complex128")


def test_a_client_that_reads_another_clients_slot_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Models):
        def client(self, request: Request, block: Block, private: Private, rng: Stream) -> Answer:
            reply, private = super().client(request, block, private, rng)
            spoiled = reply["mass"].value * (1 + len(request.slots["models"]))
            assert isinstance(reply["mass"], Slots)
            return {**reply, "mass": Slots(spoiled, reply["mass"].slot)}, private

    broken(Bug(), "requests travel, phase 'round': 'mass.value'")


def test_an_error_of_the_algorithm_itself_names_the_client() -> None:
    federation = ct.Federation.from_clients(
        [np.ones((2, 2)), np.full((1, 2), 666.0)], ids=["a", "b"]
    )
    with pytest.raises(ClientError, match="client 'b', round 1, phase 'round': ValueError"):
        check(Failing(), federation=federation)


# -- planted bugs: private state ------------------------------------------------------------------


@pytest.mark.parametrize(
    "bug",
    [
        lambda p: Private({"h": p.rows["h"].astype(np.float32)}, p.clients),
        lambda p: Private(p.rows, {}),
        lambda p: Private(p.rows, {**p.clients, "new": p.clients["known"]}),
        lambda p: Private({"h": np.repeat(p.rows["h"], 2, axis=1)}, p.clients),
    ],
    ids=["another type", "a name less", "a name more", "another shape"],
)
def test_private_state_that_changes_its_shape_is_caught(bug: Any) -> None:
    @dataclass(frozen=True)
    class Bug(Changes):
        def client(self, request: Request, block: Block, private: Private, rng: Stream) -> Answer:
            reply, private = super().client(request, block, private, rng)
            return reply, bug(private)

    broken(Bug(), "private state keeps its shape, phase 'sums'")


def test_a_join_that_looks_at_the_others_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Changes):
        def join(self, request: Request, block: Block, rng: Stream) -> Private:
            private = super().join(request, block, rng)
            return Private({"h": private.rows["h"] + block.dense().mean()}, private.clients)

    broken(Bug(), "join, phase 'sums': 'rows.h' of a client depends on the others")


def test_changes_sent_where_the_beginning_was_never_heard_are_caught() -> None:
    broken(Forgetful(), "the server's sums = the clients': 'gram' differs", sums=sums_of_changes)


# -- planted bugs: the server ---------------------------------------------------------------------


@dataclass(frozen=True)
class PlantedServer(Mean):
    """`Mean`, and what a bug makes of the next state."""

    def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Metrics]:
        after, metrics = super().server(state, total, rng)
        return self.bug(state, total, after), metrics

    def bug(self, state: State, total: Total, after: State) -> State:
        raise NotImplementedError


@pytest.mark.parametrize("what", ["state", "total"])
def test_a_server_half_that_changes_its_inputs_is_caught(what: str) -> None:
    @dataclass(frozen=True)
    class Bug(PlantedServer):
        def bug(self, state: State, total: Total, after: State) -> State:
            array = state["mean"] if what == "state" else total["total"]
            array[0] = 3.0
            return after

    broken(Bug(), "purity, phase 'round': the server half")


def test_a_server_half_with_a_memory_is_caught() -> None:
    calls = itertools.count()

    @dataclass(frozen=True)
    class Bug(PlantedServer):
        def bug(self, state: State, total: Total, after: State) -> State:
            return after.to("round", mean=after["mean"] + next(calls))

    broken(Bug(), "purity, phase 'round': the server half gave two different states")


def test_a_start_that_differs_each_time_is_caught() -> None:
    calls = itertools.count()

    @dataclass(frozen=True)
    class Bug(Mean):
        def start(self, spec: Spec, rng: Stream, given: Arrays) -> State:
            return State("round", 0, {"mean": np.full(spec.n_features, float(next(calls)))})

    broken(Bug(), "purity, start: the server half gave two different states")


def test_a_state_that_does_not_travel_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(PlantedServer):
        def bug(self, state: State, total: Total, after: State) -> State:
            return after.to("round", mean=after["mean"].astype(">f8"))

    broken(Bug(), "states travel, phase 'round'")


@pytest.mark.parametrize("metric", [1, np.float32(1.0), None, np.ones(1), "1"], ids=repr)
def test_a_metric_that_is_no_float_is_caught(metric: Any) -> None:
    @dataclass(frozen=True)
    class Bug(Mean):
        def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Metrics]:
            after, _ = super().server(state, total, rng)
            return after, {"gap": metric}

    broken(Bug(), f"metrics: 'gap' is a {type(metric).__name__}, not a float")


def test_a_server_half_that_cannot_do_without_a_reply_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Profiles):
        def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Metrics]:
            kept = state["kept"] + total["profile"]
            return state.to("round", round=state.round + 1, kept=kept), {}

    broken(Bug(), "lost replies: ValueError: operands could not be broadcast")


def test_the_order_of_replies_seen_by_the_server_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Profiles):
        def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Metrics]:
            after, metrics = super().server(state, total, rng)
            return after.to("round", mean=total["profile"][0]), metrics

    broken(Bug(), "order of the roster does not matter: 'mean' differs")


def test_the_order_of_replies_that_moves_the_state_elsewhere_is_caught() -> None:
    @dataclass(frozen=True)
    class Bug(Profiles):
        def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Metrics]:
            after, metrics = super().server(state, total, rng)
            skips = int(np.argmax(total["profile"][:, 1]) % 2)
            return replace(after, round=after.round + skips), metrics

    words = "order of the roster does not matter: round 4 and round 2"
    broken(Bug(max_rounds=9), words, exchanges=2)


def test_what_is_kept_outside_of_the_state_is_caught_by_resuming() -> None:
    @dataclass(frozen=True)
    class Bug(PlantedServer):
        first: list[Array] = field(default_factory=list, init=False, compare=False)

        def bug(self, state: State, total: Total, after: State) -> State:
            if not self.first:
                self.first.append(total["total"] * (1 + state.round))
            return after.to("round", mean=after["mean"] + self.first[0])

    broken(Bug(), "resume: a run resumed before exchange 1 ends differently")


def test_a_client_half_that_remembers_between_exchanges_is_caught_by_resuming() -> None:
    """It answers alike however often it is asked in one exchange: only a restart shows it."""

    @dataclass(frozen=True)
    class Bug(Planted):
        seen: dict[int, float] = field(default_factory=dict, init=False, compare=False)

        def bug(self, request: Request, block: Block, reply: Reply) -> Reply:
            self.seen[request.step] = 1.0
            return {"total": Sum(reply["total"].value * len(self.seen))}

    broken(Bug(), "resume: a run resumed before exchange 1 ends differently")


def test_another_centralised_twin_is_caught() -> None:
    def wrong(x: Array) -> dict[str, Array]:
        return {"centers": plain_kmeans(x)["centers"] * 1.0001}

    broken(KMeans(), "one client = centralised: 'centers' differs", centralised=wrong)


def test_an_algorithm_that_is_no_dataclass_is_caught() -> None:
    class Plain:
        phases: ClassVar[Mapping[str, Phase]] = Mean.phases

    broken(Plain(), "Plain was given; an algorithm is a frozen dataclass")


def test_an_algorithm_that_has_nothing_to_do_is_caught() -> None:
    broken(Mean(max_rounds=0), "finished before its first exchange")


# -- planted bugs: processes ----------------------------------------------------------------------


def test_what_depends_on_the_place_in_the_federation_is_caught_by_processes() -> None:
    check(ByPlace())  # a simulation cannot see it
    with pytest.raises(ContractError, match="processes = simulation: 'mean' differs"):
        check_algorithm(ByPlace())


# -- estimators -----------------------------------------------------------------------------------


def test_an_estimator_stands_for_its_algorithm() -> None:
    check(ct.FedMGS(n_clusters=3, n_init=1, random_state=0), exchanges=5)

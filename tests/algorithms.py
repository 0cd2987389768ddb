"""Small algorithms that keep the contract, for the tests of engines, loop and checks.

They are in a module of their own so that the processes of clients can import them. On rows of
small integers all that they do is exact, so that results may be compared bit for bit.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from coterie.backend import Array, Arrays, host
from coterie.block import Block, Private
from coterie.fields import Ragged, Reply, Slots, Stack, Sum, Top
from coterie.protocol import Phase, Request, Spec, State, Total
from coterie.random import Stream

Metrics = Mapping[str, float]
PATIENCE = 30.0  # seconds that a client waits for a test to let it go on


@dataclass(frozen=True)
class Small:
    """What they share: one phase a round, nothing to join with, nothing to publish."""

    max_rounds: int = 3
    phases: ClassVar[Mapping[str, Phase]] = {}

    def start(self, spec: Spec, rng: Stream, given: Arrays) -> State:
        raise NotImplementedError

    def request(self, state: State) -> Request | None:
        if state.round >= self.max_rounds:
            return None
        return Request("round", state.round + 1, state.arrays)

    def join(self, request: Request, block: Block, rng: Stream) -> Private:
        return Private()

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        raise NotImplementedError

    def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Metrics]:
        raise NotImplementedError

    def model(self, state: State) -> Request:
        return Request("model", state.round, state.arrays)

    def assign(self, model: Request, block: Block) -> Array:
        return np.zeros(block.n_rows, dtype=np.int64)


@dataclass(frozen=True)
class Mean(Small):
    """Half way to the weighted mean of the cohort's rows, each round."""

    phases: ClassVar[Mapping[str, Phase]] = {"round": Phase({"total": Sum, "mass": Sum})}

    def start(self, spec: Spec, rng: Stream, given: Arrays) -> State:
        return State("round", 0, {"mean": given.get("mean", np.zeros(spec.n_features))})

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        def kernel(x: Any, w: Any) -> tuple[Any, Any]:
            return {}, {"total": w @ x}

        _, sums = block.map_rows(kernel, block.spread(block.weights))
        return {"total": Sum(sums["total"]), "mass": Sum(np.array(block.mass.sum()))}, private

    def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Metrics]:
        found = total["total"] / total["mass"]
        gap = float(np.abs(found - state["mean"]).max())
        state = state.to("round", round=state.round + 1, mean=(state["mean"] + found) / 2)
        return state, {"gap": gap}


@dataclass(frozen=True)
class KMeans(Small):
    """Lloyd's k-means by sums; an empty cluster's center stays."""

    n_clusters: int = 3
    phases: ClassVar[Mapping[str, Phase]] = {
        "round": Phase({"sums": Sum, "counts": Sum, "error": Sum})
    }

    def start(self, spec: Spec, rng: Stream, given: Arrays) -> State:
        drawn = rng.server().uniform(0, 4, size=(self.n_clusters, spec.n_features))
        return State("round", 0, {"centers": given.get("centers", drawn)})

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        centers, numbers = block.put(request["centers"], np.arange(self.n_clusters))

        def kernel(x: Any, w: Any) -> tuple[Any, Any]:
            distance = (centers * centers).sum(1) - 2 * (x @ centers.T)
            mine = (distance.argmin(1)[:, None] == numbers) * w[:, None]
            error = w @ (x * x).sum(1) + (distance * mine).sum()
            return {}, {"sums": mine.T @ x, "counts": mine.sum(0), "error": error}

        _, sums = block.map_rows(kernel, block.spread(block.weights))
        return {name: Sum(value) for name, value in sums.items()}, private

    def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Metrics]:
        counts = total["counts"][:, None]
        centers = np.where(counts > 0, total["sums"] / np.maximum(counts, 1e-300), state["centers"])
        state = state.to("round", round=state.round + 1, centers=centers)
        return state, {"objective": float(total["error"])}


@dataclass(frozen=True)
class Profiles(Small):
    """What each client's rows measure, kept for every client by name."""

    phases: ClassVar[Mapping[str, Phase]] = {"round": Phase({"profile": Stack})}

    def start(self, spec: Spec, rng: Stream, given: Arrays) -> State:
        return State("round", 0, {"kept": np.zeros((spec.n_clients, 2)), "mean": np.zeros(2)})

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        def kernel(x: Any) -> tuple[Any, Any]:
            return {"energy": (x * x).sum(1)}, {}

        rows, _ = block.map_rows(kernel)
        energy = block.per_client(rows["energy"])
        profile = np.stack([energy / np.maximum(block.sizes, 1), np.sqrt(energy)], axis=1)
        return {"profile": Stack(profile + request["mean"])}, private

    def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Metrics]:
        kept = state["kept"].copy()
        kept[total.clients] = total["profile"]
        mean = np.average(total["profile"], axis=0, weights=total.weights)
        return state.to("round", round=state.round + 1, kept=kept, mean=mean), {}


@dataclass(frozen=True)
class Models(Small):
    """One model a cluster: a client takes the nearest once, and from then on gets its own only."""

    n_clusters: int = 2
    phases: ClassVar[Mapping[str, Phase]] = {
        "round": Phase({"model": Slots, "mass": Slots, "label": Stack})
    }

    def start(self, spec: Spec, rng: Stream, given: Arrays) -> State:
        models = rng.server().uniform(0, 4, size=(self.n_clusters, spec.n_features))
        address = np.full(spec.n_clients, -1)
        return State("round", 0, {"models": models, "address": address})

    def request(self, state: State) -> Request | None:
        if state.round >= self.max_rounds:
            return None
        slots = {"models": state["models"], "number": np.arange(self.n_clusters)}
        return Request("round", state.round + 1, {}, slots, state["address"])

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        mean = block.per_client(host(block.dense())) / np.maximum(block.sizes, 1)[:, None]
        models, number = request.own("models"), request.own("number").copy()
        new = np.asarray(request.address) < 0
        if new.any():
            distance = ((mean[:, None] - request.slots["models"]) ** 2).sum(2)
            number[new] = distance.argmin(1)[new]
            models = np.where(new[:, None], request.slots["models"][distance.argmin(1)], models)
        rows = block.sizes.astype(np.float64)
        moved = (models + mean) / 2 * rows[:, None]
        reply = {
            "model": Slots.of(block, moved, number, self.n_clusters),
            "mass": Slots.of(block, rows, number, self.n_clusters),
            "label": Stack(number),
        }
        return reply, private

    def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Metrics]:
        mass = total["mass"][:, None]
        models = np.where(mass > 0, total["model"] / np.maximum(mass, 1), state["models"])
        address = state["address"].copy()
        address[total.clients] = total["label"]
        return state.to("round", round=state.round + 1, models=models, address=address), {}


@dataclass(frozen=True)
class Farthest(Small):
    """A center that runs after the rows farthest from it; these rows are shown to the server."""

    k: int = 4
    phases: ClassVar[Mapping[str, Phase]] = {"round": Phase({"far": Top}, uploads_rows=True)}

    def start(self, spec: Spec, rng: Stream, given: Arrays) -> State:
        return State("round", 0, {"center": np.zeros(spec.n_features)})

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        x = block.dense()
        score = ((x - request["center"]) ** 2).sum(1)
        sent = np.minimum(block.sizes, self.k)
        return {"far": Top.of(score, x, self.k, sent=sent)}, private

    def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Metrics]:
        center = (state["center"] + total["far"].mean(0)) / 2
        return state.to("round", round=state.round + 1, center=center, far=total["far"]), {}


@dataclass(frozen=True)
class Changes(Small):
    """Memberships that stay private; the server keeps their sums, and is told what changed."""

    phases: ClassVar[Mapping[str, Phase]] = {
        "sums": Phase({"gram": Sum, "cross": Sum}, who="everyone", private=True),
        "round": Phase({"gram": Sum, "cross": Sum}, private=True),
    }

    def start(self, spec: Spec, rng: Stream, given: Arrays) -> State:
        arrays = {"gram": np.zeros((2, 2)), "cross": np.zeros((2, spec.n_features))}
        return State("sums", 0, arrays | {"w": np.ones((2, spec.n_features))})

    def request(self, state: State) -> Request | None:
        if state.phase == "sums":
            return Request("sums", 0, {"w": state["w"]})
        if state.round >= self.max_rounds:
            return None
        return Request("round", state.round + 1, {"w": state["w"]})

    def join(self, request: Request, block: Block, rng: Stream) -> Private:
        start = block.extra.get("h")
        h = rng.rows(block, 2) if start is None else block.put(start)
        return Private({"h": h}, {"known": np.zeros(block.n_clients)})

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        w = block.put(request["w"])
        known = self.known(request, private)

        def kernel(x: Any, was: Any, known: Any) -> tuple[Any, Any]:
            h = was if request.phase == "sums" else ((was + x @ w.T) / 2).clip(min=0)
            before = was * known[:, None]
            gram = h.T @ h - before.T @ before
            return {"h": h}, {"gram": gram, "cross": (h - before).T @ x}

        rows, sums = block.map_rows(kernel, private.rows["h"], block.spread(known))
        reply = {name: Sum(value) for name, value in sums.items()}
        return reply, Private(rows, {"known": np.ones(len(known))})

    def known(self, request: Request, private: Private) -> Array:
        return np.asarray(private.clients["known"])

    def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Metrics]:
        gram, cross = state["gram"] + total["gram"], state["cross"] + total["cross"]
        w = cross / (1 + np.abs(cross).max())
        rounds = 0 if state.phase == "sums" else state.round + 1
        return state.to("round", round=rounds, gram=gram, cross=cross, w=w), {}


def sums_of_changes(block: Block, private: Private) -> dict[str, Array]:
    """What the server of `Changes` must hold, from what the clients hold."""
    h = host(private.rows["h"])
    return {"gram": h.T @ h, "cross": h.T @ block.dense()}


@dataclass(frozen=True)
class Mixed(Small):
    """Every kind of phase and field, slots with addresses, private state: exact on integers.

    A "look" at everyone, rounds of a cohort, and after the first of them an "ask" of two clients.
    """

    n_clusters: int = 3
    phases: ClassVar[Mapping[str, Phase]] = {
        "look": Phase({"far": Top, "size": Stack}, who="everyone", uploads_rows=True),
        "round": Phase(
            {"cross": Sum, "model": Slots, "picked": Ragged, "label": Stack},
            private=True,
            uploads_rows=True,
        ),
        "ask": Phase({"first": Stack}, who="chosen", uploads_rows=True),
    }

    def start(self, spec: Spec, rng: Stream, given: Arrays) -> State:
        arrays = {
            "models": np.zeros((self.n_clusters, spec.n_features)),
            "address": np.full(spec.n_clients, -1),
            "cross": np.zeros((2, spec.n_features)),
        }
        return State("look", 0, arrays)

    def request(self, state: State) -> Request | None:
        if state.phase == "look":
            return Request("look", 0, {})
        if state.phase == "ask":  # of clients in no order, one of them twice
            return Request("ask", state.round, {}, clients=np.array([2, 0, 2]))
        if state.round >= self.max_rounds:
            return None
        slots = {"models": state["models"], "number": np.arange(self.n_clusters)}
        shared = {"cross": state["cross"]}
        return Request("round", state.round + 1, shared, slots, state["address"])

    def join(self, request: Request, block: Block, rng: Stream) -> Private:
        h = block.put(np.floor(8 * host(rng.rows(block, 2))))
        return Private({"h": h}, {"met": np.zeros(block.n_clients, dtype=np.int64)})

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        if request.phase == "look":
            x = block.dense()
            sent = np.minimum(block.sizes, 3)
            far = Top.of(x.sum(1), x, 3, sent=sent)
            return {"far": far, "size": Stack(block.sizes)}, private
        if request.phase == "ask":
            first = block.dense()[block.offsets[:-1]] if block.n_clients else block.dense()
            return {"first": Stack(first)}, private
        return self._round(request, block, private, rng)

    def _round(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        sign = block.put(np.where(request["cross"] > 0, 1.0, -1.0))
        met = np.asarray(private.clients["met"])

        def kernel(x: Any, was: Any, known: Any) -> tuple[Any, Any]:
            h = was + x @ sign.T
            return {"h": h}, {"cross": (h - was * known[:, None]).T @ x}

        rows, sums = block.map_rows(kernel, private.rows["h"], block.spread((met > 0) * 1.0))
        picked = host(rng.rows(block))[:, 0] < 0.4
        number, models = request.own("number").copy(), request.own("models").copy()
        new = np.asarray(request.address) < 0
        number[new] = (block.keys + rng.step)[new] % self.n_clusters
        models[new] = request.slots["models"][number[new]] if new.any() else 0
        moved = models + block.per_client(block.dense())
        reply = {
            "cross": Sum(sums["cross"]),
            "model": Slots.of(block, moved, number, self.n_clusters),
            "picked": Ragged(
                block.dense()[picked], np.bincount(block.owner[picked], minlength=block.n_clients)
            ),
            "label": Stack(number),
        }
        return reply, Private(rows, {"met": met + 1})

    def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Metrics]:
        if state.phase == "look":
            return state.to("round", far=total["far"], size=total["size"]), {}
        if state.phase == "ask":
            return state.to("round", first=total["first"], asked=total.clients), {}
        address = state["address"].copy()
        address[total.clients] = total["label"]
        picked = total.fields["picked"]
        assert isinstance(picked, Ragged)
        state = state.to(
            "ask" if state.round == 0 else "round",
            round=state.round + 1,
            cross=state["cross"] + total["cross"],
            models=state["models"] + total["model"],
            address=address,
            picked=picked.value,
            counts=picked.counts,
        )
        return state, {"picked": float(len(picked.value))}


# -- clients that misbehave ---------------------------------------------------------------------


@dataclass(frozen=True)
class Failing(Mean):
    """Fails on a row that begins with `poison`; or only where there are several clients."""

    poison: float = 666.0
    together: bool = False

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        if (block.dense()[:, 0] == self.poison).any():
            raise ValueError("a poisoned row")
        if self.together and block.n_clients > 1:
            raise ValueError("one at a time, please")
        return super().client(request, block, private, rng)


@dataclass(frozen=True)
class Held(Changes):
    """The client with a row that begins with `held` waits while a file is there."""

    gate: str = ""
    held: float = 5.0
    ballast: int = 0  # entries of a useless array in each request and reply
    phases: ClassVar[Mapping[str, Phase]] = {
        name: replace(phase, replies={**phase.replies, "ballast": Sum})
        for name, phase in Changes.phases.items()
    }

    def request(self, state: State) -> Request | None:
        request = super().request(state)
        if request is None:
            return None
        shared = {**request.shared, "ballast": np.zeros(self.ballast)}
        return Request(request.phase, request.round, shared)

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        if (block.dense()[:, 0] == self.held).any():
            end = time.monotonic() + PATIENCE
            while Path(self.gate).exists() and time.monotonic() < end:
                time.sleep(0.01)
        reply, private = super().client(request, block, private, rng)
        return {**reply, "ballast": Sum(np.zeros(self.ballast))}, private


@dataclass(frozen=True)
class Dying(Changes):
    """The client with a row that begins with `victim` kills its process where a file is there."""

    gate: str = ""
    victim: float = 5.0

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        if (block.dense()[:, 0] == self.victim).any() and Path(self.gate).exists():
            Path(self.gate).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().client(request, block, private, rng)


@dataclass(frozen=True)
class ByPlace(Mean):
    """Breaks the contract: what it adds depends on where in the federation its rows lie."""

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        reply, private = super().client(request, block, private, rng)
        place = np.arange(block.n_rows) if block.index is None else block.index
        more = Sum(reply["total"].value + block.spread(block.weights) @ place)
        return {**reply, "total": more}, private


@dataclass(frozen=True)
class Forgetful(Changes):
    """Breaks the contract: sends changes also where the server never heard the beginning."""

    def known(self, request: Request, private: Private) -> Array:
        known = np.asarray(private.clients["known"])
        return known if request.phase == "sums" else np.ones(len(known))

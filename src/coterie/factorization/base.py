"""What the factorisation algorithms share: how they start, what they publish, how they assign.

Every one of them begins with the same phases::

    measure    everyone   ‖X‖², Σ|x|, and the range of X where bounds="data"
    seed       chosen     local centers, for the one-shot start
    mean       everyone   Σ x and Σ x², for the start that needs sums only
    ... the algorithm's own phases, from `Starting.begun` on ...
    score      everyone   the error of each start, where there were several
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.backend import Array, Arrays
from coterie.block import Block, Private
from coterie.errors import DataError, ParameterError
from coterie.factorization import rays, starts
from coterie.factorization.declaration import Factorization
from coterie.factorization.memberships import curvature
from coterie.factorization.penalty import first_penalty
from coterie.fields import Field, Reply, Stack, Sum, Top
from coterie.protocol import Phase, Request, Spec, State, Total
from coterie.random import Stream

STARTS = ("one-shot", "sums", "random", "given")
RIDGE = 1e-10  # of the mean squared norm of a row
OFFSET = 2.0  # of the root mean square norm of a row
ALIKE = 1e-6  # of the energy of all rows: errors of starts that end in the same clusters
Metrics = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Starting(Factorization):
    """A factorisation algorithm but for its rounds."""

    # -- what the algorithm adds --------------------------------------------------------------

    @property
    @abstractmethod
    def own_phases(self) -> Mapping[str, Phase]:
        """The phases between start and score."""

    @abstractmethod
    def begun(self, state: State) -> State:
        """The first state of the algorithm's own phases; centers are there."""

    @abstractmethod
    def own_request(self, state: State) -> Request:
        """What goes down in one of its own phases."""

    @abstractmethod
    def own_client(self, request: Request, block: Block, private: Private) -> tuple[Reply, Private]:
        """What a block answers in one of its own phases."""

    @abstractmethod
    def own_server(self, state: State, total: Total) -> tuple[State, Metrics]:
        """What the server makes of it."""

    # -- the contract -------------------------------------------------------------------------

    @property
    def phases(self) -> Mapping[str, Phase]:
        """The exchanges that there may be."""
        measured: dict[str, type[Field]] = {"energy": Sum, "magnitude": Sum}
        if self.bounds == "data":
            measured |= {"low": Top, "high": Top}
        return {
            "measure": Phase(measured, who="everyone"),
            "seed": Phase({"centers": Stack, "counts": Stack}, who="chosen"),
            "mean": Phase({"total": Sum, "squares": Sum}, who="everyone"),
            **self.own_phases,
            "score": Phase({"error": Sum}, who="everyone"),
        }

    def start(self, spec: Spec, rng: Stream, given: Arrays) -> State:
        """Before any row is touched."""
        if spec.n_samples < self.n_clusters:
            raise DataError(
                f"n_samples={spec.n_samples} should be >= n_clusters={self.n_clusters}: there are "
                "fewer rows than clusters"
            )
        kind = "given" if "centers" in given else starts.resolve(self, spec)
        arrays: dict[str, Array] = {
            "n": np.array(spec.n_samples),
            "n_features": np.array(spec.n_features),
            "start": np.array(STARTS.index(kind)),
        }
        if kind == "one-shot":
            arrays["asked"], arrays["chances"] = starts.draw_asked(self, spec, rng.server())
        if kind == "given":
            centers = given["centers"]
            arrays["centers"] = _given_centers(centers, self.n_clusters, spec.n_features)
        return State("measure", 0, arrays)

    def request(self, state: State) -> Request | None:
        """What goes down in the state's phase."""
        if state.phase == "done":
            return None
        if state.phase in self.own_phases:
            return self.own_request(state)
        if state.phase == "seed":
            return Request("seed", 0, {}, clients=state["asked"])
        shared = {k: state[k] for k in ("centers", "offset")} if state.phase == "score" else {}
        return Request(state.phase, state.round, shared)

    def client(
        self, request: Request, block: Block, private: Private, rng: Stream
    ) -> tuple[Reply, Private]:
        """Answer for a block."""
        if request.phase == "measure":
            return self._measure(block), private
        if request.phase == "seed":
            return starts.seed_reply(block, self.n_clusters, rng), private
        if request.phase == "mean":
            return _moments(block), private
        if request.phase == "score":
            _, error = rays.nearest(block, request["centers"], float(request["offset"]))
            return {"error": Sum(error)}, private
        return self.own_client(request, block, private)

    def server(self, state: State, total: Total, rng: Stream) -> tuple[State, Metrics]:
        """Move to the next phase."""
        if state.phase == "measure":
            return self._measured(state, total, rng), {}
        if state.phase == "seed":
            found = starts.one_shot(
                total, self._chances(state, total), self.n_clusters, self.n_init, rng.server()
            )
            return self._with_centers(state, found), {}
        if state.phase == "mean":
            n = float(state["n"])
            mean = total["total"] / n
            spread = np.sqrt(np.maximum(total["squares"] / n - mean**2, 0))
            found = starts.around_mean(mean, spread, self.n_clusters, self.n_init, rng.server())
            return self._with_centers(state, found), {}
        if state.phase == "score":
            return state.to("done", best=_least(state, total["error"])), {}
        return self.own_server(state, total)

    def finished(self, state: State) -> State:
        """After the last round: compare the starts, if there were several."""
        return state.to("done" if len(state["centers"]) == 1 else "score")

    def model(self, state: State) -> Request:
        """The centers of the best start, and what memberships depend on."""
        best = int(state["best"])
        shared = {name: state[name] for name in ("offset", "ridge", "n")}
        shared |= {"centers": state["centers"][best], "penalty": state["penalty"][best]}
        return Request("model", state.round, shared)

    def assign(self, model: Request, block: Block) -> Array:
        """The nearest ray of each row."""
        labels, _ = rays.nearest(block, model["centers"][None], float(model["offset"]))
        return labels[:, 0]

    def transform(self, model: Request, block: Block) -> Array:
        """Memberships of each row with the centers fixed, (N, K)."""
        centers, penalty = model["centers"][None], model["penalty"][None]
        a = curvature(centers, penalty, float(model["ridge"]), int(model["n"]))
        return rays.memberships(block, centers, a, float(model["offset"]))

    # -- the phases of the start --------------------------------------------------------------

    def _measure(self, block: Block) -> Reply:
        def kernel(x: Any) -> tuple[dict[str, Any], dict[str, Any]]:
            with np.errstate(over="ignore"):  # the server refuses an infinite sum in words
                return {}, {"energy": (x * x).sum(), "magnitude": abs(x).sum()}

        _, sums = block.map_rows(kernel)
        reply: dict[str, Any] = {name: Sum(value) for name, value in sums.items()}
        if self.bounds == "data":
            low, high = block.extremes()
            sent = np.ones(block.n_clients)
            reply["low"] = Top.of(-low, low, 1, sent=sent)
            reply["high"] = Top.of(high, high, 1, sent=sent)
        return reply

    def _measured(self, state: State, total: Total, rng: Stream) -> State:
        n, n_features = int(state["n"]), int(state["n_features"])
        kind = STARTS[int(state["start"])]
        energy = float(total["energy"]) / n
        if not np.isfinite(energy):
            raise DataError(
                "the rows are so large that the sum of their squares overflows; scale them down, "
                "or give float32 rows as float64"
            )
        low, high = self.bounds if self.bounds != "data" else (total["low"][0], total["high"][0])
        state = state.to(
            state.phase,
            offset=self._offset(kind, energy, n_features),
            low=low,
            high=high,
            mean_energy=energy,
            ridge=RIDGE * energy if self.ridge == "auto" else self.ridge,
            scale=np.sqrt(total["magnitude"] / (n * n_features) / self.n_clusters),
            penalty=first_penalty(self, energy, n, informed=kind in ("one-shot", "given")),
        )
        if kind == "random":
            shape = (self.n_init, self.n_clusters, n_features)
            return self._with_centers(state, state["scale"] * rng.server().uniform(size=shape))
        if kind == "given":
            return self._with_centers(state, state["centers"])
        return state.to("seed" if kind == "one-shot" else "mean")

    def _offset(self, kind: str, mean_energy: float, n_features: int) -> float:
        if kind == "given" or self.offset is None:
            return 0.0
        if self.offset == "auto":
            few = n_features <= 2 * self.n_clusters
            return OFFSET * float(np.sqrt(mean_energy)) if few else 0.0
        return float(self.offset)

    def _chances(self, state: State, total: Total) -> Array:
        return state["chances"][np.searchsorted(state["asked"], total.clients)]

    def _with_centers(self, state: State, centers: Array) -> State:
        """Centers within their bounds, with the offset's column, and all that goes with a start."""
        offset = float(state["offset"])
        centers = np.clip(centers, state["low"], state["high"])
        low, high = (np.full(centers.shape[-1], float(state[k])) for k in ("low", "high"))
        if offset:
            column = np.full((*centers.shape[:-1], 1), offset)
            centers = np.concatenate([centers, column], axis=-1)
            low, high = np.append(low, 0.0), np.append(high, offset)
        keep = ("n", "n_features", "start", "offset", "mean_energy", "ridge", "scale")
        arrays = {name: state[name] for name in keep}
        penalty = np.full(len(centers), float(state["penalty"]))
        lean = State(state.phase, 0, arrays)
        return self.begun(
            lean.to(state.phase, centers=centers, low=low, high=high, penalty=penalty, best=0)
        )


def _moments(block: Block) -> Reply:
    def kernel(x: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, {"total": x.sum(0), "squares": (x * x).sum(0)}

    _, sums = block.map_rows(kernel)
    return {name: Sum(value) for name, value in sums.items()}


def _least(state: State, errors: Array) -> int:
    """The start of least error; of those that differ by rounding, the same on every engine."""
    energy = float(state["n"]) * (float(state["mean_energy"]) + float(state["offset"]) ** 2)
    return int(np.argmax(errors <= errors.min() + ALIKE * energy))


def _given_centers(centers: Array, n_clusters: int, n_features: int) -> Array:
    """Centers that the caller starts from, as those of one start."""
    centers = np.asarray(centers, dtype=np.float64)
    if centers.shape != (n_clusters, n_features):
        raise ParameterError(
            f"init: centers of shape {centers.shape} were given; expected "
            f"(n_clusters, n_features) = {(n_clusters, n_features)}"
        )
    if not np.isfinite(centers).all():
        raise ParameterError("init: centers with NaN or infinity were given")
    return centers[None]

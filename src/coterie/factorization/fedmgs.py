r"""FedMGS: federated matrix factorisation by gradient sharing.

S. Wang and T.-H. Chang, "Federated Matrix Factorization: Algorithm Design and Application to Data
Clustering", 2020, Algorithm 2.

Objective, with rows as samples (the papers' matrices transposed)::

    F(W, H) = ‖X − HW‖²/N + (ρ/2) Σ_j [(1ᵀh_j)² − ‖h_j‖²] + (ν/2) ‖H‖²
    low ≤ W ≤ high,  H ≥ 0

A round: the cohort takes ``membership_steps`` projected gradient steps on its rows of H, and the
server, which keeps HᵀH and HᵀX of all clients, takes ``center_steps`` on W. Clients send by how
much their part of these sums changed. A client that the server has not heard of yet sends all.

================  =============================  ==========================
here              the paper                      shape
================  =============================  ==========================
centers           Wᵀ                             (R, K, M): R starts at once
memberships       Hᵀ                             (N, R, K)
gram, cross       Σ U_p, Σ V_pᵀ                  (R, K, K), (R, K, M)
penalty, ridge    ρ, ν                           (R,), ()
membership_steps  Q1
center_steps      Q2
================  =============================  ==========================

Deviations from the paper:

* step sizes follow the curvature (``steps="scaled"``): printed ones miss factors of N
  (``steps="as-printed"`` keeps them);
* the first sums, which the paper takes as given, are an exchange of their own ("sums");
* the paper's range of W and ‖X‖² are asked of the clients ("measure");
* several starts may run side by side, and a constant feature may be added (``offset``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from coterie.backend import Array
from coterie.block import Block, Private
from coterie.factorization import rays
from coterie.factorization.base import STARTS, Metrics, Starting
from coterie.factorization.memberships import (
    CENTER_MARGIN,
    MembershipSteps,
    center_steps,
    curvature,
    largest_eigenvalue,
)
from coterie.factorization.objective import objective, orthogonality, relative_change
from coterie.factorization.penalty import SWEEPS, grown, grows, most_penalty
from coterie.fields import Reply, Sum
from coterie.parameters import steps_in
from coterie.protocol import Phase, Request, State, Total
from coterie.random import Stream

PATIENCE = 3  # times that all rows must be found settled

SUMS = dict.fromkeys(("gram", "cross", "energy", "rows", "changed", "undecided"), Sum)


@dataclass(frozen=True, kw_only=True)
class FedMGSAlgorithm(Starting):
    """FedMGS: clients step on memberships, the server on centers, from sums that it keeps."""

    published: ClassVar[Mapping[str, Any]] = {
        "membership_steps": 10,
        "center_steps": 100,
        "penalty": "as-published",
        "penalty_growth": 1.5,
        "penalty_every": 200,
        "penalty_tol": 5e-5,
        "penalty_max": "as-published",
        "offset": None,
        "init": "random",
        "n_init": 1,
        "max_rounds": 500,
        "tol": 0.0,
        "objective_tol": 1e-8,
    }

    @property
    def own_phases(self) -> Mapping[str, Phase]:
        """First sums from everyone, then rounds of a cohort."""
        return {
            "sums": Phase(SUMS, who="everyone", private=True),
            "round": Phase(SUMS, who="cohort", private=True),
        }

    def begun(self, state: State) -> State:
        """No sums yet."""
        n_starts, n_clusters, width = state["centers"].shape
        return state.to(
            "sums",
            gram=np.zeros((n_starts, n_clusters, n_clusters)),
            cross=np.zeros((n_starts, n_clusters, width)),
            energy=0.0,
            value=np.full(n_starts, np.inf),
            baseline=np.full(n_starts, np.inf),
            settled=np.zeros(n_starts),
            done=np.zeros(n_starts, dtype=np.bool_),
            seen=0.0,
        )

    def own_request(self, state: State) -> Request:
        """Centers, and what a membership step depends on."""
        shared = {name: state[name] for name in ("centers", "penalty", "ridge", "offset", "n")}
        if state.phase == "sums":
            return Request("sums", 0, shared | {name: state[name] for name in ("start", "scale")})
        return Request("round", state.round + 1, shared)

    def join(self, request: Request, block: Block, rng: Stream) -> Private:
        """Memberships to start from, and the note that the server does not know them."""
        n_starts, n_clusters, _ = request["centers"].shape
        kind = STARTS[int(request["start"])] if request.phase == "sums" else "given"
        if "memberships" in block.extra:
            h = block.put(block.extra["memberships"][:, None, :])
        elif kind == "random":
            h = rng.rows(block, n_starts * n_clusters) * float(request["scale"])
            h = h.reshape(block.n_rows, n_starts, n_clusters)
        elif kind == "sums":
            h = block.put(np.full((block.n_rows, n_starts, n_clusters), 1 / n_clusters))
        else:
            h = rays.soft_nearest(block, request["centers"], float(request["offset"]))
        return Private({"memberships": h}, {"known": np.zeros(block.n_clients)})

    def own_client(self, request: Request, block: Block, private: Private) -> tuple[Reply, Private]:
        """Membership steps, and by how much they changed the clients' part of the sums."""
        known = np.asarray(private.clients["known"])
        steps = self._steps(request, block)
        kernel = _Change(steps, offset=float(request["offset"]), newcomers=not known.all())
        columns = (private.rows["memberships"], block.spread(known), *steps.rates)
        rows, sums = block.map_rows(kernel, *columns)
        reply = {name: Sum(np.asarray(value)) for name, value in kernel.whole(sums).items()}
        reply["rows"] = Sum(np.array(float(block.n_rows)))
        return reply, Private(rows, {"known": np.ones(len(known))})

    def _steps(self, request: Request, block: Block) -> MembershipSteps:
        centers = request["centers"]
        a = curvature(centers, request["penalty"], float(request["ridge"]), int(request["n"]))
        first = request.phase == "sums"  # of memberships as they are
        return MembershipSteps(
            block,
            centers,
            a,
            offset=float(request["offset"]),
            n_steps=0 if first else steps_in(self.membership_steps, request.round),
            printed=self.steps == "as-printed",
        )

    def own_server(self, state: State, total: Total) -> tuple[State, Metrics]:
        """Add what changed, step on the centers, let the penalty grow."""
        state = state.to(
            state.phase,
            gram=state["gram"] + total["gram"],
            cross=state["cross"] + total["cross"],
            energy=state["energy"] + total["energy"],
        )
        if state.phase == "sums":
            value = self._objective(state)
            state = state.to("round", value=value, baseline=value)
            return state, {"objective": float(value.min())}
        state = state.to("round", round=state.round + 1, centers=self._moved(state))
        value = self._objective(state)
        change = relative_change(value, state["baseline"])
        rows = float(total["rows"])
        metrics = _metrics(state, total, value, change)
        state = self._with_grown_penalty(state, rows, change)
        state = self._with_settled(state.to("round", value=value, best=value.argmin()), total)
        over = self._done(state, change)
        state = state.to("round", done=over)
        finished = over.all() or state.round >= self.max_rounds
        return self.finished(state) if finished else state, metrics

    def _with_settled(self, state: State, total: Total) -> State:
        """How many rows were found settled, one round after the other, for each start."""
        rows = float(total["rows"])
        calm = np.maximum(total["changed"], total["undecided"]) <= self.tol * rows
        return state.to("round", settled=np.where(calm, state["settled"] + rows, 0.0))

    def _done(self, state: State, change: Array) -> Array:
        """Which starts have come to their end; once there, they stay there."""
        done = np.asarray(state["done"])
        if self.tol > 0:
            done = done | (state["settled"] >= PATIENCE * state["n"])
        if self.objective_tol is not None:
            done = done | (change < self.objective_tol)
        return done

    def _moved(self, state: State) -> Array:
        """The centers after the round that follows this state's."""
        scale = CENTER_MARGIN if self.steps == "scaled" else float(state["n"]) / 4
        return center_steps(
            state["centers"],
            state["gram"],
            state["cross"],
            steps_in(self.center_steps, state.round + 1),
            state["low"],
            state["high"],
            scale * largest_eigenvalue(state["gram"]),
        )

    def _with_grown_penalty(self, state: State, rows: float, change: Array) -> State:
        """The penalties of the next round, and the objective that its change is told from."""
        n = int(state["n"])
        seen = float(state["seen"]) + rows
        which = grows(self, state.round, seen, n, change)
        most = most_penalty(self, float(state["mean_energy"]), n, everyone=rows >= n)
        by_clock = self.penalty_every == "auto" and seen >= SWEEPS * n
        state = state.to(
            "round",
            penalty=grown(self, state["penalty"], which, most),
            seen=0.0 if by_clock else seen,
        )
        return state.to("round", baseline=self._objective(state))

    def _objective(self, state: State) -> Array:
        return objective(
            state["centers"],
            state["gram"],
            state["cross"],
            float(state["energy"]),
            int(state["n"]),
            state["penalty"],
            float(state["ridge"]),
        )


def _metrics(state: State, total: Total, value: Array, change: Array) -> Metrics:
    """The numbers of a round, of the start that is best so far."""
    best = int(value.argmin())
    rows = max(float(total["rows"]), 1.0)
    return {
        "objective": float(value[best]),
        "penalty": float(state["penalty"][best]),
        "relative_change": float(change[best]),
        "orthogonality": float(orthogonality(state["gram"])[best]),
        "changed": float(total["changed"][best]) / rows,
        "undecided": float(total["undecided"][best]) / rows,
    }


class _Change:
    """The kernel of a round: steps, and the sums of what they changed.

    Clients that the server does not know (`newcomers`) have changed from nothing.
    """

    def __init__(self, steps: MembershipSteps, *, offset: float, newcomers: bool) -> None:
        self._steps = steps
        self._offset = offset
        self._newcomers = newcomers

    def __call__(self, x: Any, was: Any, known: Any, *rates: Any) -> tuple[Any, Any]:
        before = was.swapaxes(0, 1)
        h = self._steps(x, before, *rates)
        changed = h.argmax(2) != before.argmax(2)
        sums = {"changed": changed.sum(1), "undecided": ((h > 0).sum(2) > 1).sum(1)}
        if self._newcomers:
            before = before * known[None, :, None]
            energy = (x * x).sum(1) + self._offset**2
            sums["energy"] = (energy * (1 - known)).sum()
        change = h - before
        sums["gram"] = h.mT @ h - before.mT @ before
        n_starts, n_rows, n_clusters = change.shape
        sums["cross"] = change.swapaxes(0, 1).reshape(n_rows, n_starts * n_clusters).T @ x
        sums["mass"] = change.sum(1)
        return {"memberships": h.swapaxes(0, 1)}, sums

    def whole(self, sums: dict[str, Array]) -> dict[str, Array]:
        """The sums with cross as (R, K, M'), the offset's column with it."""
        mass = sums.pop("mass")
        cross = sums["cross"].reshape(*mass.shape, sums["cross"].shape[1])
        if self._offset:
            cross = np.concatenate([cross, self._offset * mass[:, :, None]], axis=2)
        return {"energy": np.zeros(()), **sums, "cross": cross}

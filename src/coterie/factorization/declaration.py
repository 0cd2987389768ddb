"""The hyper-parameters that the factorisation algorithms share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt
from typing_extensions import Doc

from coterie.errors import ParameterError
from coterie.parameters import Steps

Auto = Literal["auto"]
Published = Literal["as-published"]
Start = Literal["auto", "one-shot", "sums", "random"]
NonNegative = Annotated[float, Ge(0), Lt(math.inf)]


@dataclass(frozen=True, kw_only=True)
class Factorization:
    """Hyper-parameters of ``X ≈ H W`` with non-negative, nearly one-hot rows of H."""

    n_clusters: Annotated[int, Ge(1), Doc("Number of clusters.")] = 8
    membership_steps: Annotated[
        Steps, Doc("Local steps on the memberships in a round (the papers' Q1).")
    ] = 50
    center_steps: Annotated[Steps, Doc("Steps on the centers in a round (the papers' Q2).")] = 100
    penalty: Annotated[
        Auto | Published | NonNegative,
        Doc(
            "Weight of the penalty that drives each row to one cluster (the papers' rho, "
            "absolute). 'auto' starts at a hundredth of the scale of the data; 'as-published' at "
            "1e-8 times the mean squared norm of a row."
        ),
    ] = "auto"
    penalty_growth: Annotated[
        float, Ge(1), Lt(math.inf), Doc("Factor by which the penalty grows; 1 keeps it fixed.")
    ] = 1.5
    penalty_every: Annotated[
        Auto | Annotated[int, Ge(1)] | None,
        Doc(
            "Rounds after which it grows. 'auto' is 5 rounds of all clients, or as many as it "
            "takes to see five times all rows; None leaves growth to penalty_tol."
        ),
    ] = "auto"
    penalty_tol: Annotated[
        NonNegative | None,
        Doc("It also grows when the objective's relative change falls under this."),
    ] = None
    penalty_max: Annotated[
        Auto | Published | NonNegative,
        Doc(
            "It grows no further. 'auto' is 10,000 times where 'auto' starts; 'as-published' the "
            "mean squared norm of a row, times 100 when clients take part by turns."
        ),
    ] = "auto"
    ridge: Annotated[
        Auto | NonNegative,
        Doc(
            "Weight of the squared norm of the memberships (the papers' nu, absolute). 'auto' is "
            "1e-10 times the mean squared norm of a row."
        ),
    ] = "auto"
    bounds: Annotated[
        Literal["data"] | tuple[float, float],
        Doc("Range of the centers' entries; 'data' is that of the rows, asked of the clients."),
    ] = "data"
    offset: Annotated[
        Auto | NonNegative | None,
        Doc(
            "A constant feature that lets clusters differ by distance and not by direction only. "
            "'auto' adds one, of twice the root mean square norm of a row, where there are at "
            "most two features a cluster."
        ),
    ] = "auto"
    steps: Annotated[
        Literal["scaled", "as-printed"],
        Doc("Step sizes: from the curvature of the objective, or as the papers print them."),
    ] = "scaled"
    init: Annotated[
        Start,
        Doc(
            "Start: 'one-shot' clusters what clients find alone; 'sums' and 'random' (the "
            "papers') need sums only; 'auto' is 'one-shot' where clients have rows enough, else "
            "'sums'. An estimator also takes centers, or a pair of centers and memberships."
        ),
    ] = "auto"
    n_init: Annotated[
        int,
        Ge(1),
        Doc("Starts that run side by side; the one of least error is kept."),
    ] = 3
    max_rounds: Annotated[int, Ge(1), Doc("Most rounds.")] = 500
    tol: Annotated[
        float,
        Ge(0),
        Le(1),
        Doc(
            "Stop when at most this fraction of labels changes, and of rows is not yet in one "
            "cluster only, three times over. 0 never stops."
        ),
    ] = 1e-3
    objective_tol: Annotated[
        Annotated[float, Gt(0)] | None,
        Doc("Stop when the objective's relative change falls under this."),
    ] = None

    def __post_init__(self) -> None:
        if self.bounds == "data":
            return
        low, high = self.bounds
        if not -math.inf < low <= high < math.inf:
            raise ParameterError(
                f"bounds={self.bounds!r} was given; expected 'data', or two finite numbers, the "
                "lower first"
            )

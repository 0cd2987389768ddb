"""Made by `make stubs` from the algorithms' declarations: do not edit."""

from typing import Any, Literal

from numpy.typing import ArrayLike

from coterie.estimators.factorization import FactorizationClusterer
from coterie.parameters import Diminishing

class FedMGS(FactorizationClusterer):
    def __init__(
        self,
        n_clusters: int = 8,
        *,
        membership_steps: int | Diminishing = 50,
        center_steps: int | Diminishing = 100,
        penalty: Literal["auto"] | Literal["as-published"] | float = "auto",
        penalty_growth: float = 1.5,
        penalty_every: Literal["auto"] | int | None = "auto",
        penalty_tol: float | None = None,
        penalty_max: Literal["auto"] | Literal["as-published"] | float = "auto",
        ridge: Literal["auto"] | float = "auto",
        bounds: Literal["data"] | tuple[float, float] = "data",
        offset: Literal["auto"] | float | None = "auto",
        steps: Literal["scaled", "as-printed"] = "scaled",
        init: str | ArrayLike | tuple[ArrayLike, ArrayLike] = "auto",
        n_init: int = 3,
        max_rounds: int = 500,
        tol: float = 0.001,
        objective_tol: float | None = None,
        clients_per_round: int | float | None = None,
        participation: Literal["uniform", "by-size"] = "uniform",
        random_state: Any = None,
        engine: Any = "simulation",
        device: str = "cpu",
        dtype: Any = None,
        verbose: bool | int = False,
    ) -> None: ...

"""What algorithms, engines and the loop tell each other."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import ClientError, CoterieError, QuorumError
from coterie.fields import Ragged, Slots, Stack, Sum, Top
from coterie.protocol import Cohort, Phase, Request, Spec, State, Total, Traffic


def test_a_spec_counts_clients_rows_and_features() -> None:
    spec = Spec(np.array([3, 1, 5]), (2, 4))
    assert (spec.n_clients, spec.n_samples, spec.n_features) == (3, 9, 8)
    assert spec.dtype == "float64"


def test_a_phase_is_additive_if_all_its_fields_are() -> None:
    assert Phase({"a": Sum, "b": Slots}).additive
    for kind in (Stack, Ragged, Top):
        assert not Phase({"a": Sum, "b": kind}).additive


def test_a_phase_asks_the_cohort_for_no_secrets_unless_it_says_so() -> None:
    phase = Phase({"a": Sum})
    assert (phase.who, phase.private, phase.uploads_rows) == ("cohort", False, False)


def test_the_next_state_replaces_and_adds_and_leaves_the_last_as_it_was() -> None:
    state = State("a", 2, {"x": np.zeros(2), "y": np.ones(1)})
    later = state.to("b", x=[1, 2], z=3.0)
    assert (later.phase, later.round) == ("b", 2)
    assert {name: array.tolist() for name, array in later.arrays.items()} == {
        "x": [1, 2],
        "y": [1],
        "z": 3.0,
    }
    assert all(isinstance(array, np.ndarray) for array in later.arrays.values())
    assert state["x"].tolist() == [0, 0]
    assert "z" not in state.arrays
    assert state.to("a", round=0).round == 0


def test_a_total_gives_values_by_name() -> None:
    total = Total(np.arange(2), np.ones(2), {"s": Sum(np.array(3.0))})
    assert total["s"] == 3.0


@given(
    address=st.lists(st.integers(-1, 2), min_size=4, max_size=4), order=st.permutations(range(4))
)
def test_a_request_is_seen_by_each_client_with_its_own_slot(
    address: list[int], order: list[int]
) -> None:
    slots = {"model": np.arange(6.0).reshape(3, 2)}
    request = Request("round", 1, {"w": np.ones(1)}, slots, np.array(address))
    seen = request.at(np.array(order))
    np.testing.assert_array_equal(
        seen.own("model"), [slots["model"][address[client]] for client in order]
    )
    assert seen["w"] is request["w"]
    assert (seen.phase, seen.round) == ("round", 1)
    assert request.address is not None
    assert request.address.tolist() == address


def test_a_request_without_slots_is_the_same_for_all() -> None:
    request = Request("round", 1, {})
    assert request.at(np.array([3])) is request


def test_a_cohort_arrives_but_for_the_lost() -> None:
    cohort = Cohort(np.array([1, 4, 6]), np.array([1.0, 2.0, 3.0]))
    assert len(cohort) == 3
    assert cohort.arriving() is cohort
    nothing_lost = Cohort(cohort.clients, cohort.weights, np.zeros(3, bool)).arriving()
    assert nothing_lost.clients.tolist() == [1, 4, 6]
    left = Cohort(cohort.clients, cohort.weights, np.array([False, True, False])).arriving()
    assert left.clients.tolist() == [1, 6]
    assert left.weights.tolist() == [1, 3]
    assert left.lost is None


def test_traffic_adds_up() -> None:
    assert Traffic(1, 2, 3, 4) + Traffic(10, 20, 30, 40) == Traffic(11, 22, 33, 44)
    assert sum([Traffic(up=1)] * 3, Traffic()) == Traffic(0, 3)


@pytest.mark.parametrize(
    "error",
    [
        ClientError("no", client=("a", 1), round=3, phase="round"),
        QuorumError("too few", Traffic(1, 2, 3, 4)),
    ],
    ids=["client", "quorum"],
)
def test_errors_go_through_pickle_with_what_they_carry(error: CoterieError) -> None:
    back = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_a_client_error_says_who_when_and_where() -> None:
    error = ClientError("no rows", client="ward 3", round=2, phase="seed")
    assert str(error) == "client 'ward 3', round 2, phase 'seed': no rows"


def test_the_contract_needs_no_torch() -> None:
    modules = ["arrays", "block", "fields", "protocol", "random", "rounds", "codec"]
    modules += ["engines.simulation", "engines.worker", "participation", "parameters"]
    imports = "; ".join(f"import coterie.{name}" for name in modules)
    heavy = "{'torch', 'sklearn', 'pydantic', 'pyarrow', 'pandas'}"
    code = f"import sys; {imports}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

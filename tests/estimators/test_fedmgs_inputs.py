"""Input that FedMGS refuses in words, and input that looks bad but works."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import sparse

import coterie as ct
from coterie.errors import CoterieError, DataError, InputError, InputTypeError, ParameterError
from coterie.metrics import clustering_accuracy

Array = npt.NDArray[Any]

X = np.random.default_rng(0).uniform(size=(40, 5))
IDS = np.arange(40) % 4
INF, NAN = float("inf"), float("nan")


def fit(rows: Any = X, clients: Any = IDS, **parameters: Any) -> ct.FedMGS:
    defaults = {"n_clusters": 3, "random_state": 0, "max_rounds": 30}
    return ct.FedMGS(**(defaults | parameters)).fit(rows, clients=clients)


# -- parameters ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_clusters", 0),
        ("n_clusters", -3),
        ("n_clusters", 2.0),
        ("n_clusters", True),
        ("n_clusters", None),
        ("n_clusters", "3"),
        ("membership_steps", 0),
        ("membership_steps", 1.5),
        ("center_steps", 0),
        ("center_steps", "many"),
        ("penalty", INF),
        ("penalty", NAN),
        ("penalty", -1e-9),
        ("penalty", "large"),
        ("penalty_growth", 0.9),
        ("penalty_growth", INF),
        ("penalty_growth", NAN),
        ("penalty_every", 0),
        ("penalty_every", 2.5),
        ("penalty_tol", NAN),
        ("penalty_tol", -1.0),
        ("penalty_max", INF),
        ("penalty_max", NAN),
        ("ridge", INF),
        ("ridge", NAN),
        ("ridge", -1.0),
        ("bounds", (1, 0)),
        ("bounds", (NAN, 1.0)),
        ("bounds", (0.0, NAN)),
        ("bounds", (0.0, INF)),
        ("bounds", (-INF, 0.0)),
        ("bounds", (0, 1, 2)),
        ("bounds", ("a", "b")),
        ("bounds", "all"),
        ("bounds", None),
        ("offset", INF),
        ("offset", NAN),
        ("offset", -1.0),
        ("offset", "yes"),
        ("steps", "long"),
        ("init", "k-means++"),
        ("n_init", 0),
        ("n_init", "auto"),
        ("max_rounds", 0),
        ("tol", -0.1),
        ("tol", 1.1),
        ("tol", NAN),
        ("objective_tol", 0.0),
        ("objective_tol", NAN),
        ("clients_per_round", 0),
        ("clients_per_round", 0.0),
        ("clients_per_round", 5),
        ("clients_per_round", 1.5),
        ("clients_per_round", -1),
        ("clients_per_round", True),
        ("clients_per_round", NAN),
        ("clients_per_round", "all"),
        ("participation", "everyone"),
        ("random_state", -1),
        ("random_state", 2**63),
        ("random_state", 1.5),
        ("random_state", "seed"),
        ("engine", "simulator"),
        ("device", None),
        ("device", "gpu"),
        ("dtype", "float16"),
        ("dtype", "int64"),
        ("verbose", "yes"),
    ],
)
def test_a_parameter_out_of_range_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ParameterError) as caught:
        fit(**{name: value})
    message = str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert name in message
    assert "was given" in message  # what was given,
    assert "expected" in message or "a float is a fraction" in message  # and what was expected


def test_an_engine_of_another_kind_is_a_type_error() -> None:
    with pytest.raises(InputTypeError, match=r"engine of type int.*callable"):
        fit(engine=5)


@pytest.mark.parametrize("start", [-1, 2.5, True, "3", None])
def test_diminishing_steps_start_at_a_whole_number(start: Any) -> None:
    with pytest.raises(ParameterError, match=r"Diminishing\(.*expected an int >= 0"):
        ct.Diminishing(start)


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_clusters": np.int32(3)},
        {"clients_per_round": np.int64(2)},
        {"clients_per_round": np.float32(0.5)},
        {"bounds": [0, 1]},
        {"bounds": (np.float32(0), np.int64(1))},
        {"penalty": np.float32(0.5)},
        {"penalty": 1},
        {"tol": 0},
        {"membership_steps": ct.Diminishing(np.int64(4))},  # type: ignore[arg-type]
        {"verbose": np.bool_(False)},
    ],
)
def test_numbers_of_numpy_and_ints_for_floats_are_welcome(parameters: dict[str, Any]) -> None:
    assert fit(**parameters).labels_.shape == (40,)


# -- devices ------------------------------------------------------------------------------------

no_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")


@no_cuda
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
@pytest.mark.parametrize("rows", [X, torch.from_numpy(X), sparse.csr_array(X)])
def test_a_device_that_is_not_here_is_refused_in_words(device: str, rows: Any) -> None:
    with pytest.raises(ParameterError, match=f"device='{device}' was given.*expected 'cpu'"):
        fit(rows, device=device)


@no_cuda
@pytest.mark.parametrize("method", ["predict", "transform"])
def test_a_model_that_was_fitted_elsewhere_says_what_is_missing(method: str) -> None:
    model = fit().set_params(device="cuda")
    with pytest.raises(ParameterError, match="device='cuda' was given"):
        getattr(model, method)(X)


@pytest.mark.parametrize("device", ["gpu", "meta", "cpu:x"])
def test_a_device_that_cannot_compute_is_refused(device: str) -> None:
    with pytest.raises(ParameterError, match=f"device='{device}' was given"):
        fit(device=device)


def test_without_torch_a_device_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ParameterError, match=r"pip install 'coterie\[torch\]'"):
        fit(device="cuda")


def test_sparse_rows_stay_on_the_cpu() -> None:
    with pytest.raises(DataError, match="sparse rows were given with device='cpu:0'"):
        fit(sparse.csr_array(X), device="cpu:0")


def test_processes_run_on_the_cpu() -> None:
    with pytest.raises(ParameterError, match=r"device='cpu:0'.*engine='processes'"):
        fit(engine="processes", device="cpu:0")


# -- rows ---------------------------------------------------------------------------------------


def with_entry(value: float) -> Array:
    rows = X.copy()
    rows[13, 2] = value
    return rows


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (with_entry(NAN), r"contains NaN: row 13 \(client 1\), column 2"),
        (with_entry(INF), r"contains infinity: row 13 \(client 1\), column 2"),
        (with_entry(-INF), "contains infinity"),
        (sparse.csr_array(with_entry(NAN)), r"contains NaN: row 13 \(client 1\), column 2"),
        (torch.from_numpy(with_entry(INF)), r"contains infinity: row 13 \(client 1\)"),
        (X[:, 0], r"shape \(40,\).*2 dimensions.*Reshape"),
        (X[None], r"shape \(1, 40, 5\).*2 dimensions"),
        (X[:0], "0 sample"),
        (X[:, :0], "0 feature"),
        (X.astype(complex), "real numbers"),
        (X.astype(str), "expected numbers"),
        (np.where(X > 0.5, "a", X.astype(object)), "text 'a'"),
        ([[1.0, 2.0]] * 39 + [[3.0]], "different lengths"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(rows: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        fit(rows)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("clients", "error", "message"),
    [
        (IDS[:-1], DataError, "39 client ids were given for 40 rows"),
        (np.append(IDS, 1), DataError, "41 client ids"),
        (IDS.reshape(20, 2), DataError, "one dimension"),
        ([None, *IDS[1:]], DataError, "no value .* row 0"),
        ([NAN, *IDS[1:]], DataError, "no value .* row 0"),
        ([[1], *IDS[1:]], InputTypeError, "hashable"),
        ("a" * 40, InputTypeError, "expected a list or an array"),
    ],
)
def test_ids_that_cannot_be_used_are_refused(clients: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        fit(clients=clients)


def test_a_client_without_rows_is_refused() -> None:
    with pytest.raises(DataError, match=r"'b'.*0 sample"):
        ct.Federation.from_clients([X, X[:0]], ids=["a", "b"])


def test_clients_beside_a_federation_are_refused() -> None:
    with pytest.raises(DataError, match="knows its own"):
        fit(ct.Federation.from_arrays(X), clients=IDS)


@pytest.mark.parametrize("init", ["auto", "sums", "random", X[:6]])
def test_fewer_rows_than_clusters_are_refused(init: Any) -> None:
    with pytest.raises(DataError, match="n_samples=5 should be >= n_clusters=6"):
        fit(X[:5], IDS[:5], n_clusters=6, init=init)


@pytest.mark.parametrize("method", ["predict", "transform"])
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (X[:, :3], "X has 3 features, but FedMGS is expecting 5 features"),
        (X[0], "Reshape"),
        (X[:0], "0 sample"),
        (with_entry(NAN), "contains NaN"),
        (ct.Federation.from_arrays(X[:, :3]), "X has 3 features"),
    ],
)
def test_new_rows_must_be_like_those_of_fit(method: str, rows: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        getattr(fit(), method)(rows)


@pytest.mark.parametrize("rows", [X * 1e160, (X * 1e21).astype(np.float32)])
def test_rows_whose_squares_overflow_are_refused(rows: Array) -> None:
    with pytest.raises(DataError, match="sum of their squares overflows; scale them down"):
        fit(rows)


def test_every_refusal_is_a_coterie_error() -> None:
    for rows, clients in ((with_entry(NAN), IDS), (X, IDS[:-1]), (X[0], None)):
        with pytest.raises(CoterieError):
            fit(rows, clients)


# -- looks bad, but works -----------------------------------------------------------------------


@pytest.mark.parametrize("init", ["one-shot", "sums", "random"])
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -3.0])
@pytest.mark.parametrize(
    "clients", [None, IDS, np.repeat(np.arange(9), [2, 3, 4, 5, 6, 7, 8, 3, 2])]
)
def test_rows_that_are_all_alike_are_one_cluster(init: str, value: float, clients: Any) -> None:
    model = fit(np.full((40, 5), value), clients, init=init)
    assert len(np.unique(model.labels_)) == 1
    assert np.isfinite(model.memberships_).all()
    assert np.isfinite(model.cluster_centers_).all()
    assert np.isfinite(model.objective_)


def test_one_feature_is_enough_where_values_are_apart() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    rows = 10.0 * y[:, None] + rng.uniform(size=(60, 1))
    assert clustering_accuracy(y, fit(rows, np.arange(60) % 7).labels_) == 1


def test_one_constant_feature_is_one_cluster() -> None:
    assert len(np.unique(fit(np.ones((40, 1))).labels_)) == 1


def test_one_row_and_one_cluster() -> None:
    model = fit([[1.0, 2.0]], None, n_clusters=1, tol=0, max_rounds=500)
    assert model.labels_.tolist() == [0]
    np.testing.assert_allclose(model.memberships_ @ model.cluster_centers_, [[1, 2]], rtol=1e-3)


def test_negative_rows_are_clustered_as_their_opposites() -> None:
    """Memberships may not be negative; centers and rows may."""
    centers = X[:3]
    one, other = fit(X, init=centers), fit(-X, init=-centers)
    np.testing.assert_allclose(other.memberships_, one.memberships_, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(other.cluster_centers_, -one.cluster_centers_, rtol=1e-9)
    np.testing.assert_array_equal(other.labels_, one.labels_)


def test_rows_around_zero_are_clustered() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    truth = np.array([[4.0, -4, 0, 1], [-4, 4, 1, 0], [0, 1, -4, -4]])
    rows = truth[y] + 0.3 * rng.standard_normal((90, 4))
    assert clustering_accuracy(y, fit(rows, np.arange(90) % 11).labels_) == 1


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param((X * 100).astype(int), id="int"),
        pytest.param(X > 0.5, id="bool"),
        pytest.param(X.astype(np.float16), id="float16"),
        pytest.param(X.tolist(), id="lists"),
        pytest.param(X.astype(object), id="objects"),
        pytest.param(np.asfortranarray(X), id="Fortran"),
        pytest.param(X * 1e-160, id="tiny"),
        pytest.param(X * 1e150, id="huge"),
        pytest.param((X * 1e-22).astype(np.float32), id="tiny float32"),
        pytest.param((X * 1e17).astype(np.float32), id="huge float32"),
        pytest.param(X + 1e8, id="far from zero"),
    ],
)
def test_numbers_of_every_kind_and_size_are_clustered(rows: Any) -> None:
    model = fit(rows)
    assert np.isfinite(model.cluster_centers_).all()
    assert np.isfinite(model.memberships_).all()
    np.testing.assert_array_equal(model.labels_, model.predict(rows))


def test_mixed_types_among_objects_are_numbers_if_they_can_be() -> None:
    mixed = X.astype(object)
    mixed[0, 0], mixed[1, 1], mixed[2, 2] = 1, True, np.float32(0.5)
    plain = mixed.astype(float)
    np.testing.assert_array_equal(fit(mixed).memberships_, fit(plain).memberships_)


def test_centers_that_no_row_can_use_leave_everything_at_rest() -> None:
    """All rows are negative and no center may be: every membership is zero."""
    model = fit(-X, init=np.ones((3, 5)), bounds=(0, 1))
    assert not model.memberships_.any()
    assert model.objective_ == pytest.approx((X**2).sum() / 40)
    assert model.labels_.tolist() == [0] * 40

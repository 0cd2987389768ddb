"""FedMGS as a scikit-learn estimator: what users of scikit-learn rely on."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import coterie as ct
from coterie.engines.simulation import Simulation
from coterie.errors import CoterieError, DataError, InputTypeError, ParameterError
from coterie.rounds import Round

Array = npt.NDArray[Any]

X, Y = ct.datasets.make_onmf(150, 8, 3, snr_db=10, random_state=0)
IDS = np.random.default_rng(0).integers(6, size=150)
NEW = np.random.default_rng(1).uniform(-0.2, 1.5, (80, 8))


def make(**parameters: Any) -> ct.FedMGS:
    return ct.FedMGS(**({"n_clusters": 3, "random_state": 0} | parameters))


def fitted(**parameters: Any) -> ct.FedMGS:
    return make(**parameters).fit(X, clients=IDS)


# -- scikit-learn's own checks ------------------------------------------------------------------


SKIPPED = {
    # Runs only where the environment variable SCIPY_ARRAY_API is set; arrays of other libraries
    # are covered by tests/factorization.
    "check_array_api_input": "SCIPY_ARRAY_API is not set",
}


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(ct.FedMGS(), id="default"),
        pytest.param(ct.FedMGS(init="sums", offset=None, n_init=1), id="sums"),
    ],
)
def test_it_passes_scikit_learns_checks(model: ct.FedMGS) -> None:
    results = check_estimator(model, on_skip=None)
    assert len(results) > 40
    for result in results:
        if result["status"] != "passed":
            assert result["status"] == "skipped"
            assert SKIPPED[result["check_name"]] in str(result["exception"])


# -- parameters ---------------------------------------------------------------------------------


def test_its_signature_is_what_its_parameters_are() -> None:
    names = list(inspect.signature(ct.FedMGS).parameters)
    assert names[0] == "n_clusters"
    assert sorted(names) == sorted(ct.FedMGS().get_params())
    by_name = [p.kind for p in list(inspect.signature(ct.FedMGS).parameters.values())[1:]]
    assert set(by_name) == {inspect.Parameter.KEYWORD_ONLY}
    assert ct.FedMGS(4).n_clusters == 4


def test_its_docstring_says_something_of_every_parameter_and_attribute() -> None:
    doc = inspect.getdoc(ct.FedMGS)
    assert doc is not None
    section = doc.split("\nParameters\n----------\n")[1].split("\nAttributes\n")[0].splitlines()
    described = [line.split(" : ")[0] for line in section if line and not line.startswith(" ")]
    assert described == list(inspect.signature(ct.FedMGS).parameters)
    for head, words in pairwise(section):
        if not head.startswith(" ") and head:
            assert words.startswith("    ")
            assert len(words.strip()) > 10
    model = fitted()
    for name in vars(model):
        if name.endswith("_") and not name.startswith("_") and name != "n_iter_":
            assert f"\n{name} : " in doc


def test_its_picture_shows_what_was_changed() -> None:
    assert repr(ct.FedMGS()) == "FedMGS()"
    assert repr(ct.FedMGS(3, tol=0.1)) == "FedMGS(n_clusters=3, tol=0.1)"


def test_clones_and_set_params_keep_what_was_given() -> None:
    start = X[:3].copy(), np.full((150, 3), 0.3)
    model = make(init=start, membership_steps=ct.Diminishing(9), bounds=(0, 2))
    twin = clone(model)
    assert twin.get_params().keys() == model.get_params().keys()
    assert twin.bounds == (0, 2)
    assert twin.membership_steps == ct.Diminishing(9)
    np.testing.assert_array_equal(twin.init[0], start[0])
    assert model.init is start
    assert model.set_params(tol=0.5) is model
    assert model.tol == 0.5
    assert not vars(model).keys() & {"labels_", "cluster_centers_"}


def test_wrong_parameters_are_told_by_fit_and_not_before() -> None:
    model = ct.FedMGS(n_clusters=-1)
    with pytest.raises(ParameterError):
        model.fit(X)
    with pytest.raises(ValueError, match="Invalid parameter 'n_cluster'"):
        model.set_params(n_cluster=3)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("n_cluster", "n_clusters"), ("max_iter", None), ("client_per_round", "clients_per_round")],
)
def test_an_unknown_keyword_is_an_error_that_names_the_nearest(
    wrong: str, right: str | None
) -> None:
    calls: tuple[Any, ...] = (ct.FedMGS, ct.FedMGS.as_published)
    for call in calls:
        with pytest.raises(InputTypeError, match=wrong) as caught:
            call(**{wrong: 3})
        assert isinstance(caught.value, TypeError)
        if right is not None:
            assert f"did you mean {right!r}?" in str(caught.value)
        else:
            assert "did you mean" not in str(caught.value)


def test_only_the_number_of_clusters_goes_without_a_name() -> None:
    with pytest.raises(InputTypeError, match=r"2 arguments without a name.*n_clusters"):
        ct.FedMGS(3, 4)  # type: ignore[call-arg]


def test_as_published_takes_changes() -> None:
    model = ct.FedMGS.as_published(n_clusters=3, max_rounds=2, random_state=0)
    assert (model.membership_steps, model.center_steps, model.init) == (10, 100, "random")
    assert model.fit(X).n_rounds_ == 2


# -- fitting ------------------------------------------------------------------------------------


def test_a_federation_and_rows_with_ids_are_the_same() -> None:
    federation = ct.Federation.from_arrays(X, clients=IDS)
    one, other = make().fit(federation), fitted()
    np.testing.assert_array_equal(one.memberships_, other.memberships_)
    np.testing.assert_array_equal(one.labels_, other.labels_)
    np.testing.assert_array_equal(one.predict(federation), other.predict(X))
    np.testing.assert_array_equal(one.transform(federation), other.transform(X))


def test_fit_predict_and_fit_transform_take_clients() -> None:
    expected = fitted()
    np.testing.assert_array_equal(make().fit_predict(X, clients=IDS), expected.labels_)
    np.testing.assert_array_equal(make().fit_transform(X, clients=IDS), expected.transform(X))


def test_labels_of_rows_do_not_reach_the_clustering() -> None:
    one, other = make().fit(X, Y, clients=IDS), fitted()
    np.testing.assert_array_equal(one.memberships_, other.memberships_)


def test_ids_may_be_anything_hashable_and_come_back() -> None:
    names = np.array(["b", "a", "c"])[np.arange(150) % 3]
    model = make().fit(X, clients=names)
    assert model.client_ids_.tolist() == ["b", "a", "c"]
    assert make().fit(X).client_ids_.tolist() == [0]


def test_attributes_have_their_shapes_and_agree() -> None:
    model = fitted()
    assert model.labels_.shape == (150,)
    assert model.labels_.dtype.kind == "i"
    assert model.memberships_.shape == (150, 3)
    assert (model.memberships_ >= 0).all()
    assert model.cluster_centers_.shape == model.cluster_means_.shape == (3, 8)
    assert model.n_features_in_ == 8
    assert model.n_rounds_ == model.n_iter_ == max(record.round for record in model.history_)
    for k in range(3):
        np.testing.assert_allclose(model.cluster_means_[k], X[model.labels_ == k].mean(0))


def test_the_mean_of_a_cluster_without_rows_is_nan() -> None:
    model = make(n_clusters=2, init="sums").fit(np.ones((9, 3)))
    assert np.isnan(model.cluster_means_).all(axis=1).sum() == 1


def test_fitting_again_forgets_the_first_fit() -> None:
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    model = make().fit(frame)
    assert model.feature_names_in_.tolist() == list("abcdefgh")
    model.fit(NEW[:, :5])
    assert model.n_features_in_ == 5
    assert not hasattr(model, "feature_names_in_")
    assert model.predict(NEW[:, :5]).shape == (80,)


def test_history_tells_every_exchange_and_its_bytes() -> None:
    model = fitted(n_init=2, init="one-shot", offset=None)
    history = model.history_
    assert {type(record) for record in history} == {Round}
    assert all(record.state is None for record in history)
    assert [record.step for record in history] == list(range(len(history)))
    phases = [record.phase for record in history]
    n_rounds = model.n_rounds_
    assert phases == ["measure", "seed", "sums", *["round"] * n_rounds, "score"]
    starts, k, m, clients = 2, 3, 8, 6
    real = 8
    sums = starts * (k * k + k * m + 2) + 2  # gram, cross, changed, undecided; energy, rows
    up = {
        "measure": 2 + 2 * (1 + 1 + 1),  # energy, magnitude; two extremes with score and count
        "seed": k * m + k,
        "sums": sums,
        "round": sums,
        "score": starts,
    }
    for record in history:
        assert record.bytes_up == clients * real * up[record.phase]
        assert record.bytes_down >= clients * (record.phase in ("sums", "round", "score"))
        assert record.traffic.framing_up > 0
        assert record.replied == record.asked == clients
    centers_down = clients * real * starts * k * m
    assert all(r.bytes_down > centers_down for r in history if r.phase == "round")


def test_verbose_prints_a_line_an_exchange(capsys: pytest.CaptureFixture[str]) -> None:
    model = fitted(verbose=True, max_rounds=4, tol=0)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(model.history_)
    assert "round    4" in lines[-2]
    fitted(verbose=False, max_rounds=4)
    assert capsys.readouterr().out == ""


# -- seeds and engines --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seed",
    [
        lambda: 7,
        lambda: np.int64(7),
        lambda: np.random.default_rng(7),
        lambda: np.random.RandomState(7),
        lambda: 2**63 - 1,
    ],
)
def test_the_same_seed_is_the_same_result_bit_for_bit(seed: Any) -> None:
    parameters: dict[str, Any] = {"clients_per_round": 2, "init": "random", "max_rounds": 9}
    one, other = (fitted(random_state=seed(), **parameters) for _ in range(2))
    np.testing.assert_array_equal(one.memberships_, other.memberships_)
    np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
    assert [r.objective for r in one.history_] == [r.objective for r in other.history_]


def test_no_seed_is_a_fresh_one_and_generators_move_on() -> None:
    shared = np.random.default_rng(0)
    for seed in (None, shared):
        one, other = (fitted(random_state=seed, init="random", max_rounds=2) for _ in range(2))
        assert not np.array_equal(one.memberships_, other.memberships_)


@pytest.mark.parametrize("clients_per_round", [None, 2])
def test_other_engines_agree(clients_per_round: int | None) -> None:
    parameters: dict[str, Any] = {
        "clients_per_round": clients_per_round,
        "max_rounds": 6,
        "n_init": 2,
        "init": "one-shot",
    }
    ids = np.arange(150) % 3
    expected = make(**parameters).fit(X, clients=ids)
    for engine in ("processes", lambda federation: Simulation(federation, block_bytes=100)):
        model = make(engine=engine, **parameters).fit(X, clients=ids)
        np.testing.assert_allclose(model.memberships_, expected.memberships_, atol=1e-9)
        np.testing.assert_allclose(model.cluster_centers_, expected.cluster_centers_, atol=1e-9)
        np.testing.assert_array_equal(model.labels_, expected.labels_)
        assert [r.traffic for r in model.history_] == [r.traffic for r in expected.history_]


def test_an_engine_may_be_a_callable_that_gets_the_federation() -> None:
    seen: list[ct.Federation] = []

    def maker(federation: ct.Federation) -> Simulation:
        seen.append(federation)
        return Simulation(federation, threads=1)

    model = fitted(engine=maker)
    assert [federation.n_clients for federation in seen] == [6]
    np.testing.assert_array_equal(model.labels_, fitted().labels_)


# -- pickles ------------------------------------------------------------------------------------


def test_it_travels_as_a_pickle_before_and_after_fit(tmp_path: Path) -> None:
    before = pickle.loads(pickle.dumps(make()))  # noqa: S301
    expected = fitted()
    np.testing.assert_array_equal(before.fit(X, clients=IDS).labels_, expected.labels_)
    (tmp_path / "model").write_bytes(pickle.dumps(expected))
    after = pickle.loads((tmp_path / "model").read_bytes())  # noqa: S301
    np.testing.assert_array_equal(after.predict(NEW), expected.predict(NEW))
    np.testing.assert_array_equal(after.transform(NEW), expected.transform(NEW))
    assert after.history_ == expected.history_


# -- frames -------------------------------------------------------------------------------------

COLUMNS = [f"feature {i}" for i in range(8)]
OUT = ["fedmgs0", "fedmgs1", "fedmgs2"]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_frames_go_in_and_come_out(frame: Any) -> None:
    rows = frame(dict(zip(COLUMNS, X.T, strict=True)))
    model = make().fit(rows, clients=IDS)
    np.testing.assert_array_equal(model.labels_, fitted().labels_)
    assert model.feature_names_in_.tolist() == COLUMNS
    assert model.get_feature_names_out().tolist() == OUT
    np.testing.assert_array_equal(model.predict(rows), model.labels_)
    name = frame.__module__.partition(".")[0]
    out = model.set_output(transform=name).transform(rows)
    assert isinstance(out, frame)
    assert list(out.columns) == OUT
    np.testing.assert_array_equal(out.to_numpy(), fitted().transform(X))


def test_ids_may_be_a_series() -> None:
    for series in (pd.Series(IDS, index=range(500, 650)), pl.Series(IDS)):
        model = make().fit(X, clients=series)
        np.testing.assert_array_equal(model.labels_, fitted().labels_)


def test_other_columns_than_in_fit_are_refused() -> None:
    rows = pd.DataFrame(X, columns=COLUMNS)
    model = make().fit(rows)
    with pytest.raises(DataError, match="same order"):
        model.predict(rows[COLUMNS[::-1]])
    with pytest.raises(DataError, match="unseen at fit time"):
        model.transform(rows.rename(columns={"feature 3": "weight"}))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X)


def test_a_federation_has_its_columns_names() -> None:
    frame = pd.DataFrame(X, columns=COLUMNS).assign(hospital=IDS)
    federation = ct.Federation.from_frame(frame, client="hospital")
    model = make().fit(federation)
    assert model.feature_names_in_.tolist() == COLUMNS
    np.testing.assert_array_equal(model.predict(federation), model.labels_)
    np.testing.assert_array_equal(model.predict(frame[COLUMNS]), model.labels_)
    other = frame.rename(columns={"feature 3": "weight"})
    with pytest.raises(DataError, match="weight"):
        model.predict(ct.Federation.from_frame(other, client="hospital"))


# -- pipelines ----------------------------------------------------------------------------------


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.parametrize("scaler", [StandardScaler, MinMaxScaler])
def test_it_ends_a_pipeline(scaler: Any) -> None:
    pipeline = make_pipeline(scaler(), make()).fit(X)
    expected = make().fit(scaler().fit_transform(X))
    np.testing.assert_array_equal(pipeline[-1].labels_, expected.labels_)
    np.testing.assert_array_equal(pipeline.predict(X), expected.labels_)
    np.testing.assert_array_equal(pipeline.transform(NEW[:5]).shape, (5, 3))


def test_it_stands_inside_a_pipeline() -> None:
    pipeline = make_pipeline(make(), FunctionTransformer(np.sqrt)).fit(X)
    np.testing.assert_array_equal(pipeline.transform(X), np.sqrt(make().fit(X).transform(X)))


@pytest.mark.usefixtures("routing")
def test_clients_are_routed_through_a_pipeline() -> None:
    model = make().set_fit_request(clients=True)
    pipeline = make_pipeline(StandardScaler(), model)
    labels = pipeline.fit_predict(X, clients=IDS)
    expected = make().fit(StandardScaler().fit_transform(X), clients=IDS)
    np.testing.assert_array_equal(labels, expected.labels_)
    np.testing.assert_array_equal(pipeline[-1].client_ids_, expected.client_ids_)
    assert len(expected.client_ids_) == 6


@pytest.mark.usefixtures("routing")
def test_clients_that_nobody_asked_for_are_not_dropped_silently() -> None:
    with pytest.raises(ValueError, match="clients"):
        make_pipeline(StandardScaler(), make()).fit(X, clients=IDS)


def test_clients_reach_the_last_step_by_its_name_without_routing() -> None:
    pipeline = make_pipeline(StandardScaler(), make()).fit(X, fedmgs__clients=IDS)
    assert len(pipeline[-1].client_ids_) == 6


# -- before fit ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["predict", "transform"])
def test_before_fit_it_says_so(method: str) -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(make(), method)(X)


def test_a_failed_fit_leaves_it_unfitted() -> None:
    model = make()
    with pytest.raises(CoterieError):
        model.set_params(clients_per_round=99).fit(X, clients=IDS)
    with pytest.raises(NotFittedError):
        model.predict(X)

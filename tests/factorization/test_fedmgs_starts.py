"""Where FedMGS starts from, and what clients give away for it."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from fedmgs_problems import (
    HIGH,
    LOW,
    SEED,
    SETTINGS,
    Array,
    check_equal,
    estimator,
    fit,
    own_rounds,
    problem,
    twin,
)
from scipy import stats

import coterie as ct
from coterie import codec
from coterie.block import Private
from coterie.data.federation import Federation
from coterie.errors import ParameterError
from coterie.estimators.session import Session
from coterie.factorization.fedmgs import FedMGSAlgorithm
from coterie.factorization.starts import CLUSTERING_WORK, draw_asked
from coterie.protocol import Request, Spec, State
from coterie.random import Stream
from twins.fedmgs import ray_errors


def state_after(session: Session, phase: str) -> State:
    """The state that the exchange of this phase left."""
    for record in session.rounds():
        if record.phase == phase:
            assert record.state is not None
            return record.state
    raise AssertionError(f"no exchange of phase {phase!r}")


def start(federation: Federation, **parameters: Any) -> State:
    """The state at which the rounds begin."""
    return state_after(ct.FedMGS(random_state=SEED, **parameters).session(federation), "sums")


def phases(model: ct.FedMGS) -> list[str]:
    return [record.phase for record in model.history_ if record.phase != "round"]


# -- one-shot: what clients send --------------------------------------------------------------

SIZES = (2, 3, 4, 5, 9, 40, 300, 1024, 1500, 5000)


def federation_with_loners(dtype: str) -> Federation:
    """Clients of all sizes, each with rows that lie far from all others and from each other."""
    rng = np.random.default_rng(0)
    clients = []
    for n in SIZES:
        rows = rng.uniform(0, 1, (n, 5))
        rows[:: max(2, n // 3)] += rng.uniform(20, 200, rows[:: max(2, n // 3)].shape)
        clients.append(rows.astype(dtype))
    return Federation.from_clients(clients)


def sent(federation: Federation, clients: Array, seed: int, n_clusters: int) -> dict[str, Array]:
    """What these clients send, as it is encoded, in one block."""
    algorithm = FedMGSAlgorithm(n_clusters=n_clusters)
    block = federation.block().take(clients)
    reply, _ = algorithm.client(Request("seed", 0, {}), block, Private(), Stream(seed, 1, "client"))
    if len(clients) == 1:
        return dict(codec.encode_reply(reply))
    return {f"{name}.value": field.value for name, field in reply.items()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_clusters", [1, 3, 10])
def test_no_client_sends_a_row_or_a_center_of_one_row(dtype: str, n_clusters: int) -> None:
    federation = federation_with_loners(dtype)
    loners_left_out = 0
    for seed in range(6):
        for client in range(federation.n_clients):
            rows = federation.client(client).astype(np.float64)
            message = sent(federation, np.array([client]), seed, n_clusters)
            assert set(message) == {"centers.value", "counts.value"}
            centers, counts = message["centers.value"], message["counts.value"]
            used = counts > 0
            assert counts[used].min() >= 2
            assert not centers[~used].any()
            assert used.sum() <= len(rows) // 2
            apart = np.linalg.norm(centers[used][:, None] - rows, axis=2).min(1)
            assert apart.min() > 1e-4
            assert counts.sum() <= len(rows) * (1 + 1e-12)
            loners_left_out += counts.sum() < len(rows) - 1e-6
    assert n_clusters == 1 or loners_left_out > 0  # the guard was needed


def test_a_client_sends_the_same_whatever_block_it_is_in() -> None:
    federation = federation_with_loners("float64")
    everyone = sent(federation, np.arange(federation.n_clients), 3, 6)
    for client in range(federation.n_clients):
        alone = sent(federation, np.array([client]), 3, 6)
        others = [c for c in range(federation.n_clients) if (c + client) % 3]
        together = sent(federation, np.array([*others, client]), 3, 6)
        for name, value in alone.items():
            np.testing.assert_allclose(everyone[name][client], value, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(together[name][-1], value, rtol=1e-9, atol=1e-12)


def test_local_centers_of_clear_clusters_are_their_means_and_count_their_rows() -> None:
    rng = np.random.default_rng(0)
    truth = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]])
    labels = np.repeat([0, 1, 2], [5, 7, 9])
    rows = truth[labels] + rng.uniform(-1, 1, (21, 2))
    message = sent(Federation.from_arrays(rows), np.array([0]), 0, 3)
    order = np.argsort(message["counts.value"])
    assert message["counts.value"][order].tolist() == [5, 7, 9]
    means = [rows[labels == k].mean(0) for k in range(3)]
    np.testing.assert_allclose(message["centers.value"][order], means, rtol=1e-12)


def test_local_centers_are_where_k_means_comes_to_rest() -> None:
    """Each is the mean of the rows that are nearest to it, for nearly all seeds."""
    rows = np.random.default_rng(0).uniform(size=(40, 2))
    at_rest = []
    for seed in range(20):
        message = sent(Federation.from_arrays(rows), np.array([0]), seed, 3)
        centers = message["centers.value"]
        nearest = np.linalg.norm(rows[:, None] - centers, axis=2).argmin(1)
        means = [rows[nearest == k].mean(0) for k in range(3)]
        at_rest.append(np.allclose(centers, means, rtol=1e-9))
    assert sum(at_rest) >= 15


def test_a_large_clients_counts_stand_for_all_its_rows() -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat([[0.0, 9.0], [9.0, 0.0]], [4000, 2000], axis=0) + rng.uniform(size=(6000, 2))
    counts = np.sort(sent(Federation.from_arrays(rows), np.array([0]), 0, 2)["counts.value"])
    assert counts.sum() == pytest.approx(6000)
    np.testing.assert_allclose(counts, [2000, 4000], rtol=0.1)


# -- one-shot: whom the server asks, and what it makes of it ------------------------------------


def test_of_100_000_clients_only_as_many_are_asked_as_the_server_can_cluster() -> None:
    n_clusters, n_features = 20, 16
    rng = np.random.default_rng(0)
    federation = Federation.from_arrays(
        rng.uniform(size=(200_000, n_features)), clients=np.repeat(np.arange(100_000), 2)
    )
    session = ct.FedMGS(n_clusters, random_state=0).session(federation)
    measure, seed = islice(session.rounds(), 2)
    assert (measure.asked, seed.phase) == (100_000, "seed")
    assert seed.asked > 1000
    points = seed.asked * n_clusters
    assert points * n_clusters * n_features <= CLUSTERING_WORK


def test_few_clients_are_all_asked_except_those_of_one_row() -> None:
    p = problem()
    model = fit(p, 1, init="one-shot")
    (seed,) = (record for record in model.history_ if record.phase == "seed")
    assert seed.asked == sum(len(rows) > 1 for rows in p.clients)


def test_what_asked_clients_stand_for_adds_up_to_all_rows_on_average() -> None:
    spec = Spec(np.random.default_rng(0).integers(2, 90, size=5000), (1000,))
    algorithm = FedMGSAlgorithm(n_clusters=10)
    stood_for = []
    for seed in range(200):
        asked, chances = draw_asked(algorithm, spec, np.random.default_rng(seed))
        assert len(asked) == len(np.unique(asked)) <= 300
        stood_for.append((spec.sizes[asked] / chances).sum())
    error = np.std(stood_for) / np.sqrt(200)
    assert abs(np.mean(stood_for) - spec.n_samples) < 4 * error


def test_at_least_twenty_are_asked_however_wide_the_rows_are() -> None:
    spec = Spec(np.full(500, 30), (10**6,))
    asked, _ = draw_asked(FedMGSAlgorithm(n_clusters=50), spec, np.random.default_rng(0))
    assert 15 <= len(asked) <= 20


def test_one_shot_finds_well_separated_clusters_before_the_first_round() -> None:
    rng = np.random.default_rng(0)
    truth = 10 * np.eye(4)
    labels = rng.integers(4, size=400)
    rows = truth[labels] + rng.uniform(-1, 1, (400, 4))
    federation = Federation.from_arrays(rows, clients=np.arange(400) % 17)
    centers = start(federation, n_clusters=4, init="one-shot", n_init=2, offset=None)["centers"]
    for found in centers:
        order = found.argmax(1)
        assert sorted(order) == [0, 1, 2, 3]
        np.testing.assert_allclose(found, truth[order], atol=0.5)


@pytest.mark.parametrize("seed", range(4))
def test_fewer_distinct_rows_than_clusters_are_no_matter(seed: int) -> None:
    """Local centers then differ by rounding only; no warning of the server's k-means comes out."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(size=(5, 4))[rng.integers(5, size=200)]
    model = ct.FedMGS(8, random_state=seed).fit(rows, clients=np.arange(200) % 13)
    _, first, labels = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(model.labels_, model.labels_[first][labels])
    assert len(np.unique(model.labels_)) == len(first)


# -- which start it is --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "n_clusters", "expected"),
    [
        ([1] * 30, 3, "mean"),
        ([10] * 3, 3, "seed"),
        ([2] * 5 + [1] * 10, 5, "seed"),  # five local centers, half of the rows in company
        ([2] * 5 + [1] * 10, 6, "mean"),  # too few local centers
        ([2] * 5 + [1] * 11, 5, "mean"),  # most rows alone
        ([30], 15, "seed"),
        ([30], 16, "mean"),
    ],
)
def test_auto_is_one_shot_where_most_rows_have_company(
    sizes: list[int], n_clusters: int, expected: str
) -> None:
    p = problem(sizes)
    model = ct.FedMGS(n_clusters, random_state=0, max_rounds=1).fit(p.X, clients=p.ids)
    assert phases(model) == ["measure", expected, "sums", "score"]


def test_one_shot_is_refused_where_every_client_has_one_row() -> None:
    p = problem([1] * 9)
    with pytest.raises(ParameterError, match=r"no client has two rows.*init='sums'"):
        fit(p, 1, init="one-shot")


# -- sums and random: what is drawn -------------------------------------------------------------


def test_sums_draws_around_the_mean_of_all_rows() -> None:
    rng = np.random.default_rng(0)
    mean = np.array([5.0, 0.0, -3.0, 0.0])
    rows = mean + rng.standard_normal((500, 4)) * [0.1, 2.0, 0.1, 0.0]
    federation = Federation.from_arrays(rows, clients=np.arange(500) % 9)
    state = start(federation, n_clusters=50, init="sums", n_init=20, bounds=(-99, 99), offset=None)
    centers = state["centers"].reshape(-1, 4)
    reach = np.maximum(np.abs(rows.mean(0)), rows.std(0))
    assert reach[3] == 0
    np.testing.assert_allclose(centers[:, 3], 0, atol=1e-12)
    for column in range(3):
        scaled = (centers[:, column] - rows[:, column].mean()) / reach[column]
        assert stats.kstest(scaled, "uniform", args=(-1, 2)).pvalue > 1e-3
    assert len(np.unique(centers[:, 0])) == len(centers)


def test_random_draws_centers_and_memberships_by_the_papers_law() -> None:
    """Uniform from 0 to the square root of the mean absolute entry over K."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((700, 6)) * 3
    federation = Federation.from_arrays(rows, clients=rng.integers(11, size=700))
    model = ct.FedMGS(5, init="random", n_init=2, random_state=SEED, bounds=(0, 99), offset=None)
    session = model.session(federation)
    centers = state_after(session, "sums")["centers"]
    memberships = np.asarray(session.engine.private().rows["memberships"])
    scale = np.sqrt(np.abs(rows).mean() / 5)
    for drawn in (centers, memberships):
        assert drawn.min() >= 0
        assert stats.kstest(drawn.ravel() / scale, "uniform").pvalue > 1e-3
    assert memberships.shape == (700, 2, 5)
    columns = memberships.reshape(700, 10)
    off = np.corrcoef(columns.T)[~np.eye(10, dtype=np.bool_)]
    assert np.abs(off).max() < 0.15  # 4 standard deviations
    assert not np.allclose(centers[0], centers[1])


def test_random_starts_lie_within_the_bounds() -> None:
    p = problem()
    state = start(p.federation, n_clusters=3, init="random", bounds=(0.0, 0.01), offset=None)
    assert 0 <= state["centers"].min() <= state["centers"].max() <= 0.01


@pytest.mark.parametrize("init", ["one-shot", "sums", "random"])
def test_another_seed_is_another_start(init: str) -> None:
    p = problem([30, 40, 50])
    one, same, other = (
        fit(p, 1, init=init, n_init=1, random_state=seed).cluster_centers_ for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other)


@pytest.mark.parametrize(("init", "share"), [("one-shot", 0.01), ("sums", 0.001)])
def test_auto_penalty_and_ridge_are_shares_of_the_datas_scale(init: str, share: float) -> None:
    p = problem()
    n = len(p.X)
    energy = (p.X**2).sum() / n
    state = start(p.federation, n_clusters=3, init=init, n_init=1)
    assert float(state["penalty"][0]) == pytest.approx(share * 2 / n * energy, rel=1e-12)
    assert float(state["ridge"]) == pytest.approx(1e-10 * energy, rel=1e-12)


def test_auto_penalty_grows_every_five_rounds_up_to_its_most() -> None:
    p = problem()
    n = len(p.X)
    scale = 2 / n * (p.X**2).sum() / n
    model = fit(p, 220, penalty="auto", penalty_growth=2.0, ridge=0.0)
    penalties = [record.metrics["penalty"] for record in own_rounds(model.history_)]
    expected = [min(0.01 * 2 ** ((r - 1) // 5), 100) * scale for r in range(1, 221)]
    np.testing.assert_allclose(penalties, expected, rtol=1e-12)
    assert expected[-1] == expected[-100] == pytest.approx(100 * scale)


def test_auto_penalty_grows_when_cohorts_have_seen_all_rows_five_times() -> None:
    p = problem([10, 10, 10, 10])
    model = fit(p, 45, penalty="auto", penalty_growth=2.0, ridge=0.0, clients_per_round=1)
    penalties = np.array([record.metrics["penalty"] for record in own_rounds(model.history_)])
    np.testing.assert_array_equal(np.flatnonzero(np.diff(penalties)) + 1, [20, 40])


# -- given ---------------------------------------------------------------------------------------


def test_given_memberships_are_in_the_callers_row_order() -> None:
    p = problem()
    order = np.random.default_rng(0).permutation(len(p.X))
    centers, memberships = p.start
    model = estimator(p, 5, init=(centers, memberships[order]), penalty_every=None)
    model.fit(p.X[order], clients=p.ids[order])
    expected = np.concatenate(twin(p, 5)[-1].memberships)
    np.testing.assert_allclose(model.memberships_, expected[order], rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(model.labels_, model.predict(p.X[order]))


def test_given_arrays_are_not_written_to() -> None:
    p = problem()
    centers, memberships = (a.copy() for a in p.start)
    fit(p, 5, init=(centers, memberships), clients_per_round=2)
    np.testing.assert_array_equal(centers, p.start[0])
    np.testing.assert_array_equal(memberships, p.start[1])


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_pair_may_be_a_list_of_lists(kind: type) -> None:
    p = problem()
    plain = kind([a.tolist() for a in p.start])
    check_equal(p, fit(p, 2, init=plain, penalty_every=None), twin(p, 2))


def test_a_pair_of_rows_is_two_centers() -> None:
    p = problem(n_clusters=2)
    one = fit(p, 3, init=(p.centers[0], p.centers[1]))
    other = fit(p, 3, init=p.centers)
    np.testing.assert_array_equal(one.memberships_, other.memberships_)


def test_given_centers_alone_start_memberships_half_in_the_nearest_cluster() -> None:
    p = problem()
    session = estimator(p, 1, init=p.centers).session(p.federation)
    state_after(session, "sums")
    labels = ray_errors(p.X, p.centers).argmin(1)
    np.testing.assert_allclose(
        np.asarray(session.engine.private().rows["memberships"])[:, 0],
        0.5 * np.eye(3)[labels] + 0.5 / 3,
    )


P = problem()
C, H = P.start


@pytest.mark.parametrize(
    ("init", "message"),
    [
        (C[:2], r"centers of shape \(2, 6\).*\(3, 6\)"),
        (C[:, :5], r"centers of shape \(3, 5\).*\(3, 6\)"),
        (C[0], r"centers of shape \(6,\)"),
        (3, r"centers of shape \(\)"),
        (np.where(C > 0.5, np.nan, C), "NaN"),
        (np.where(C > 0.5, np.inf, C), "infinity"),
        ((C, H[:-1]), r"memberships of shape \(43, 3\).*\(44, 3\)"),
        ((C, H[:, :2]), r"memberships of shape \(44, 2\).*\(44, 3\)"),
        ((C, H.T), r"memberships of shape \(3, 44\)"),
        ((C, -H), "not negative"),
        ((C, np.where(H > 0.5, np.nan, H)), "finite"),
        ((C, np.where(H > 0.5, np.inf, H)), "finite"),
        ((C, None), r"memberships of shape \(\)"),
        ((C, "memberships"), "pair of centers and memberships"),
        ([["a", "b"], ["c", "d"]], "expected the name of a start"),
        ([[1.0, 2.0], [1.0]], "expected the name of a start"),
        (object(), "init of type object"),
        (len, "expected the name of a start"),
        ("given", "expected .*'one-shot'"),
        ("k-means++", "expected .*'one-shot'"),
        (None, "expected .*'one-shot'"),
    ],
)
def test_a_start_that_cannot_be_used_is_refused(init: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        fit(P, 1, init=init)


# -- several starts ------------------------------------------------------------------------------


@pytest.mark.parametrize("init", ["one-shot", "sums", "random"])
def test_of_three_starts_that_of_least_hard_error_is_kept(init: str) -> None:
    X, _ = ct.datasets.make_onmf(300, 15, 6, random_state=0)
    federation = Federation.from_arrays(X, clients=np.arange(300) % 8)
    parameters: dict[str, Any] = {
        "tol": 0,
        "max_rounds": 15,
        "membership_steps": 10,
        "center_steps": 10,
        "offset": None,
        "penalty": 0.01,
        "random_state": 2,
    }
    joint = ct.FedMGS(6, init=init, n_init=3, **parameters).fit(federation)
    session = ct.FedMGS(6, init=init, n_init=3, **parameters).session(federation)
    centers = state_after(session, "sums")["centers"]
    memberships = np.asarray(session.engine.private().rows["memberships"])
    alone = [
        ct.FedMGS(6, init=(centers[r], federation.scatter(memberships[:, r])), **parameters).fit(
            federation
        )
        for r in range(3)
    ]
    errors = [ray_errors(X, model.cluster_centers_).min(1).sum() for model in alone]
    assert max(errors) > 1.001 * min(errors)
    best = alone[int(np.argmin(errors))]
    np.testing.assert_allclose(joint.cluster_centers_, best.cluster_centers_, rtol=1e-9)
    np.testing.assert_allclose(joint.memberships_, best.memberships_, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(joint.labels_, best.labels_)
    assert joint.objective_ == pytest.approx(best.objective_, rel=1e-9)


def test_one_start_needs_no_comparison() -> None:
    p = problem()
    assert phases(fit(p, 1, init="sums", n_init=1)) == ["measure", "mean", "sums"]
    assert phases(fit(p, 1, init="sums", n_init=2)) == ["measure", "mean", "sums", "score"]
    assert phases(fit(p, 1, init=C, n_init=5)) == ["measure", "sums"]


# -- offset --------------------------------------------------------------------------------------


def with_offset(p: Any, offset: Any, **parameters: Any) -> tuple[ct.FedMGS, Array]:
    """A run with an offset, and the centers, offset's column included, at which it started."""
    defaults = SETTINGS | {"init": "one-shot", "n_init": 1, "tol": 0, "max_rounds": 12}
    model = ct.FedMGS(3, offset=offset, random_state=SEED, **(defaults | parameters))
    centers = state_after(model.session(p.federation), "sums")["centers"][0]
    return model.fit(p.X, clients=p.ids), centers


@pytest.mark.parametrize("init", ["one-shot", "sums"])
@pytest.mark.parametrize("clients_per_round", [None, 3])
def test_an_offset_is_a_column_of_constants(init: str, clients_per_round: int | None) -> None:
    """Bounds of the column are 0 and the offset; those of the features stay as they are."""
    p = problem()
    offset = HIGH
    parameters = {"bounds": (0.0, HIGH), "clients_per_round": clients_per_round}
    model, centers = with_offset(p, offset, init=init, **parameters)
    column = np.full((len(p.X), 1), offset)
    assert centers.shape == (3, 7)
    assert np.all(centers[:, 6] == offset)

    memberships = np.full((len(p.X), 3), 1 / 3)
    physical = ct.FedMGS(
        3,
        init=centers if init == "one-shot" else (centers, memberships),
        tol=0,
        max_rounds=12,
        random_state=SEED,
        **(SETTINGS | parameters),
    ).fit(np.hstack([p.X, column]), clients=p.ids)
    close: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(model.cluster_centers_, physical.cluster_centers_[:, :6], **close)
    np.testing.assert_allclose(model.memberships_, physical.memberships_, **close)
    np.testing.assert_array_equal(model.labels_, physical.labels_)
    assert model.objective_ == pytest.approx(physical.objective_, rel=1e-9)
    new = np.random.default_rng(1).uniform(LOW, HIGH, (50, 6))
    extended = np.hstack([new, np.full((50, 1), offset)])
    np.testing.assert_array_equal(model.predict(new), physical.predict(extended))
    np.testing.assert_allclose(model.transform(new), physical.transform(extended), **close)


@pytest.mark.parametrize(("n_features", "there"), [(6, True), (7, False)])
def test_auto_offset_is_twice_the_norm_of_a_row_where_features_are_few(
    n_features: int, there: bool
) -> None:
    p = problem(n_features=n_features)
    state = start(p.federation, n_clusters=3, offset="auto")
    expected = 2 * np.sqrt((p.X**2).sum() / len(p.X)) if there else 0.0
    assert float(state["offset"]) == pytest.approx(expected, rel=1e-12)
    assert state["centers"].shape == (3, 3, n_features + there)


@pytest.mark.parametrize("offset", [None, 0, 0.0])
def test_no_offset_is_no_column(offset: Any) -> None:
    p = problem(n_features=2)
    model, centers = with_offset(p, offset)
    assert centers.shape == (3, 2)
    without, _ = with_offset(p, None)
    np.testing.assert_array_equal(model.memberships_, without.memberships_)


def test_given_arrays_switch_the_offset_off() -> None:
    p = problem()
    one, other = (fit(p, 4, offset=offset) for offset in (None, 3.0))
    np.testing.assert_array_equal(one.memberships_, other.memberships_)

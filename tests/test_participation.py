"""Who takes part: counts, chances, weights, and the same draw after a restart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from coterie.errors import ParameterError
from coterie.participation import (
    BySize,
    Full,
    LostReplies,
    NoFaults,
    Participation,
    Uniform,
    participation,
)
from coterie.protocol import Cohort, Spec

SIZES = np.array([1, 2, 3, 10, 4, 4, 7, 9])
SPEC = Spec(SIZES, (2,))
N = len(SIZES)
EVERYONE = Cohort(np.arange(N), np.ones(N))
SCHEMES: list[Participation] = [Full(), Uniform(3), BySize(3)]


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (None, Full()),
        (1, Uniform(1)),
        (1.0, Full()),
        (8, Full()),
        (7, Uniform(7)),
        (0.5, Uniform(4)),
        (0.25, Uniform(2)),
        (0.01, Uniform(1)),
        (np.float64(0.5), Uniform(4)),
    ],
)
def test_a_count_is_an_int_and_a_fraction_is_a_float(
    given_: float | None, expected: Participation
) -> None:
    assert participation(given_, "uniform", N) == expected


def test_by_size_draws_also_where_as_many_are_drawn_as_there_are() -> None:
    assert participation(8, "by-size", N) == BySize(8)
    assert participation(1.0, "by-size", N) == BySize(8)
    assert participation(None, "by-size", N) == Full()


@pytest.mark.parametrize("wrong", [0, -1, 9, 0.0, 1.5, -0.5, float("nan"), 2.0])
def test_what_is_neither_a_count_nor_a_fraction_is_refused(wrong: float) -> None:
    with pytest.raises(ParameterError, match=f"clients_per_round={wrong} was given"):
        participation(wrong, "uniform", N)


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"participation='everyone'.*by-size.*uniform"):
        participation(1, "everyone", N)


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
@given(seed=st.integers(0, 2**64 - 1), round_=st.integers(0, 10**6), attempt=st.integers(0, 5))
def test_a_cohort_is_sorted_distinct_and_drawn_again_the_same(
    scheme: Participation, seed: int, round_: int, attempt: int
) -> None:
    cohort, again = (scheme.draw(SPEC, round_, attempt, seed) for _ in range(2))
    np.testing.assert_array_equal(cohort.clients, again.clients)
    np.testing.assert_array_equal(cohort.weights, again.weights)
    assert np.all(np.diff(cohort.clients) > 0)
    assert cohort.clients.min() >= 0
    assert cohort.clients.max() < N
    assert cohort.weights.shape == cohort.clients.shape
    assert (cohort.weights > 0).all()
    assert cohort.lost is None


@pytest.mark.parametrize("scheme", [Uniform(3), BySize(3)], ids=repr)
def test_seed_round_and_attempt_each_draw_anew(scheme: Participation) -> None:
    def drawn(seed: int, round_: int, attempt: int) -> list[tuple[int, ...]]:
        return [
            tuple(scheme.draw(SPEC, round_ + i, attempt, seed).clients.tolist()) for i in range(20)
        ]

    assert len({str(drawn(*key)) for key in [(0, 0, 0), (1, 0, 0), (0, 100, 0), (0, 0, 1)]}) == 4


def test_uniform_includes_every_client_and_every_pair_alike() -> None:
    draws = 4000
    counts, pairs = np.zeros(N), np.zeros((N, N))
    for round_ in range(draws):
        cohort = Uniform(3).draw(SPEC, round_, 0, 5)
        assert len(cohort) == 3
        assert (cohort.weights == 1).all()
        counts[cohort.clients] += 1
        pairs[np.ix_(cohort.clients, cohort.clients)] += 1
    assert stats.chisquare(counts).pvalue > 1e-3
    assert stats.chisquare(pairs[np.triu_indices(N, 1)]).pvalue > 1e-3


def test_by_size_draws_with_chances_like_sizes() -> None:
    draws = 4000
    times = np.zeros(N)
    for round_ in range(draws):
        cohort = BySize(4).draw(SPEC, round_, 0, 5)
        drawn = cohort.weights * N * SIZES[cohort.clients] / SIZES.sum()
        np.testing.assert_allclose(drawn, np.round(drawn), atol=1e-9)
        assert drawn.sum() == pytest.approx(4)
        times[cohort.clients] += drawn
    assert stats.chisquare(times, 4 * draws * SIZES / SIZES.sum()).pvalue > 1e-3


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_weighted_sums_do_not_lean_to_either_side(scheme: Participation) -> None:
    """Σ w n f has the mean Σ n f times one number that is the same for f and for 1."""
    f = np.array([3.0, -1, 0, 2, 8, -5, 1, 1])
    draws = 6000
    sums = np.zeros((draws, 2))
    for round_ in range(draws):
        cohort = scheme.draw(SPEC, round_, 0, 3)
        mass = cohort.weights * SIZES[cohort.clients]
        sums[round_] = (mass * f[cohort.clients]).sum(), mass.sum()
    truth = float((SIZES * f).sum() / SIZES.sum())
    gap = sums[:, 0] - truth * sums[:, 1]
    error = gap.std() / np.sqrt(draws)
    assert abs(gap.mean()) <= 4 * error + 1e-9


def test_equal_sizes_weigh_as_if_drawn_evenly() -> None:
    even = Spec(np.full(6, 4), (1,))
    for round_ in range(50):
        weights = BySize(2).draw(even, round_, 0, 0).weights
        np.testing.assert_allclose(weights, np.round(weights))
        assert weights.sum() == pytest.approx(2)


# -- lost replies ---------------------------------------------------------------------------------


def test_no_faults_lose_nothing() -> None:
    assert NoFaults().lose(EVERYONE, 1, 0, 0) is EVERYONE


@pytest.mark.parametrize("chance", [0.0, 0.3, 1.0])
def test_replies_are_lost_with_their_chance_each_on_its_own(chance: float) -> None:
    lost = np.zeros(N)
    for step in range(2000):
        marked = LostReplies(chance).lose(EVERYONE, step, 0, 1)
        assert marked.clients is EVERYONE.clients
        assert marked.lost is not None
        lost += marked.lost
    np.testing.assert_allclose(lost / 2000, chance, atol=0.06)
    assert EVERYONE.lost is None


def test_faults_repeat_and_differ_by_step_attempt_and_seed() -> None:
    def marks(step: int, attempt: int, seed: int) -> str:
        found = [LostReplies(0.5).lose(EVERYONE, step + i, attempt, seed).lost for i in range(10)]
        return str(np.array(found))

    assert marks(0, 0, 0) == marks(0, 0, 0)
    assert len({marks(0, 0, 0), marks(50, 0, 0), marks(0, 1, 0), marks(0, 0, 1)}) == 4

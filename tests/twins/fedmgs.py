"""FedMGS, written slowly and plainly from the paper, to check the library against.

Wang and Chang, "Federated Matrix Factorization: Algorithm Design and Application to Data
Clustering" (2020), Algorithm 2 and equations (2), (3), (28)-(32), (35), (36). Nothing here
imports or copies the library.

Inside, everything stands as in the paper, where *columns* are samples:

    ====  ========  ======================================================
    X_p   M by N_p  the data of client p (N_p columns; N over all clients)
    W     M by K    the centers, one a column
    H_p   K by N_p  the memberships of client p, one column a sample
    w_p             N_p / N
    J               1 1', the K by K matrix of ones
    rho             penalty
    nu              ridge
    Q1              membership_steps
    Q2              center_steps
    ====  ========  ======================================================

Outside (arguments and results) rows are samples: clients are N_p by M, centers are K by M,
memberships are N_p by K. Every function transposes on the way in and on the way out.

The problem, (2), (3), (35) and (36) put together (only the squared error is divided by N):

    F(W, H)     = (1/N) |X - W H|^2 + R_H(H)
    R_H(H)      = (rho/2) sum_j [ (1' h_j)^2 - |h_j|^2 ] + (nu/2) |H|^2
    F_p(W, H_p) = (1/N_p) |X_p - W H_p|^2 + (N/N_p) R_H(H_p)
    F           = sum_p w_p F_p

subject to low <= W <= high and H >= 0, entry by entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Steps = Literal["scaled", "as-printed"]


@dataclass
class TwinRound:
    """What there is after a round (round 0 is the start)."""

    centers: Array  # K by M
    memberships: list[Array]  # N_p by K, one a client
    objective: float  # F(W, H) with the penalty used in this round
    penalty: float  # the penalty used in this round
    changed: int  # rows of the cohort whose label changed in this round
    undecided: int  # rows of the cohort with more than one non-zero membership
    orthogonality: float  # root mean square cosine between two clusters' membership vectors
    G1: Array | None = None  # K by K, the server's sum after the round (None: no server)
    G2: Array | None = None  # M by K, the server's other sum after the round


# ------------------------------------------------------------------------------------------
# The objective and its gradients, in the paper's orientation
# ------------------------------------------------------------------------------------------


def squared_error(X_p: Array, W: Array, H_p: Array) -> float:
    """|X_p - W H_p|^2, column by column."""
    total = 0.0
    for j in range(X_p.shape[1]):
        residual = X_p[:, j] - W @ H_p[:, j]
        total += float(np.sum(residual**2))
    return total


def regulariser(H_p: Array, penalty: float, ridge: float) -> float:
    """R_H(H_p) of (35), column by column."""
    total = 0.0
    for j in range(H_p.shape[1]):
        h = H_p[:, j]
        sum_squared = float(np.sum(h)) ** 2  # (1' h_j)^2
        norm_squared = float(np.sum(h**2))  # |h_j|^2
        total += penalty / 2 * (sum_squared - norm_squared) + ridge / 2 * norm_squared
    return total


def local_objective(
    X_p: Array, W: Array, H_p: Array, n_total: int, penalty: float, ridge: float
) -> float:
    """F_p(W, H_p) of (3)."""
    n_p = X_p.shape[1]
    error = squared_error(X_p, W, H_p) / n_p
    value: float = error + (n_total / n_p) * regulariser(H_p, penalty, ridge)
    return value


def local_gradient_memberships(
    X_p: Array, W: Array, H_p: Array, n_total: int, penalty: float, ridge: float
) -> Array:
    """Gradient of F_p in H_p: (2/N_p) W'(W H_p - X_p) + (N/N_p) [rho (J - I) H_p + nu H_p]."""
    K, n_p = H_p.shape
    J = np.ones((K, K))
    identity = np.eye(K)
    from_error = (2 / n_p) * W.T @ (W @ H_p - X_p)
    from_regulariser = penalty * (J - identity) @ H_p + ridge * H_p
    gradient: Array = from_error + (n_total / n_p) * from_regulariser
    return gradient


def local_gradient_centers(X_p: Array, W: Array, H_p: Array) -> Array:
    """Gradient of F_p in W: (2/N_p) (W H_p - X_p) H_p'."""
    gradient: Array = (2 / X_p.shape[1]) * (W @ H_p - X_p) @ H_p.T
    return gradient


def gradient_centers_from_sums(W: Array, G1: Array, G2: Array) -> Array:
    """Gradient of F in W, (29) and the last line of Algorithm 2: W G1 - G2 (R_W is 0)."""
    gradient: Array = W @ G1 - G2
    return gradient


def lambda_max(A: Array) -> float:
    """Largest eigenvalue of a symmetric matrix."""
    return float(np.linalg.eigvalsh(A)[-1])


def objective(
    clients: Sequence[Array],
    centers: Array,
    memberships: Sequence[Array],
    penalty: float,
    ridge: float,
) -> float:
    """F(W, H) from its definition. Rows are samples."""
    W = centers.T
    n_total = sum(rows.shape[0] for rows in clients)
    total = 0.0
    for rows, own in zip(clients, memberships, strict=True):
        X_p, H_p = rows.T, own.T
        total += squared_error(X_p, W, H_p) / n_total + regulariser(H_p, penalty, ridge)
    return total


# ------------------------------------------------------------------------------------------
# What is told of a round. Rows are samples
# ------------------------------------------------------------------------------------------


def count_changed(before: Array, after: Array) -> int:
    """Rows whose largest membership (ties: the lowest cluster) is another one than before."""
    changed = 0
    for i in range(after.shape[0]):
        if int(np.argmax(before[i])) != int(np.argmax(after[i])):  # argmax takes the first
            changed += 1
    return changed


def count_undecided(memberships: Array) -> int:
    """Rows with more than one non-zero membership."""
    undecided = 0
    for i in range(memberships.shape[0]):
        if int(np.count_nonzero(memberships[i])) > 1:
            undecided += 1
    return undecided


def orthogonality(memberships: Sequence[Array]) -> float:
    """Compute sqrt( sum over k != l of cos^2(k, l) / (K (K - 1)) ), 0 if K is 1.

    cos(k, l) is between the membership vectors of clusters k and l over all rows of all
    clients, and 0 if either of them is zero.
    """
    pooled = np.concatenate(list(memberships), axis=0)  # N by K
    K = pooled.shape[1]
    if K == 1:
        return 0.0
    total = 0.0
    for k in range(K):
        for m in range(K):
            if k == m:
                continue
            norms = float(np.linalg.norm(pooled[:, k]) * np.linalg.norm(pooled[:, m]))
            cosine = float(pooled[:, k] @ pooled[:, m]) / norms if norms > 0 else 0.0
            total += cosine**2
    return float(np.sqrt(total / (K * (K - 1))))


def next_penalty(
    penalty: float,
    round_number: int,
    objective_before: float,
    objective_after: float,
    *,
    penalty_growth: float,
    penalty_every: int | None,
    penalty_tol: float | None,
    penalty_max: float,
) -> float:
    """Penalty of the next round. Both objectives are at the penalty of this round.

    If both reasons to grow hold it grows once.
    """
    due = bool(penalty_every) and round_number % int(penalty_every or 1) == 0
    difference = abs(objective_after - objective_before)
    if difference == 0:
        relative_change = 0.0  # also where the objective is 0 before and after
    elif objective_before == 0:
        relative_change = np.inf
    else:
        relative_change = difference / abs(objective_before)
    settled = penalty_tol is not None and relative_change < penalty_tol
    if due or settled:
        return min(penalty * penalty_growth, penalty_max)
    return penalty


def _check_penalty(penalty: float, penalty_growth: float, penalty_max: float) -> None:
    """Refuse what the brief of this twin does not define."""
    if penalty_growth < 1:
        raise ValueError("penalty_growth must be at least 1")
    if penalty > penalty_max:
        raise ValueError("penalty must not start above penalty_max")


# ------------------------------------------------------------------------------------------
# FedMGS: Algorithm 2
# ------------------------------------------------------------------------------------------


def fedmgs(
    clients: Sequence[Array],
    centers: Array,
    memberships: Sequence[Array],
    *,
    rounds: int,
    cohorts: Sequence[Sequence[int]],
    membership_steps: int,
    center_steps: int,
    penalty: float,
    ridge: float,
    low: float,
    high: float,
    penalty_growth: float = 1.0,
    penalty_every: int | None = None,
    penalty_tol: float | None = None,
    penalty_max: float = np.inf,
    steps: Steps = "scaled",
) -> list[TwinRound]:
    """Run Algorithm 2. ``cohorts[0]`` holds the client numbers of round 1, and so on."""
    _check_penalty(penalty, penalty_growth, penalty_max)
    P = len(clients)
    for rows in clients:
        if rows.shape[0] == 0:
            raise ValueError("a client without rows has no F_p")
    for cohort in cohorts:
        if len(set(cohort)) != len(cohort) or not set(cohort) <= set(range(P)):
            raise ValueError("a cohort must hold distinct client numbers (no replacement)")

    # Into the paper's orientation.
    X = [np.array(rows, dtype=np.float64).T for rows in clients]
    H = [np.array(own, dtype=np.float64).T for own in memberships]
    W = np.array(centers, dtype=np.float64).T
    M, K = W.shape
    N = sum(X_p.shape[1] for X_p in X)
    J = np.ones((K, K))
    identity = np.eye(K)

    # Input of Algorithm 2: G1^0 and G2^0, from all clients. U_p and V_p are remembered.
    U = [np.zeros((K, K)) for _ in range(P)]
    V = [np.zeros((M, K)) for _ in range(P)]
    G1 = np.zeros((K, K))
    G2 = np.zeros((M, K))
    for p in range(P):
        U[p] = H[p] @ H[p].T
        V[p] = X[p] @ H[p].T
        G1 = G1 + (2 / N) * U[p]
        G2 = G2 + (2 / N) * V[p]

    rows_of = [X_p.T for X_p in X]

    def out_of_paper() -> list[Array]:
        return [np.array(H_p.T) for H_p in H]

    start = out_of_paper()
    history = [
        TwinRound(
            centers=np.array(W.T),
            memberships=start,
            objective=objective(rows_of, W.T, start, penalty, ridge),
            penalty=penalty,
            changed=0,
            undecided=sum(count_undecided(own) for own in start),
            orthogonality=orthogonality(start),
            G1=G1.copy(),
            G2=G2.copy(),
        )
    ]

    for s in range(1, rounds + 1):
        cohort = cohorts[s - 1]
        before = out_of_paper()
        objective_before = objective(rows_of, W.T, before, penalty, ridge)

        # Clients: (28), Q1 times, with the W that came in. All others keep their H_p.
        for p in cohort:
            n_p = X[p].shape[1]
            if steps == "scaled":
                # c_p = 0.51 lambda_max( (2/N_p) W'W + (N/N_p) [rho (J - I) + nu I] )
                curvature = (2 / n_p) * W.T @ W
                curvature = curvature + (N / n_p) * (penalty * (J - identity) + ridge * identity)
                c_p = 0.51 * lambda_max(curvature)
            else:
                # Section V-A, as printed: c_p = (1/2) lambda_max(W'W)
                c_p = 0.5 * lambda_max(W.T @ W)
            for _ in range(membership_steps):
                if c_p == 0:  # no step is defined: stay
                    break
                gradient = local_gradient_memberships(X[p], W, H[p], N, penalty, ridge)
                H[p] = np.maximum(H[p] - gradient / c_p, 0.0)

        # Clients send (31); the server adds (2/N) of the differences to its sums.
        for p in cohort:
            U_new = H[p] @ H[p].T
            V_new = X[p] @ H[p].T
            G1 = G1 + (2 / N) * (U_new - U[p])
            G2 = G2 + (2 / N) * (V_new - V[p])
            U[p] = U_new
            V[p] = V_new

        # Server: (32), Q2 times, projected onto the box after every step.
        # The server knows H H' of all clients as (N/2) G1.
        # Scaled:     d = 0.501 (2/N) lambda_max(H H').
        # As printed: d = (1/2) lambda_max(H H'), Section V-A.
        largest = lambda_max((N / 2) * G1)
        d = 0.501 * (2 / N) * largest if steps == "scaled" else 0.5 * largest
        for _ in range(center_steps):
            if d == 0:  # H is zero, and so is the gradient: stay
                break
            gradient = gradient_centers_from_sums(W, G1, G2)
            W = np.minimum(np.maximum(W - gradient / d, low), high)

        after = out_of_paper()
        objective_after = objective(rows_of, W.T, after, penalty, ridge)
        history.append(
            TwinRound(
                centers=np.array(W.T),
                memberships=after,
                objective=objective_after,
                penalty=penalty,
                changed=sum(count_changed(before[p], after[p]) for p in cohort),
                undecided=sum(count_undecided(after[p]) for p in cohort),
                orthogonality=orthogonality(after),
                G1=G1.copy(),
                G2=G2.copy(),
            )
        )
        penalty = next_penalty(
            penalty,
            s,
            objective_before,
            objective_after,
            penalty_growth=penalty_growth,
            penalty_every=penalty_every,
            penalty_tol=penalty_tol,
            penalty_max=penalty_max,
        )
    return history


# ------------------------------------------------------------------------------------------
# The same problem without a federation: alternating projected gradient on the pooled X
# ------------------------------------------------------------------------------------------


def centralised(
    X: Array,
    centers: Array,
    memberships: Array,
    *,
    rounds: int,
    membership_steps: int,
    center_steps: int,
    penalty: float,
    ridge: float,
    low: float,
    high: float,
    penalty_growth: float = 1.0,
    penalty_every: int | None = None,
    penalty_tol: float | None = None,
    penalty_max: float = np.inf,
    steps: Steps = "scaled",
) -> list[TwinRound]:
    """Minimise F(W, H) by Q1 projected gradient steps in H, then Q2 in W, and again.

    There are no clients and no sums here: the gradients are those of F itself, from the
    residual of the whole matrix.
    """
    _check_penalty(penalty, penalty_growth, penalty_max)
    data = np.array(X, dtype=np.float64)
    X_all = data.T  # M by N
    W = np.array(centers, dtype=np.float64).T  # M by K
    H = np.array(memberships, dtype=np.float64).T  # K by N
    N = X_all.shape[1]
    K = W.shape[1]

    # R_H(h) = (1/2) h' B h, with B = rho (J - I) + nu I: rho off the diagonal, nu on it.
    history: list[TwinRound] = []
    history.append(
        TwinRound(
            centers=np.array(W.T),
            memberships=[np.array(H.T)],
            objective=objective([data], W.T, [H.T], penalty, ridge),
            penalty=penalty,
            changed=0,
            undecided=count_undecided(H.T),
            orthogonality=orthogonality([H.T]),
        )
    )
    for s in range(1, rounds + 1):
        H_before = H.copy()
        objective_before = objective([data], W.T, [H.T], penalty, ridge)

        B = np.full((K, K), penalty)
        for k in range(K):
            B[k, k] = ridge

        # H: the second derivative of F in every column of H is (2/N) W'W + B.
        if steps == "scaled":
            c = 0.51 * lambda_max(2 * (W.T @ W) / N + B)
        else:
            c = lambda_max(W.T @ W) / 2
        for _ in range(membership_steps):
            if c == 0:
                break
            residual = W @ H - X_all
            gradient_h = 2 * (W.T @ residual) / N + B @ H
            H = np.maximum(H - gradient_h / c, 0.0)

        # W: the second derivative of F in every row of W is (2/N) H H'.
        largest = lambda_max(H @ H.T)
        d = 0.501 * 2 * largest / N if steps == "scaled" else largest / 2
        for _ in range(center_steps):
            if d == 0:
                break
            residual = W @ H - X_all
            gradient_w = 2 * (residual @ H.T) / N
            W = np.minimum(np.maximum(W - gradient_w / d, low), high)

        objective_after = objective([data], W.T, [H.T], penalty, ridge)
        history.append(
            TwinRound(
                centers=np.array(W.T),
                memberships=[np.array(H.T)],
                objective=objective_after,
                penalty=penalty,
                changed=count_changed(H_before.T, H.T),
                undecided=count_undecided(H.T),
                orthogonality=orthogonality([H.T]),
            )
        )
        penalty = next_penalty(
            penalty,
            s,
            objective_before,
            objective_after,
            penalty_growth=penalty_growth,
            penalty_every=penalty_every,
            penalty_tol=penalty_tol,
            penalty_max=penalty_max,
        )
    return history


# ------------------------------------------------------------------------------------------
# Prediction: the nearest ray
# ------------------------------------------------------------------------------------------


def ray_errors(X: Array, centers: Array) -> Array:
    """min over h >= 0 of |x - h w_k|^2 for every row x and center w_k (N by K).

    The best h is max(0, x'w / |w|^2); the error of a zero center is |x|^2.
    """
    errors = np.zeros((X.shape[0], centers.shape[0]))
    for i in range(X.shape[0]):
        for k in range(centers.shape[0]):
            x, w = X[i], centers[k]
            length_squared = float(w @ w)
            h = max(0.0, float(x @ w) / length_squared) if length_squared > 0 else 0.0
            errors[i, k] = float(np.sum((x - h * w) ** 2))
    return errors


def nearest_ray(X: Array, centers: Array) -> Labels:
    """Label of every row: the center with the smallest ray error, ties to the lowest k."""
    errors = ray_errors(X, centers)
    labels = np.zeros(X.shape[0], dtype=np.int64)
    for i in range(errors.shape[0]):
        best = 0
        for k in range(1, errors.shape[1]):
            if errors[i, k] < errors[i, best]:
                best = k
        labels[i] = best
    return labels

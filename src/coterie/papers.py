"""The five papers that coterie implements, and which of their algorithms run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """A paper, and what of it runs here.

    Attributes
    ----------
    key : str
        As file names and messages have it.
    ready : tuple of str
        Estimators that run.
    planned : tuple of str
        Its other algorithms and the baselines that it compares with.
    """

    key: str
    authors: str
    title: str
    where: str
    ready: tuple[str, ...]
    planned: tuple[str, ...]


PAPERS = (
    Paper(
        "fedmf-2020",
        "S. Wang, T.-H. Chang",
        "Federated Matrix Factorization: Algorithm Design and Application to Data Clustering",
        "2020",
        ("FedMGS",),
        ("FedMAvg", "FedPALM", "SNCP", "KMeansParallel", "BEL", "CAL"),
    ),
    Paper(
        "fedc-2021",
        "S. Wang, T.-H. Chang",
        "Federated Clustering via Matrix Factorization Models: From Model Averaging to Gradient "
        "Sharing",
        "2021",
        (),
        ("FedCAvg", "FedCGds"),
    ),
    Paper(
        "dp-fedc-2023",
        "Y. Li, S. Wang, C.-Y. Chi, T. Q. S. Quek",
        "Differentially Private Federated Clustering Over Non-IID Data",
        "2023",
        (),
        ("DPFedC", "DPFedMGS", "DPKMeans", "FederatedKMeans", "FederatedFuzzyCMeans"),
    ),
    Paper(
        "weightcfl-2022",
        "J. Ma, G. Long, T. Zhou, J. Jiang, C. Zhang",
        "On the Convergence of Clustered Federated Learning",
        "2022",
        (),
        ("WeightedCFL", "FeSEM", "HypCluster", "SattlerCFL", "FedAvg", "Ditto", "LocalOnly"),
    ),
    Paper(
        "cfl-mgd-2023",
        "X. Zhao, P. Xie, L. Xing, G. Zhang, H. Ma",
        "Clustered Federated Learning Based on Momentum Gradient Descent for Heterogeneous Data",
        "Electronics 12(9), 2023",
        (),
        ("CFLMGD", "IFCA", "FedBCD"),
    ),
)

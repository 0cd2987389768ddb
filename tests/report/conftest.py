from __future__ import annotations

from pathlib import Path

import pytest

from coterie.experiments.demo import SCENES, play
from report.folders import digits, hospitals, make_run


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demonstration's run on digits, with its comparison."""
    out = tmp_path_factory.mktemp("runs") / "digits"
    play(next(scene for scene in SCENES if scene.name == "digits"), out)
    return out


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in whose folder every name is markup."""
    root = tmp_path_factory.mktemp("own")
    return make_run(root / "run <i>one", hospitals(root / "rows<b>.parquet"))


@pytest.fixture(scope="session")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after six exchanges."""
    return make_run(tmp_path_factory.mktemp("part") / "six of them", digits(), exchanges=6)

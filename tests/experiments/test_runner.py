"""Runs: stopped and killed ones end as those that were let alone, bit for bit."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie import codec
from coterie.errors import CheckpointError, ConfigError, RunFolderError
from coterie.experiments.config import Config, make_config
from coterie.experiments.folder import CHECKPOINT, ENVIRONMENT, MODEL, RESULT, ROUNDS, RunFolder
from coterie.experiments.runner import run

DIGITS: dict[str, Any] = {
    "data": {"name": "digits"},
    "partition": {"scheme": "by_classes", "n_clients": 12},
    "algorithm": {"name": "FedMGS", "n_clusters": 10, "n_init": 2, "max_rounds": 12, "tol": 0.0},
}


def config(**algorithm: Any) -> Config:
    return make_config(DIGITS | {"algorithm": DIGITS["algorithm"] | algorithm})


def stop_after(n: int) -> Any:
    """A wish to stop after n exchanges."""
    left = iter([False] * (n - 1))
    return lambda: next(left, True)


def same_run(one: RunFolder, other: RunFolder) -> None:
    """Same records but for the seconds, same final state, model and labels, bit for bit."""
    strip = ("seconds",)
    kept = [{k: v for k, v in r.items() if k not in strip} for r in one.rounds()]
    assert kept == [{k: v for k, v in r.items() if k not in strip} for r in other.rounds()]
    for name in (CHECKPOINT, MODEL):
        a, b = (codec.unpack((f.path / name).read_bytes())[0] for f in (one, other))
        for arrays in (a, b):
            arrays.pop("engine.run", None)  # which run the clients' own files belong to
        assert codec.checksum(a) == codec.checksum(b), name
    results = one.read_result(), other.read_result()
    for column in results[0]:
        np.testing.assert_array_equal(results[0][column], results[1][column])


@pytest.mark.parametrize("changes", [{}, {"clients_per_round": 3}], ids=["everyone", "three"])
@pytest.mark.parametrize("exchanges", [1, 2, 5, 13])
def test_a_stopped_run_goes_on_to_the_same_bits(
    tmp_path: Path, exchanges: int, changes: dict[str, Any]
) -> None:
    whole = run(config(**changes), tmp_path / "whole")
    stopped = run(config(**changes), tmp_path / "stopped", stop=stop_after(exchanges))
    assert not stopped.finished
    assert len(stopped.rounds()) == exchanges
    resumed = run(config(**changes), tmp_path / "stopped", resume=True)
    assert resumed.finished
    same_run(whole, resumed)


def test_an_older_checkpoint_does_the_rounds_since_again(tmp_path: Path) -> None:
    whole = run(config(), tmp_path / "whole")
    folder = run(config(), tmp_path / "crashed", stop=stop_after(4))
    old = (folder.path / CHECKPOINT).read_bytes()
    run(config(), tmp_path / "crashed", resume=True, stop=stop_after(4))
    (folder.path / CHECKPOINT).write_bytes(old)  # as if it had crashed before the second checkpoint
    same_run(whole, run(config(), tmp_path / "crashed", resume=True))


def test_a_run_on_processes_resumes_from_what_its_clients_kept(tmp_path: Path) -> None:
    tables = DIGITS | {
        "partition": {"scheme": "iid", "n_clients": 3},
        "algorithm": DIGITS["algorithm"] | {"max_rounds": 4},
        "run": {"engine": "processes"},
    }
    apart = make_config(tables)
    whole = run(apart, tmp_path / "whole")
    run(apart, tmp_path / "stopped", stop=stop_after(5))
    same_run(whole, run(apart, tmp_path / "stopped", resume=True))


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    folder = run(config(max_rounds=2), tmp_path / "run")
    before = {p: p.read_bytes() for p in folder.path.rglob("*") if p.is_file()}
    run(config(max_rounds=2), tmp_path / "run", resume=True)
    assert before == {p: p.read_bytes() for p in folder.path.rglob("*") if p.is_file()}


def test_a_run_that_died_before_its_labels_writes_them(tmp_path: Path) -> None:
    whole = run(config(max_rounds=2), tmp_path / "whole")
    folder = run(config(max_rounds=2), tmp_path / "run")
    (folder.path / RESULT).unlink()
    (folder.path / MODEL).unlink()
    same_run(whole, run(config(max_rounds=2), tmp_path / "run", resume=True))


def test_resuming_with_another_configuration_is_refused(tmp_path: Path) -> None:
    run(config(max_rounds=3), tmp_path / "run", stop=stop_after(2))
    with pytest.raises(ConfigError, match=r"another \[algorithm\]"):
        run(config(max_rounds=4), tmp_path / "run", resume=True)


def test_resuming_on_other_rows_is_refused(tmp_path: Path) -> None:
    folder = run(config(max_rounds=3), tmp_path / "run", stop=stop_after(2))
    environment = folder.read_json(ENVIRONMENT)
    environment["data"]["fingerprint"] = "00000000"
    folder.write_json(ENVIRONMENT, environment)
    with pytest.raises(CheckpointError, match="other rows"):
        run(config(max_rounds=3), tmp_path / "run", resume=True)


def test_resuming_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="not the folder of a run"):
        run(config(), tmp_path / "nothing", resume=True)


def test_a_damaged_checkpoint_stops_before_anything_is_written(tmp_path: Path) -> None:
    folder = run(config(), tmp_path / "run", stop=stop_after(5))
    (folder.path / CHECKPOINT).write_bytes(b"nonsense")
    before = (folder.path / ROUNDS).read_bytes()
    with pytest.raises(CheckpointError, match="damaged"):
        run(config(), tmp_path / "run", resume=True)
    assert (folder.path / ROUNDS).read_bytes() == before


def test_records_say_how_good_the_clusters_are(tmp_path: Path) -> None:
    folder = run(config(), tmp_path / "run")
    scores = [r["evaluation"]["accuracy"] for r in folder.rounds() if "evaluation" in r]
    assert len(scores) == 13  # the start, and twelve rounds
    assert scores[-1] > 0.6
    never = make_config(DIGITS | {"run": {"evaluate_every": 0}})
    assert not any("evaluation" in r for r in run(never, tmp_path / "never").rounds())


def test_an_option_that_the_loader_does_not_know_is_named(tmp_path: Path) -> None:
    tables = {
        "data": {"name": "onmf", "options": {"n_sample": 10}},
        "algorithm": {"name": "FedMGS"},
    }
    with pytest.raises(ConfigError, match=r"data\.options\.n_sample.*did you mean 'n_samples'"):
        run(make_config(tables), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_rows_of_ones_own(tmp_path: Path) -> None:
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((60, 4)), columns=list("abcd"))
    frame["who"] = rng.choice(["north", "south", "east"], 60)
    frame.to_parquet(tmp_path / "rows.parquet")
    tables = {
        "data": {"path": str(tmp_path / "rows.parquet"), "client": "who"},
        "algorithm": {"name": "FedMGS", "n_clusters": 3, "max_rounds": 3},
    }
    result = run(make_config(tables), tmp_path / "run").read_result()
    assert result["client"].tolist() == frame["who"].tolist()
    assert "truth" not in result


# -- a real process, killed -----------------------------------------------------------------------

SLOW = """
[data]
name = "digits"
[partition]
scheme = "by_classes"
n_clients = 12
[algorithm]
name = "FedMGS"
n_clusters = 10
n_init = 2
tol = 0.0
max_rounds = 60
membership_steps = 200
"""


def start(folder: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "coterie.cli", "run", *more, "--out", "run", "--quiet"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE)


def wait_for_rounds(folder: Path, n: int, process: subprocess.Popen[bytes]) -> None:
    path = folder / "run" / ROUNDS
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") >= n:
            return
        time.sleep(0.005)
    raise AssertionError(f"the process came to its end, or to no {n} rounds")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
def test_a_process_stopped_at_a_random_round_resumes_to_the_same_bits(
    tmp_path: Path, how: signal.Signals
) -> None:
    (tmp_path / "run.toml").write_text(SLOW)
    n = 4 + secrets.randbelow(27)
    process = start(tmp_path, "run.toml")
    wait_for_rounds(tmp_path, n, process)
    process.send_signal(how)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL), (n, errors)
    assert not RunFolder.open(tmp_path / "run").finished

    resumed = start(tmp_path, "--resume")
    _, errors = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, errors
    whole = subprocess.run(
        [sys.executable, "-m", "coterie.cli", "run", "run.toml", "--out", "whole", "--quiet"],
        cwd=tmp_path,
        check=False,
    )
    assert whole.returncode == 0
    same_run(RunFolder.open(tmp_path / "whole"), RunFolder.open(tmp_path / "run"))
    steps = [record["step"] for record in RunFolder.open(tmp_path / "run").rounds()]
    assert steps == list(range(len(steps)))

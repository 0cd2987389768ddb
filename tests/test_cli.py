"""The command line, as a person meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from coterie import __version__
from coterie.cli import main

CONFIG = """
[data]
name = "digits"
[partition]
scheme = "iid"
n_clients = 5
[algorithm]
name = "FedMGS"
n_clusters = 10
max_rounds = 3
"""


@dataclass(frozen=True)
class Done:
    """How a call ended, and what it said."""

    returncode: int
    stdout: str
    stderr: str


Call = Callable[..., Done]


@pytest.fixture
def coterie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Call the command line in a folder of its own, in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("COLUMNS", "100")

    def call(*words: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["coterie", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)

    return call


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    (tmp_path / "run.toml").write_text(CONFIG)
    return tmp_path


def test_every_command_explains_itself(coterie: Call) -> None:
    for words in ([], ["demo"], ["run"], ["report"], ["list"], ["data"], ["data", "fetch"]):
        shown = coterie(*words, "--help")
        assert shown.returncode == 0
        assert "Usage:" in shown.stdout
        assert "Traceback" not in shown.stderr


def test_the_version(coterie: Call) -> None:
    assert coterie("--version").stdout.strip() == __version__


def test_it_is_a_command(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("coterie")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == __version__


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["list", "algorithms"], "FedMGS"),
        (["list", "algorithms", "FedMGS"], "membership_steps"),
        (["list", "datasets"], "digits"),
        (["list", "papers"], "cfl-mgd-2023"),
        (["data", "list"], "tdt2"),
        (["data", "fetch", "digits"], "digits is here"),
    ],
)
def test_lists(coterie: Call, words: list[str], shown: str) -> None:
    done = coterie(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert shown in done.stdout


def test_a_run_and_its_report(coterie: Call, configured: Path) -> None:
    ran = coterie("run", "run.toml", "--set", "algorithm.n_clusters=4", "--out", "one")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "round 0" not in ran.stdout.splitlines()[-1]
    assert "coterie report one" in ran.stdout
    assert "n_clusters = 4" in (configured / "one" / "config.toml").read_text()
    reported = coterie("report", "one", "-o", "page.html")
    assert (reported.returncode, reported.stderr) == (0, "")
    assert "page.html" in reported.stdout
    assert (configured / "page.html").read_text().startswith("<!doctype html>")


def test_quiet_says_nothing(coterie: Call, configured: Path) -> None:
    done = coterie("run", "run.toml", "--out", "one", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_runs_without_a_folder_do_not_meet(coterie: Call, configured: Path) -> None:
    for _ in range(2):
        assert coterie("run", "run.toml", "--quiet").returncode == 0
    assert sorted(p.name for p in (configured / "runs").iterdir()) == ["run", "run-2"]


def test_a_finished_run_may_be_resumed(coterie: Call, configured: Path) -> None:
    coterie("run", "run.toml", "--out", "one", "--quiet")
    done = coterie("run", "--resume", "--out", "one")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "said", "status"),
    [
        (["run"], "no configuration was given", 2),
        (["run", "absent.toml"], "cannot be read", 2),
        (["run", "run.toml", "--set", "algorithm.n_cluster=3"], "did you mean 'n_clusters'?", 2),
        (["run", "run.toml", "--set", "algorithm.n_clusters=99999"], "fewer rows than clusters", 2),
        (["run", "run.toml", "--resume"], "--out", 2),
        (["run", "--resume", "--out", "absent"], "not the folder of a run", 1),
        (["run", "--resume", "--out", "x", "--set", "a.b=1"], "--set", 2),
        (["run", "run.toml", "--out", "run.toml"], "not an empty folder", 1),
        (["report", "absent"], "not the folder of a run", 1),
        (["list", "algorithms", "FedMG"], "expected one of", 2),
        (["data", "fetch", "mnis"], "did you mean 'mnist'?", 2),
    ],
)
def test_errors_are_a_line_and_a_status(
    coterie: Call, configured: Path, words: list[str], said: str, status: int
) -> None:
    done = coterie(*words)
    assert done.returncode == status
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to_is_named(coterie: Call, configured: Path) -> None:
    locked = configured / "locked"
    locked.mkdir(mode=0o500)
    done = coterie("run", "run.toml", "--out", "locked/run")
    assert done.returncode == 1
    assert "cannot be written" in done.stderr


def test_the_demonstration_tells_what_it_saw(coterie: Call, tmp_path: Path) -> None:
    done = coterie("demo", "--out", "runs")
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("k-means, pooled", "k-means, a client alone", "no row had to move", "stayed"):
        assert words in done.stdout
    home = tmp_path / "runs" / "demo"
    assert (home / "report.html").stat().st_size > 10_000
    for scene in ("synthetic", "digits"):
        assert (home / scene / "result.parquet").exists()


def test_the_demonstration_can_be_quiet_and_repeated(coterie: Call, tmp_path: Path) -> None:
    for _ in range(2):
        done = coterie("demo", "--out", "runs", "--quiet")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "runs" / "demo-2" / "report.html").exists()

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from coterie.errors import InputError, RunFolderError
from coterie.experiments.folder import RunFolder
from coterie.report.reading import read_runs
from report.folders import CLASSES, HOSTILE


def test_a_finished_run_is_read_whole(demo: Path) -> None:
    (run,) = read_runs([demo])
    lines = [json.loads(line) for line in (demo / "rounds.jsonl").read_text().splitlines()]
    assert run.name == "digits"
    assert run.algorithm == "FedMGS"
    assert run.finished
    assert (run.facts.n_samples, run.facts.n_features, run.facts.n_clients) == (1797, 64, 20)
    assert run.facts.n_bytes == 1797 * 64 * 8
    assert run.facts.image_shape == (8, 8)
    assert len(run.exchanges) == len(lines)
    assert run.n_rounds == lines[-1]["round"]
    assert run.traffic.up == sum(line["bytes_up"] for line in lines)
    assert run.traffic.framing_down == sum(line["framing_down"] for line in lines)
    assert run.seconds == pytest.approx(sum(line["seconds"] for line in lines))
    assert run.means is not None
    assert run.means.shape == (10, 64)


def test_measures_gather_objective_metrics_and_evaluation(demo: Path) -> None:
    (run,) = read_runs([demo])
    assert not run.exchanges[0].measures  # nothing is known before the first centers
    rounds = [e for e in run.exchanges if e.record.phase == "round"]
    assert {"objective", "accuracy", "penalty", "orthogonality"} <= set(rounds[0].measures)


def test_labels_are_positions_in_lists_of_names(hostile: Path) -> None:
    (run,) = read_runs([hostile])
    result = RunFolder.open(hostile).read_result()
    assert run.labels is not None
    assert run.labels.classes is not None
    ids = np.array(run.labels.client_ids)[run.labels.clients]
    classes = np.array(run.labels.class_names)[run.labels.classes]
    np.testing.assert_array_equal(ids, result["client"])
    np.testing.assert_array_equal(classes, result["truth"])
    assert set(run.labels.client_ids) == set(HOSTILE)
    assert set(run.labels.class_names) == set(CLASSES)
    assert run.labels.n_clusters == 3


def test_class_names_and_feature_names_come_from_the_environment(
    demo: Path, tmp_path: Path
) -> None:
    copy = _copy(demo, tmp_path)
    environment = json.loads((copy / "environment.json").read_text())
    environment["data"]["class_names"] = [f"digit {k}" for k in range(10)]
    environment["data"]["feature_names"] = [f"pixel {j}" for j in range(64)]
    (copy / "environment.json").write_text(json.dumps(environment))
    (run,) = read_runs([copy])
    assert run.labels is not None
    assert run.labels.class_names[3] == "digit 3"
    assert run.facts.feature_names[63] == "pixel 63"
    assert read_runs([demo])[0].facts.feature_names[63] == "feature 63"


def test_an_unfinished_run_has_no_labels(unfinished: Path) -> None:
    (run,) = read_runs([unfinished])
    assert not run.finished
    assert run.labels is None
    assert run.means is None
    assert len(run.exchanges) == 6


def test_numbers_that_are_not_finite_are_left_out(unfinished: Path, tmp_path: Path) -> None:
    copy = _copy(unfinished, tmp_path)
    lines = (copy / "rounds.jsonl").read_text().splitlines()
    last = json.loads(lines[-1]) | {"objective": float("nan")}
    (copy / "rounds.jsonl").write_text("\n".join([*lines[:-1], json.dumps(last)]) + "\n")
    (run,) = read_runs([copy])
    assert "objective" in run.exchanges[-2].measures
    assert "objective" not in run.exchanges[-1].measures


def test_names_tell_runs_apart(demo: Path, hostile: Path, tmp_path: Path) -> None:
    twin = _copy(demo, tmp_path)
    assert [run.name for run in read_runs([demo, hostile])] == ["digits", "run <i>one"]
    assert [run.name for run in read_runs([demo, twin])] == [str(demo), str(twin)]
    assert len(read_runs([demo, demo, demo / ".." / "digits"])) == 1


def test_no_folder_is_an_error() -> None:
    with pytest.raises(InputError, match="no run folder was given"):
        read_runs([])


def test_a_folder_that_is_no_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="is not the folder of a run"):
        read_runs([tmp_path])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rounds.jsonl", b"{nonsense\n"),
        ("rounds.jsonl", b"{}\n"),
        ("rounds.jsonl", b"[1, 2]\n"),
        ("rounds.jsonl", b"\xff\xfe\n"),
        ("config.toml", b"= nothing"),
        ("config.toml", b"algorithm = 3"),
        ("environment.json", b"{}"),
        ("environment.json", b"[]"),
        ("comparison.json", b'{"title": "only"}'),
        ("result.parquet", b"PAR1 but not really"),
        ("state/model.safetensors", b"\x00" * 40),
    ],
)
def test_damaged_files_are_errors_that_name_them(
    demo: Path, tmp_path: Path, name: str, content: bytes
) -> None:
    copy = _copy(demo, tmp_path)
    (copy / name).write_bytes(content)
    with pytest.raises(RunFolderError, match=Path(name).name.replace(".", r"\.")):
        read_runs([copy])


def test_a_result_without_its_columns_is_an_error(demo: Path, tmp_path: Path) -> None:
    copy = _copy(demo, tmp_path)
    RunFolder.open(copy).write_result({"row": np.arange(3)})
    with pytest.raises(RunFolderError, match=r"result\.parquet.*client"):
        read_runs([copy])


def _copy(folder: Path, into: Path) -> Path:
    return Path(shutil.copytree(folder, into / folder.name))

"""Run folders: whole whatever happens to them, and clear about what is wrong with them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from coterie.errors import CheckpointError, RunFolderError
from coterie.experiments.config import make_config
from coterie.experiments.folder import CHECKPOINT, ROUNDS, RunFolder
from coterie.protocol import State
from coterie.rounds import Checkpoint

CONFIG = make_config({"data": {"name": "digits"}, "algorithm": {"name": "FedMGS"}})


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", CONFIG, {"run": "abc"})


def checkpoint(step: int) -> Checkpoint:
    state = State("round", step, {"centers": np.arange(6.0).reshape(2, 3) + step})
    return Checkpoint(state, step, {"rows.memberships": np.eye(4), "place": np.arange(4)})


def test_a_checkpoint_comes_back_as_it_was(folder: RunFolder) -> None:
    assert folder.load_checkpoint("abc") is None
    folder.save_checkpoint(checkpoint(3), "abc")
    folder.save_checkpoint(checkpoint(4), "abc")
    back = folder.load_checkpoint("abc")
    assert back is not None
    assert (back.step, back.state.phase, back.state.round) == (4, "round", 4)
    for name, array in checkpoint(4).state.arrays.items():
        np.testing.assert_array_equal(back.state[name], array)
    for name, array in checkpoint(4).engine.items():
        np.testing.assert_array_equal(back.engine[name], array)


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "garbage"])
def test_a_damaged_checkpoint_is_never_taken(folder: RunFolder, harm: str) -> None:
    folder.save_checkpoint(checkpoint(3), "abc")
    path = folder.path / CHECKPOINT
    data = bytearray(path.read_bytes())
    if harm == "flip":
        data[-3] ^= 1
    path.write_bytes(
        {"flip": bytes(data), "cut": bytes(data[:-8]), "empty": b"", "garbage": b"{}" * 99}[harm]
    )
    with pytest.raises(CheckpointError, match="damaged"):
        folder.load_checkpoint("abc")


def test_a_checkpoint_of_another_run_is_refused(folder: RunFolder) -> None:
    folder.save_checkpoint(checkpoint(3), "other")
    with pytest.raises(CheckpointError, match="belongs to run 'other'"):
        folder.load_checkpoint("abc")


def test_a_write_that_dies_leaves_the_old_file(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.save_checkpoint(checkpoint(3), "abc")

    def die(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", die)
    with pytest.raises(RunFolderError, match="No space left"):
        folder.save_checkpoint(checkpoint(4), "abc")
    monkeypatch.undo()
    back = folder.load_checkpoint("abc")
    assert back is not None
    assert back.step == 3


def test_a_record_cut_short_by_a_crash_is_left_out(folder: RunFolder) -> None:
    folder.append_round({"step": 0})
    folder.append_round({"step": 1})
    with (folder.path / ROUNDS).open("a") as file:
        file.write('{"step": 2, "obj')
    assert folder.rounds() == [{"step": 0}, {"step": 1}]


def test_a_record_that_is_none_is_named_with_its_line(folder: RunFolder) -> None:
    (folder.path / ROUNDS).write_text('{"step": 0}\nnonsense\n')
    with pytest.raises(RunFolderError, match="line 2"):
        folder.rounds()


def test_a_folder_that_holds_something_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(RunFolderError, match="not an empty folder"):
        RunFolder.create(tmp_path, CONFIG, {})
    assert (tmp_path / "mine.txt").read_text() == "keep"


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(RunFolderError):
        RunFolder.create(tmp_path / "run", CONFIG, {})


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot be written"):
        RunFolder.create(tmp_path / "file" / "run", CONFIG, {})


def test_something_else_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"has no config\.toml"):
        RunFolder.open(tmp_path)


def test_columns_come_back(folder: RunFolder) -> None:
    assert not folder.finished
    columns = {
        "row": np.arange(3),
        "client": np.array(["a", "b", "a"]),
        "label": np.array([1, 0, 1]),
    }
    folder.write_result(columns)
    assert RunFolder.open(folder.path).finished
    back = folder.read_result()
    for name, column in columns.items():
        assert back[name].tolist() == column.tolist()

"""The folder of a run: all that is needed to read it, report on it, and go on with it.

::

    config.toml        the configuration, resolved
    environment.json   versions, machine, the data's shape and fingerprint
    rounds.jsonl       one record an exchange, flushed
    state/             the last checkpoint and, at the end, the model; written atomically
    result.parquet     row, client, label, and the true label where it is known
    comparison.json    what other methods reach on the same rows, where someone compared
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coterie import codec
from coterie.backend import Array, Arrays
from coterie.errors import CheckpointError, ProtocolError, RunFolderError
from coterie.experiments.config import Config, load_config
from coterie.protocol import State
from coterie.rounds import Checkpoint

CONFIG = "config.toml"
ENVIRONMENT = "environment.json"
ROUNDS = "rounds.jsonl"
RESULT = "result.parquet"
COMPARISON = "comparison.json"
CHECKPOINT = "state/checkpoint.safetensors"
MODEL = "state/model.safetensors"


class RunFolder:
    """A run's folder; `create` a new one or `open` one that is there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, config: Config, environment: Mapping[str, Any]) -> RunFolder:
        """Make the folder of a new run; one that holds something is refused."""
        with _naming(path, "written"):
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise RunFolderError(
                    f"{str(path)!r} exists and is not an empty folder; give another --out, or "
                    "--resume to go on with the run that is there"
                )
            (path / "state").mkdir(parents=True, exist_ok=True)
        folder = cls(path)
        folder.write_text(CONFIG, config.to_toml())
        folder.write_json(ENVIRONMENT, environment)
        folder.keep_rounds([])
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The folder of a run that has begun."""
        missing = [name for name in (CONFIG, ENVIRONMENT, ROUNDS) if not (path / name).is_file()]
        if missing:
            raise RunFolderError(
                f"{str(path)!r} is not the folder of a run: it has no {missing[0]}; give the --out "
                "of a `coterie run`"
            )
        return cls(path)

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.path / RESULT).is_file()

    def config(self) -> Config:
        """The configuration, resolved."""
        return load_config(self.path / CONFIG)

    # -- rounds -----------------------------------------------------------------------------------

    def rounds(self) -> list[dict[str, Any]]:
        """The records so far. A last line that a crash cut short is not one of them."""
        records = []
        with _naming(self.path / ROUNDS, "read"):
            text = (self.path / ROUNDS).read_bytes().decode(errors="replace")
            lines = text.splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            if not line.endswith("\n"):
                break
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise RunFolderError(
                    f"{str(self.path / ROUNDS)!r}, line {number} is not a record: {error}"
                ) from error
        return records

    def keep_rounds(self, records: list[dict[str, Any]]) -> None:
        """Replace the records, atomically."""
        self.write_text(ROUNDS, "".join(json.dumps(r) + "\n" for r in records))

    def append_round(self, record: Mapping[str, Any]) -> None:
        """Add a record; it is on its way to the disk when this returns."""
        with (
            _naming(self.path / ROUNDS, "written"),
            (self.path / ROUNDS).open("a", encoding="utf-8") as file,
        ):
            file.write(json.dumps(record) + "\n")

    # -- state ------------------------------------------------------------------------------------

    def save_checkpoint(self, checkpoint: Checkpoint, run: str) -> None:
        """Keep where the run stands, in place of the checkpoint before."""
        arrays = {f"state.{name}": a for name, a in checkpoint.state.arrays.items()}
        arrays |= {f"engine.{name}": a for name, a in checkpoint.engine.items()}
        text = {
            "run": run,
            "phase": checkpoint.state.phase,
            "round": str(checkpoint.state.round),
            "step": str(checkpoint.step),
        }
        self._save(CHECKPOINT, arrays, text)

    def load_checkpoint(self, run: str) -> Checkpoint | None:
        """Where the run stands; None if it has not come to its first checkpoint."""
        if not (self.path / CHECKPOINT).exists():
            return None
        arrays, text = self._load(CHECKPOINT)
        if text.get("run") != run:
            raise CheckpointError(
                f"{str(self.path / CHECKPOINT)!r} belongs to run {text.get('run')!r}, not to "
                f"{run!r}; it was copied here from another folder"
            )
        split: dict[str, dict[str, Array]] = {"state": {}, "engine": {}}
        for full, array in arrays.items():
            kind, _, name = full.partition(".")
            split[kind][name] = array
        state = State(text["phase"], int(text["round"]), split["state"])
        return Checkpoint(state, int(text["step"]), split["engine"])

    def save_model(self, arrays: Arrays) -> None:
        """Keep what the run found."""
        self._save(MODEL, arrays, {})

    def load_model(self) -> dict[str, Array]:
        """What the run found."""
        return self._load(MODEL)[0]

    def _save(self, name: str, arrays: Arrays, text: Mapping[str, str]) -> None:
        data = codec.pack(arrays, {**text, "checksum": codec.checksum(arrays)})
        with _naming(self.path / name, "written"):
            _replace(self.path / name, data)

    def _load(self, name: str) -> tuple[dict[str, Array], dict[str, str]]:
        path = self.path / name
        with _naming(path, "read"):
            data = path.read_bytes()
        try:
            arrays, text = codec.unpack(data)
        except ProtocolError as error:
            raise CheckpointError(_damaged(path, str(error))) from error
        if text.get("checksum") != codec.checksum(arrays):
            raise CheckpointError(_damaged(path, "its checksum does not fit its contents"))
        return arrays, text

    # -- files ------------------------------------------------------------------------------------

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file, atomically."""
        self.write_text(name, json.dumps(value, indent=2) + "\n")

    def read_json(self, name: str) -> Any:
        """Read a JSON file of the folder."""
        with _naming(self.path / name, "read"):
            text = (self.path / name).read_text(encoding="utf-8")
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise RunFolderError(f"{str(self.path / name)!r} is not JSON: {error}") from error

    def write_text(self, name: str, text: str) -> None:
        """Write a text file, atomically."""
        with _naming(self.path / name, "written"):
            _replace(self.path / name, text.encode())

    def write_result(self, columns: Mapping[str, Array]) -> None:
        """Write the labels: the last thing that a run writes."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        partial = self.path / f"{RESULT}.partial"
        with _naming(self.path / RESULT, "written"):
            pq.write_table(pa.table(dict(columns)), partial)
            partial.replace(self.path / RESULT)

    def read_result(self) -> dict[str, Array]:
        """The labels, by column."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with _naming(self.path / RESULT, "read"):
                table = pq.read_table(self.path / RESULT)
        except pa.ArrowInvalid as error:
            raise RunFolderError(f"{str(self.path / RESULT)!r} is damaged: {error}") from error
        return {name: table[name].to_numpy() for name in table.column_names}


def _replace(path: Path, data: bytes) -> None:
    """Write a file so that whoever looks sees the old one whole or the new one whole."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _damaged(path: Path, detail: str) -> str:
    return (
        f"checkpoint {str(path)!r} is damaged: {detail}; start the run again in another folder, "
        "its configuration is beside it"
    )


@contextlib.contextmanager
def _naming(path: Path, verb: str) -> Iterator[None]:
    """Turn an error of the operating system into one that names the file and what to do."""
    try:
        yield
    except RunFolderError:
        raise
    except OSError as error:
        raise RunFolderError(
            f"{str(path)!r} cannot be {verb}: {error.strerror or error}; check the path, its "
            "permissions and the space that is left"
        ) from error

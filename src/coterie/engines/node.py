"""One client on its own machine: its rows, its private state by step, its half of the algorithm.

A node answers requests, which are bytes, with replies, which are bytes. Requests are idempotent:
the algorithm's halves are pure, so the same request finds the same private state and gives the
same reply. Private state is *tentative*: every step's is kept beside the last, and the next
request names the step whose reply the server counted. A lost reply is then as good as a client
that was never asked.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from coterie import codec
from coterie.block import Block, Private
from coterie.errors import InputTypeError, ProtocolError
from coterie.protocol import Algorithm
from coterie.random import Stream


class Node:
    """A client's half, driven by messages.

    Parameters
    ----------
    algorithm : Algorithm
    block : Block
        The client's rows, as a block of one.
    versions : Versions
        Where its private state is kept.
    """

    def __init__(self, algorithm: Algorithm, block: Block, versions: Versions) -> None:
        self._algorithm = algorithm
        self._block = block
        self._versions = versions

    def handle(self, message: bytes) -> bytes:
        """The reply to a request."""
        arrays, text = codec.unpack(message)
        header = codec.Header.parse(text)
        request, weight = codec.request_from(header, arrays)
        phase = self._algorithm.phases.get(request.phase)
        if phase is None:
            raise ProtocolError(f"phase {request.phase!r} is unknown to this client's algorithm")
        block = self._block.with_weights(np.array([weight]))
        private = Private()
        if phase.private and header.counted < 0:
            private = self._algorithm.join(request, block, Stream(request.seed, 0, "join"))
        elif phase.private:
            private = self._versions.load(header.run, header.counted)
        rng = Stream(request.seed, request.step, "client")
        reply, private = self._algorithm.client(request, block, private, rng)
        if phase.private:
            self._versions.save(header, private)
        return codec.pack(codec.encode_reply(reply), header.text())


class Versions:
    """Private state by step, in a folder: a restarted process goes on where it was."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, run: str, step: int) -> Private:
        """The state as it was after `step`."""
        path = self._path(run, step)
        if not path.exists():
            raise ProtocolError(
                f"private state of run {run!r} after step {step} is not here; the request is late, "
                "or belongs to a run of which this client kept nothing"
            )
        arrays, _ = codec.unpack(path.read_bytes())
        return codec.private_from(arrays)

    def save(self, header: codec.Header, private: Private) -> None:
        """Keep the state after this step, and of the older ones those that may be asked for."""
        path = self._path(header.run, header.step)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_bytes(codec.pack(codec.private_arrays(private)))
        partial.replace(path)
        wanted = {header.counted, header.durable}
        for other in path.parent.glob("*.private"):
            step = int(other.stem)
            if step < header.step and step not in wanted:
                other.unlink()

    def _path(self, run: str, step: int) -> Path:
        folder = f"run-{quote(run, safe='')}"  # a name from the network must not lead elsewhere
        return self._folder / folder / f"{step}.private"


# -- an algorithm as text: what a process needs to build its own ----------------------------------


def describe(value: Any) -> Any:
    """A dataclass, and those in it, as plain values that JSON can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        if kind.__module__ == "__main__" or "." in kind.__qualname__:
            raise InputTypeError(
                f"{kind.__qualname__} of module {kind.__module__!r} was given to a process of its "
                "own, which cannot import it; expected a class at the top of an importable module"
            )
        fields = [f.name for f in dataclasses.fields(value) if f.init]
        parameters = {name: describe(getattr(value, name)) for name in fields}
        return {"type": f"{kind.__module__}:{kind.__qualname__}", "parameters": parameters}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [describe(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputTypeError(
        f"a hyper-parameter of type {type(value).__name__} was given to a process of its own; "
        "expected numbers, strings, None, tuples of them, or dataclasses"
    )


def build(description: Any) -> Any:
    """The opposite of `describe`. Only for descriptions from this machine's own files."""
    if not isinstance(description, Mapping):
        return tuple(map(build, description)) if isinstance(description, list) else description
    module, _, name = description["type"].partition(":")
    kind = getattr(importlib.import_module(module), name)
    return kind(**{key: build(value) for key, value in description["parameters"].items()})

"""The process of one client: ``python -m coterie.engines.worker FOLDER FD``.

`FOLDER` holds the client's own files: its rows and the algorithm that it runs. `FD` is the end of
a socket over which requests come and replies go, as bytes.
"""

from __future__ import annotations

import json
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import numpy as np
from scipy import sparse

from coterie import codec
from coterie.backend import Array
from coterie.block import Block
from coterie.engines.node import Node, Versions, build, describe
from coterie.protocol import Algorithm

SETTINGS = "node.json"
ROWS = "rows.safetensors"


def write_folder(folder: Path, algorithm: Algorithm, x: Any, key: int, extra: Any) -> None:
    """Put a client's own files into its folder."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    settings = {"algorithm": describe(algorithm), "key": key, "shape": list(x.shape)}
    (folder / SETTINGS).write_text(json.dumps(settings))
    rows = {f"extra.{name}": column for name, column in extra.items()}
    if sparse.issparse(x):
        rows |= {"data": x.data, "indices": x.indices, "indptr": x.indptr}
    else:
        rows["x"] = np.asarray(x)
    (folder / ROWS).write_bytes(codec.pack(rows))


def read_folder(folder: Path) -> Node:
    """A node from a client's own files."""
    settings = json.loads((folder / SETTINGS).read_text())
    arrays, _ = codec.unpack((folder / ROWS).read_bytes())
    block = Block(
        _rows(arrays, tuple(settings["shape"])),
        np.array([0, settings["shape"][0]]),
        keys=np.array([settings["key"]], dtype=np.int64),
        extra={k.removeprefix("extra."): a for k, a in arrays.items() if k.startswith("extra.")},
        threads=1,
    )
    return Node(build(settings["algorithm"]), block, Versions(folder))


def _rows(arrays: dict[str, Array], shape: tuple[int, ...]) -> Any:
    if "x" in arrays:
        return arrays["x"]
    return sparse.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)


def serve(node: Node, connection: Connection) -> None:
    """Answer until the other end hangs up.

    Requests are read by a thread of their own: both ends would wait for ever if each had more to
    say than the socket holds, and nobody listened.
    """
    requests: SimpleQueue[bytes | None] = SimpleQueue()
    Thread(target=_listen, args=(connection, requests), daemon=True).start()
    while (message := requests.get()) is not None:
        try:
            reply = node.handle(message)
        except Exception as error:
            words = {"error": type(error).__name__, "message": str(error)}
            reply = codec.pack({}, codec.unpack(message)[1] | words)
        try:
            connection.send_bytes(reply)
        except (BrokenPipeError, ConnectionResetError):
            return


def _listen(connection: Connection, requests: SimpleQueue[bytes | None]) -> None:
    """Put requests in line, and None at the end."""
    try:
        while True:
            requests.put(connection.recv_bytes(codec.MAX_MESSAGE))
    except (EOFError, OSError):
        requests.put(None)


if __name__ == "__main__":
    serve(read_folder(Path(sys.argv[1])), Connection(int(sys.argv[2])))

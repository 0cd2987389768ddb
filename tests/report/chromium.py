"""A headless Chromium for tests, over the DevTools protocol's pipe; the standard library is enough.

Messages are JSON that ends with a zero byte. Chromium reads them from file descriptor 3 and writes
its own to 4, so there is no port to find free.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE = 60.0  # seconds that an answer may take on a busy machine

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
    "--remote-debugging-pipe",
)


class Chromium:
    """One page of a browser, and all that it told about itself."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._waiting = b""
        self._sent = 0
        self._session: str | None = None
        self.events: list[tuple[str, dict[str, Any]]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol; events that come before its answer are kept."""
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while (answer := self._receive(until)).get("id") != self._sent:
            self._keep(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, path: Path) -> None:
        """Load a file, with all its scripts run when this returns."""
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        until = time.monotonic() + PATIENCE
        while not self.of("Page.loadEventFired"):
            self._keep(self._receive(until))

    def evaluate(self, script: str) -> Any:
        """The value of an expression on the page, awaited if it is a promise."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind since the page was opened."""
        return [params for method, params in self.events if method == kind]

    def _keep(self, message: dict[str, Any]) -> None:
        if "method" in message:
            self.events.append((message["method"], message["params"]))

    def _receive(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._waiting:
            left = max(until - time.monotonic(), 0)
            ready, _, _ = select.select([self._reads], [], [], left)
            piece = os.read(self._reads, 1 << 16) if ready else b""
            if not piece:
                raise RuntimeError("Chromium does not answer" if not ready else "Chromium ended")
            self._waiting += piece
        text, _, self._waiting = self._waiting.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message


@contextlib.contextmanager
def chromium(profile: Path, flags: Sequence[str] = ()) -> Iterator[Chromium]:
    """Start a browser with a fresh profile; it and its children have ended afterwards."""
    to_read, writes = os.pipe()
    reads, to_write = os.pipe()
    script = f'exec "$@" 3<&{to_read} 4>&{to_write}'
    process = subprocess.Popen(
        [
            *("bash", "-c", script, "chromium"),
            *(str(PROGRAM), *FLAGS, f"--user-data-dir={profile}", *flags),
        ],
        pass_fds=(to_read, to_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(to_read)
    os.close(to_write)
    try:
        yield Chromium(reads, writes)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its own group: it leads a session
        process.wait()
        os.close(reads)
        os.close(writes)

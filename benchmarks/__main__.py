"""``python -m benchmarks``: run them all."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import fedmgs, overhead
from coterie.backend import available_threads

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Measure, print a table, write JSON."""
    measured = [m for part in (overhead, fedmgs) for m in part.measure()]
    table = Table("what", "setting", "ms", "against", "ms ", "ratio")
    for m in measured:
        table.add_row(
            m.name,
            m.setting,
            f"{m.seconds * 1e3:.2f}",
            m.against,
            f"{m.other * 1e3:.2f}",
            f"{m.ratio:.2f}",
        )
    Console(width=140).print(table)
    RESULTS.mkdir(exist_ok=True)
    machine = f"{platform.machine()}, {available_threads()} threads, NumPy {np.__version__}"
    results = {"machine": machine, "measured": [asdict(m) for m in measured]}
    (RESULTS / "results.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""Every Python block and every command of the pages runs, page by page, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docs import Page, pages

WITH_PYTHON = [p for p in pages() if p.blocks("python")]
WITH_COMMANDS = [p for p in pages() if any("coterie" in code for code in p.blocks("console"))]


def run(command: list[str], folder: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "COTERIE_DATA": str(folder / "data")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page: Page, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n\n".join(page.blocks("python")), encoding="utf-8")
    run([sys.executable, "-W", "error", str(script)], tmp_path)


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.name)
def test_the_commands_of_a_page_run(page: Page, tmp_path: Path) -> None:
    lines = "\n".join(page.blocks("console")).splitlines(keepends=True)
    script = tmp_path / "page.sh"
    ours = "".join(line for line in lines if not line.startswith("make "))
    script.write_text("set -eu\n" + ours, encoding="utf-8")
    run(["bash", str(script)], tmp_path)

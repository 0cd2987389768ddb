"""The pages of the documentation, and the code blocks in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#]+)(?:#[^)]*)?\)")


@dataclass(frozen=True)
class Page:
    """A Markdown page."""

    path: Path

    @property
    def name(self) -> str:
        """Its path from the root of the project."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        """What it says."""
        return self.path.read_text(encoding="utf-8")

    def blocks(self, language: str) -> list[str]:
        """The code blocks of a language, in order."""
        return [code for kind, code in BLOCK.findall(self.text) if kind == language]

    def links(self) -> list[str]:
        """Links to other files."""
        return LINK.findall(BLOCK.sub("", self.text))


def pages() -> list[Page]:
    """All pages that people read."""
    docs = (ROOT / "docs").rglob("*.md")
    found = [*ROOT.glob("*.md"), *(p for p in docs if "_build" not in p.parts)]
    return [Page(path) for path in sorted(found)]

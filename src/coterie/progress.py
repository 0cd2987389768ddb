"""What a person sees of a run while it runs: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

EVERY = 10  # rounds between plain lines


class OnRound(Protocol):
    """Is told of every record."""

    def __call__(self, record: Mapping[str, Any]) -> None: ...  # noqa: D102


def words(record: Mapping[str, Any]) -> str:
    """A record in a few words."""
    parts = [f"round {record['round']}" if record["phase"] == "round" else record["phase"]]
    if record["objective"] is not None:
        parts.append(f"objective {record['objective']:.5g}")
    if "evaluation" in record:
        parts.append(f"accuracy {record['evaluation']['accuracy']:.3f}")
    parts.append(f"{record['replied']} of {record['asked']} clients")
    return ", ".join(parts)


@contextmanager
def watching(console: Console, title: str, most_rounds: int, *, quiet: bool) -> Iterator[OnRound]:
    """Show a run's progress; yields what is to be told of every record."""
    if quiet:
        yield _say_nothing
    elif console.is_terminal:
        with _bar(console) as progress:
            task = progress.add_task(title, total=most_rounds, words="starting")

            def advance(record: Mapping[str, Any]) -> None:
                progress.update(task, completed=record["round"], words=words(record))

            yield advance
    else:

        def line(record: Mapping[str, Any]) -> None:
            if record["round"] % EVERY == 0:
                console.print(f"{title}: {words(record)}", highlight=False)

        yield line


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[words]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def _say_nothing(record: Mapping[str, Any]) -> None:
    """Quiet."""

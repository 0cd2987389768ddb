"""Check that what the pages say is so: commands exist, code compiles, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections.abc import Iterator

import click
import typer

from coterie.cli import app
from coterie.errors import CoterieError
from coterie.estimators import ESTIMATORS
from coterie.experiments.config import make_config
from coterie.papers import PAPERS
from docs import ROOT, Page, pages


def problems(page: Page) -> Iterator[str]:
    """What is wrong on a page."""
    for link in page.links():
        if not (page.path.parent / link).exists():
            yield f"link to {link}, which is not there"
    for code in page.blocks("python"):
        try:
            compile(code, page.name, "exec")
        except SyntaxError as error:
            yield f"Python that does not compile: {error}"
    for code in page.blocks("toml"):
        try:
            make_config(tomllib.loads(code))
        except CoterieError as error:
            yield f"a configuration that is refused: {error}"
    for line in commands(page):
        yield from wrong_command(line)


def commands(page: Page) -> Iterator[str]:
    """Lines of the console blocks, without here-documents."""
    for code in page.blocks("console"):
        yield from re.sub(r"<<'(\w+)'\n.*?^\1$", "", code, flags=re.M | re.S).splitlines()


def wrong_command(line: str) -> Iterator[str]:
    """What is wrong with a command line of ours."""
    for part in line.split(";"):
        words = shlex.split(part, comments=True)
        if words[:1] == ["make"] and words[1] not in targets():
            yield f"`{part.strip()}`: the Makefile has no such target"
        if words[:1] == ["coterie"]:
            yield from wrong_call(words[1:])


def targets() -> set[str]:
    """The targets of the Makefile."""
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


def wrong_call(words: list[str]) -> Iterator[str]:
    """What click has against a call of `coterie`."""
    command: click.Command = typer.main.get_command(app)
    context = click.Context(command)
    while isinstance(command, click.Group) and words:
        name, *words = words
        found = command.get_command(context, name)
        if found is None:
            yield f"`coterie ... {name}`: there is no such command"
            return
        command = found
        context = click.Context(command, parent=context)
    try:
        command.make_parser(context).parse_args(list(words))
    except click.ClickException as error:
        yield f"`coterie ... {' '.join(words)}`: {error.format_message()}"


def wrong_table() -> Iterator[str]:
    """Whether the README's table of algorithms is that of `coterie.papers`."""
    rows = re.findall(
        r"^\| (`.*?) \| .* \| (ready|planned) \|$", (ROOT / "README.md").read_text(), re.M
    )
    said = {(name, state) for names, state in rows for name in re.findall(r"`(\w+)`", names)}
    true = {(n, "ready") for p in PAPERS for n in p.ready}
    true |= {(n, "planned") for p in PAPERS for n in p.planned}
    for name, state in sorted(said ^ true):
        where = "README.md" if (name, state) in said else "coterie.papers"
        yield f"{name} is {state} in {where} only"
    for name in sorted({n for n, state in true if state == "ready"} ^ set(ESTIMATORS)):
        yield f"{name}: ready and in coterie.estimators are not the same"


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    found = [f"{page.name}: {problem}" for page in pages() for problem in problems(page)]
    found += [f"README.md: {problem}" for problem in wrong_table()]
    print("\n".join(found) or f"{len(pages())} pages say what is so")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())

"""The command line: ``coterie demo``, ``run``, ``report``, ``list``, ``data``."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from coterie._version import __version__
from coterie.errors import CoterieError, InputError

app = typer.Typer(
    help="Clustering where the data may not move.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Data sets: what there is, and getting it.", no_args_is_help=True)
app.add_typer(data_app, name="data")

out = Console(soft_wrap=True)
err = Console(stderr=True, soft_wrap=True)

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


class Kind(StrEnum):
    """What there is to list."""

    algorithms = "algorithms"
    datasets = "datasets"
    papers = "papers"


def main() -> None:
    """Run the command line; errors of coterie's own are a line, not a traceback."""
    try:
        app()
    except CoterieError as error:
        err.print(f"[bold red]error:[/] {_plain(str(error))}", highlight=False)
        raise SystemExit(2 if isinstance(error, InputError) else 1) from None


def _plain(text: str) -> str:
    """Text that rich does not take for markup."""
    return text.replace("[", r"\[")


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(__version__, highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Clustering where the data may not move."""


# -- running --------------------------------------------------------------------------------------


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--out", help="Where the run folders go.")] = Path("runs"),
    quiet: Quiet = False,
) -> None:
    """Cluster two data sets where they are, compare, and write a report."""
    from coterie.experiments.demo import SCENES, play
    from coterie.experiments.folder import COMPARISON
    from coterie.progress import watching
    from coterie.report import build

    home = _free(folder / "demo")
    played = []
    for scene in SCENES:
        most = scene.config.algorithm.max_rounds
        with watching(out, scene.name, most, quiet=quiet) as on_round:
            run_folder = play(scene, home / scene.name, on_round)
        played.append(run_folder.path)
        if not quiet:
            _show_scene(run_folder.read_json(COMPARISON), run_folder.rounds(), run_folder)
    page = build(played, home / "report.html")
    if not quiet:
        out.print(f"report  {page}\nruns    {home}", highlight=False)


def _show_scene(comparison: dict[str, Any], rounds: list[dict[str, Any]], folder: Any) -> None:
    from coterie.experiments.folder import ENVIRONMENT

    table = Table(title=comparison["title"], title_justify="left", title_style="bold")
    table.add_column("method")
    table.add_column("accuracy", justify="right")
    table.add_column("how")
    for method in comparison["methods"]:
        table.add_row(method["name"], f"{method['accuracy']:.3f}", method["words"])
    data = folder.read_json(ENVIRONMENT)["data"]
    sent = sum(r["bytes_up"] + r["framing_up"] for r in rounds)
    out.print(table)
    out.print(f"{comparison['verdict']}", highlight=False)
    out.print(
        f"The {data['n_samples']:,} rows stayed with their {data['n_clients']} clients. What left "
        f"them were sums and local means, {sent / 1e6:.1f} MB in {rounds[-1]['round']} rounds.\n",
        highlight=False,
    )


@app.command()
def run(
    config: Annotated[
        Path | None, typer.Argument(help="A TOML file; may be left out with --resume.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a key; may be repeated."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="The run's folder; by default a new one in runs/.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run that is in --out.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Run a configuration into a folder. Ctrl-C saves the run; --resume goes on with it."""
    from coterie.experiments.runner import run as run_config
    from coterie.progress import watching

    resolved, place = _resolve(config, changes or [], folder, resume)
    name = f"{resolved.algorithm.name} on {resolved.data.name or resolved.data.path}"
    with (
        watching(out, name, resolved.algorithm.max_rounds, quiet=quiet) as on_round,
        _stopping() as stop,
    ):
        done = run_config(resolved, place, resume=resume, on_round=on_round, stop=stop)
    if not done.finished:
        err.print(f"stopped and saved; go on with: coterie run --resume --out {place}")
        raise typer.Exit(130)
    if not quiet:
        last = done.rounds()[-1]
        out.print(f"{last['round']} rounds, in {place}", highlight=False)
        out.print(f"for a report: coterie report {place}", highlight=False)


def _resolve(config: Path | None, changes: list[str], folder: Path | None, resume: bool) -> Any:
    """The configuration and the folder that the options mean."""
    from coterie.errors import ConfigError
    from coterie.experiments.config import load_config
    from coterie.experiments.folder import RunFolder

    if resume and folder is None:
        raise ConfigError("--resume was given without --out, the folder of the run to go on with")
    if config is not None:
        place = folder or _free(Path("runs") / config.stem)
        return load_config(config, changes), place
    if folder is None or not resume:
        raise ConfigError("no configuration was given; expected a TOML file, see `coterie run -h`")
    if changes:
        raise ConfigError("--set was given with --resume; a run goes on as it began")
    return RunFolder.open(folder).config(), folder


def _free(path: Path) -> Path:
    """The path, or the first of path-2, path-3 ... that is not there."""
    tries = [path, *(path.with_name(f"{path.name}-{n}") for n in range(2, 10_000))]
    return next(p for p in tries if not p.exists())


@contextmanager
def _stopping() -> Iterator[Any]:
    """Turn the first Ctrl-C into a wish to stop after this exchange; the second stops at once."""
    asked = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, of one or several.")],
    page: Annotated[
        Path | None, typer.Option("--output", "-o", help="By default report.html in the first.")
    ] = None,
) -> None:
    """Write a page about runs, which opens with no network."""
    from coterie.report import build

    out.print(f"report  {build(runs, page or runs[0] / 'report.html')}", highlight=False)


# -- looking --------------------------------------------------------------------------------------


@app.command("list")
def list_(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    name: Annotated[
        str | None, typer.Argument(help="With algorithms: show the parameters of this one.")
    ] = None,
) -> None:
    """List what there is: algorithms and their parameters, data sets, papers."""
    if kind is Kind.papers:
        out.print(_papers())
    elif kind is Kind.datasets:
        out.print(_datasets())
    elif name is None:
        out.print(_algorithms())
    else:
        out.print(_parameters(name))


def _papers() -> Table:
    from coterie.papers import PAPERS

    table = Table("paper", "runs here", "planned", show_lines=True)
    for paper in PAPERS:
        table.add_row(
            f"[bold]{paper.key}[/]\n{paper.authors}: {paper.title}. {paper.where}.",
            ", ".join(paper.ready) or "-",
            ", ".join(paper.planned),
        )
    return table


def _datasets() -> Table:
    from coterie.data.datasets import DATASETS, is_cached

    table = Table("data set", "what it is", "here")
    for name, entry in DATASETS.items():
        table.add_row(name, entry.description, "yes" if is_cached(name) else "no")
    return table


def _algorithms() -> Table:
    from coterie.estimators import ESTIMATORS, estimator_type

    table = Table("algorithm", "what it does")
    for name in ESTIMATORS:
        table.add_row(name, (estimator_type(name).__doc__ or "").partition("\n")[0])
    return table


def _parameters(name: str) -> Table:
    from coterie.estimators import estimator_type
    from coterie.estimators.declaration import RunParameters, all_parameters

    table = Table("parameter", "default", "type", "what it does")
    for p in all_parameters((estimator_type(name).algorithm_type, RunParameters)):
        table.add_row(p.name, _plain(repr(p.default)), _plain(p.kind), _plain(p.doc))
    return table


@data_app.command("list")
def data_list() -> None:
    """List data sets, and which are on this machine."""
    out.print(_datasets())


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="A data set of `coterie data list`.")],
    folder: Annotated[
        Path | None, typer.Option("--data-home", help="By default $COTERIE_DATA or the cache.")
    ] = None,
) -> None:
    """Get a data set, so that it loads without a network."""
    from coterie.data.datasets import fetch

    fetch(name, folder)
    out.print(f"{name} is here", highlight=False)


if __name__ == "__main__":
    main()

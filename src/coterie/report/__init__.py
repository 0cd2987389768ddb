"""A page about runs, made from their folders and from nothing else.

::

    reading     run folders -> plain dataclasses
    tallies     what there is to count: clusters by client, classes by cluster, bytes by phase
    words       sentences about runs, and `numbers` for people
    charts      figures for plotly
    pixels      rows as images
    markup      HTML that escapes what it is given; `layout` makes sections and tables of it
    summary, comparison, course, clusters, sent, settings
                the parts of the page, in the order in which they are read
    page        the parts put together with styles, scripts and figures, in one file
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coterie.errors import RunFolderError

__all__ = ["build"]


def build(folders: Sequence[Path], out: Path) -> Path:
    """Write one HTML file about one run or several.

    The file needs no network and no other file, and is the same, byte for byte, for the same
    folders.

    Parameters
    ----------
    folders : sequence of Path
        Run folders, as `coterie run` makes them; also of runs that have not finished.
    out : Path
        The file to write; one that is there is replaced.

    Returns
    -------
    out : Path

    Raises
    ------
    RunFolderError
        Where a folder is not that of a run or cannot be read, or the file cannot be written.
    """
    from coterie.report.page import page
    from coterie.report.reading import read_runs

    text = page(read_runs(folders))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(text.encode())
    except OSError as error:
        raise RunFolderError(
            f"report {str(out)!r} cannot be written: {error.strerror or error}; give the path of "
            "a file"
        ) from error
    return out

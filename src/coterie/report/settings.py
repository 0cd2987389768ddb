"""Configuration and versions, for those who want to do it again."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.report.layout import Section, for_each, wide
from coterie.report.markup import Safe, el, join
from coterie.report.reading import Run


def settings(runs: Sequence[Run]) -> Section:
    """Folded away: whoever needs it knows where to look."""
    return Section("settings", "Settings and versions", for_each(runs, _settings))


def _settings(run: Run) -> Safe:
    config = wide("Configuration", el("pre", el("code", run.config.strip())))
    listed = (join((el("dt", name), el("dd", value))) for name, value in run.versions.items())
    versions = el("dl", *listed, class_="versions")
    return join(
        (
            el("details", el("summary", "Configuration (config.toml)"), config),
            el("details", el("summary", "Versions (environment.json)"), versions),
        )
    )

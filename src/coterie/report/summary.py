"""The opening of the page: per run, in words, what was done, found, kept and sent."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.report import tallies, words
from coterie.report.layout import Section, for_each, note, row, table
from coterie.report.markup import Safe, el, join
from coterie.report.numbers import count, duration, percent, size
from coterie.report.reading import Run


def summary(runs: Sequence[Run]) -> Section:
    """All runs at a glance, if there are several, and each in words."""
    glance = _at_a_glance(runs) if len(runs) > 1 else None
    return Section(
        "in-short", "In short", join((glance, for_each(runs, _summary), note(words.caveats(runs))))
    )


def _at_a_glance(runs: Sequence[Run]) -> Safe:
    head = ("run", "algorithm", "rows", "clients", "rounds", "time", "sent up", "accuracy")
    return table("All runs at a glance", head, map(_glance, runs), "numbers")


def _glance(run: Run) -> Safe:
    score = None if run.labels is None else tallies.accuracy(run.labels)
    return row(
        run.name,
        run.algorithm,
        count(run.facts.n_samples),
        count(run.facts.n_clients),
        count(run.n_rounds),
        duration(run.seconds),
        size(run.traffic.up),
        "unfinished" if run.labels is None else "unknown" if score is None else percent(score),
    )


def _summary(run: Run) -> Safe:
    said = (
        ("What was clustered", words.clustered(run)),
        ("With what", words.method(run)),
        ("What came out", words.outcome(run)),
    )
    facts = el("dl", *(join((el("dt", k), el("dd", v))) for k, v in said), class_="facts")
    notice = None if run.finished else _how_to_go_on(run)
    return join((notice, facts, _ledger(run)))


def _how_to_go_on(run: Run) -> Safe:
    return el(
        "p",
        el("strong", "This run has not finished."),
        " What is there so far is shown. To go on with it: ",
        el("code", words.resume(run)),
        class_="notice",
    )


def _ledger(run: Run) -> Safe:
    """What stayed beside what crossed."""
    traffic = run.traffic
    return el(
        "div",
        _entry("Never left the clients", size(run.facts.n_bytes), words.stayed(run)),
        _entry(
            "Crossed the network",
            f"{size(traffic.up)} up, {size(traffic.down)} down",
            f"{words.CROSSED} {words.proportion(run)}",
        ),
        class_="ledger",
    )


def _entry(name: str, amount: str, explained: str) -> Safe:
    return el(
        "div", el("p", name, class_="label"), el("p", amount, class_="amount"), el("p", explained)
    )

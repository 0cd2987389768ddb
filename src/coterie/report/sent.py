"""What was sent, phase by phase."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.protocol import Traffic
from coterie.report import tallies
from coterie.report.layout import Section, for_each, note, row, table
from coterie.report.markup import Safe, el, join
from coterie.report.numbers import count, size
from coterie.report.reading import Run
from coterie.report.tallies import PhaseTraffic

CARRIED = {
    "measure": "Sums of squares and of magnitudes come up, and the range of the values where it "
    "is asked for: the server learns the scale.",
    "seed": "Chosen clients send centers of their own rows, and how many rows each stands for: "
    "the server makes its first centers of these.",
    "mean": "Sums of the rows and of their squares come up: the server makes its first centers "
    "of these.",
    "sums": "The first centers go down; sums over each client's rows come up.",
    "round": "Centers go down; each client's contribution to the next centers comes up.",
    "score": "The centers of all starts go down, the error of each comes up: the best is kept.",
}
HEAD = ("phase", "exchanges", "asked", "replied", "up", "down", "framing", "up per reply")


def sent(runs: Sequence[Run]) -> Section:
    """Bytes by phase."""
    intro = el(
        "p",
        "An exchange is one request down to clients and their replies up. Up and down count the "
        "numbers themselves; framing is what message and format add to them.",
    )
    return Section("sent", "What was sent", join((intro, for_each(runs, _sent))))


def _sent(run: Run) -> Safe:
    phases = tallies.traffic_by_phase(run.exchanges)
    if not phases:
        return note("Nothing has been sent yet.")
    whole = PhaseTraffic(
        "all",
        sum(found.exchanges for found in phases),
        sum(found.asked for found in phases),
        sum(found.replied for found in phases),
        sum((found.traffic for found in phases), Traffic()),
    )
    rows = [row(_name(found), *_amounts(found)) for found in phases]
    rows.append(row("all", *_amounts(whole), class_="sum"))
    return table("Bytes by phase", HEAD, rows, "numbers phases")


def _name(found: PhaseTraffic) -> Safe:
    carried = CARRIED.get(found.phase)
    return join((found.phase, None if carried is None else el("small", carried)))


def _amounts(found: PhaseTraffic) -> tuple[str, ...]:
    traffic = found.traffic
    return (
        count(found.exchanges),
        count(found.asked),
        count(found.replied),
        size(traffic.up),
        size(traffic.down),
        size(traffic.framing_up + traffic.framing_down),
        size(traffic.up / max(found.replied, 1)),
    )

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.report import build
from report.chromium import PROGRAM, Chromium, chromium
from report.folders import digits, make_run

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed"),
]

COMPLAINTS = (
    "Runtime.consoleAPICalled",
    "Runtime.exceptionThrown",
    "Log.entryAdded",
    "Page.javascriptDialogOpening",
)
MEASURES = ["objective", "accuracy", "penalty", "orthogonality"]

DRAWN = """
[...document.querySelectorAll(".chart")].map((chart) => [
  chart.dataset.chart,
  chart.querySelectorAll("svg .scatterlayer .trace path.js-line").length,
])
"""
AXES = "[...document.querySelectorAll('.chart .xtitle')].map((title) => title.textContent)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


def look(browser: Chromium, path: Path, *, width: int = 1280, scheme: str = "light") -> None:
    browser.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=900,
        deviceScaleFactor=1,
        mobile=width < 600,
    )
    prefers = {"name": "prefers-color-scheme", "value": scheme}
    browser.call("Emulation.setEmulatedMedia", features=[prefers])
    browser.open(path)


def assert_calm(browser: Chromium) -> None:
    """Nothing went to the console, and nothing was asked of a network."""
    assert {kind: browser.of(kind) for kind in COMPLAINTS} == {kind: [] for kind in COMPLAINTS}
    asked = [event["request"]["url"] for event in browser.of("Network.requestWillBeSent")]
    assert asked
    assert all(url.startswith(("file:", "data:")) for url in asked)


@pytest.mark.parametrize("width", [1280, 400])
def test_it_draws_and_does_not_complain(
    browser: Chromium, demo: Path, tmp_path: Path, width: int
) -> None:
    look(browser, build([demo], tmp_path / "report.html"), width=width)
    assert browser.evaluate(DRAWN) == [[name, 1] for name in MEASURES]
    assert browser.evaluate("[...document.images].every((image) => image.naturalWidth === 8)")
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert_calm(browser)


def test_several_runs_with_hostile_names(
    browser: Chromium, demo: Path, hostile: Path, unfinished: Path, tmp_path: Path
) -> None:
    look(browser, build([demo, hostile, unfinished], tmp_path / "report.html"))
    assert browser.evaluate(DRAWN) == [[name, 3] for name in MEASURES]
    assert browser.evaluate("typeof window.pwned") == "undefined"
    assert browser.evaluate("document.querySelector('.legend').textContent").count("<i>") == 1
    assert_calm(browser)


def test_the_axis_can_be_changed(browser: Chromium, demo: Path, tmp_path: Path) -> None:
    look(browser, build([demo], tmp_path / "report.html"))
    assert browser.evaluate(AXES) == ["round"] * 4
    browser.evaluate("document.querySelector('input[value=bytes]').click()")
    assert browser.evaluate(AXES) == ["sent up by all clients"] * 4
    assert_calm(browser)


def test_it_is_dark_where_that_is_preferred_and_light_on_paper(
    browser: Chromium, demo: Path, tmp_path: Path
) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    ticks = "getComputedStyle(document.querySelector('.chart .xtick text')).fill"
    path = build([demo], tmp_path / "report.html")
    look(browser, path)
    light = [browser.evaluate(paper), browser.evaluate(ticks)]
    look(browser, path, scheme="dark")
    assert browser.evaluate(paper) != light[0]
    assert browser.evaluate(ticks) != light[1]
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert [browser.evaluate(paper), browser.evaluate(ticks)] == light
    assert_calm(browser)


def test_a_page_without_charts(browser: Chromium, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "new", digits(), exchanges=1)
    look(browser, build([folder], tmp_path / "report.html"))
    assert browser.evaluate(DRAWN) == []
    assert_calm(browser)

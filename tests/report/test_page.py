from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from coterie.errors import RunFolderError
from coterie.experiments.folder import RunFolder
from coterie.report import build
from coterie.report.markup import VOID
from coterie.report.numbers import percent
from report.folders import HOSTILE, digits, hospitals, make_run

LOADS = ("src", "href", "data", "poster", "action", "srcset")


class Parsed(HTMLParser):
    """A page taken apart: its text, and what its tags say."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.pieces: list[str] = []
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.pieces.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.pieces).split())

    def of(self, *tags: str) -> list[tuple[str, dict[str, str | None]]]:
        return [(tag, attributes) for tag, attributes in self.tags if tag in tags]


@cache
def page(*folders: Path) -> Parsed:
    out = folders[0].parent / f"{'-'.join(folder.name for folder in folders)}.html"
    return Parsed(build(folders, out))


# -- what it says ----------------------------------------------------------------------------------


def test_it_says_what_happened(demo: Path) -> None:
    text = page(demo).text
    comparison = json.loads((demo / "comparison.json").read_text())
    assert "1,797 rows of 64 features each (digits), owned by 20 clients" in text
    assert "Each client got rows of 2 classes only." in text
    assert "FedMGS, looking for 10 clusters. All clients took part in every round." in text
    ours, _, alone = comparison["methods"]
    score = percent(ours["accuracy"])
    assert f"{score} of the rows are in the cluster that matches their true label" in text
    assert "Never left the clients 920 kB" in text
    assert comparison["story"] in text
    assert comparison["verdict"] in text
    assert "k-means, a client alone" in text
    assert " to ".join(map(percent, alone["spread"])) in text


def test_it_has_a_title_for_the_window(demo: Path, hostile: Path) -> None:
    title = json.loads((demo / "comparison.json").read_text())["title"]
    assert f"<title>{title} – coterie</title>" in page(demo).source
    assert "<title>rows&lt;b&gt;.parquet: 120 rows at 4 clients – coterie</title>" in (
        page(hostile).source
    )


def test_it_tells_each_phase(demo: Path) -> None:
    text = page(demo).text
    for phase in ("measure Sums of squares", "seed Chosen clients", "round Centers go down"):
        assert phase in text


def test_an_unknown_phase_shows_its_name(tmp_path: Path) -> None:
    copy = make_run(tmp_path / "odd", digits(), exchanges=4)
    lines = (copy / "rounds.jsonl").read_text().replace('"phase": "seed"', '"phase": "glean"')
    (copy / "rounds.jsonl").write_text(lines)
    assert "glean 1 5 5" in page(copy).text


def test_images_have_a_size_and_a_class(demo: Path) -> None:
    parsed = page(demo)
    images = [attributes for tag, attributes in parsed.of("img")]
    assert [image["alt"] for image in images] == [
        f"Mean of the rows of cluster {k}" for k in range(10)
    ]
    assert re.search(r"cluster 0 \d+ rows [\d.]+% class \d", parsed.text)


def test_a_cluster_without_rows_has_no_image(demo: Path, tmp_path: Path) -> None:
    folder = RunFolder.open(Path(shutil.copytree(demo, tmp_path / "empty")))
    model, result = folder.load_model(), folder.read_result()
    model["means"][3] = np.nan
    folder.save_model(model)
    folder.write_result(result | {"label": np.where(result["label"] == 3, 4, result["label"])})
    parsed = page(folder.path)
    assert len(parsed.of("img")) == 9
    assert "empty cluster 3 0 rows cluster 4" in parsed.text


def test_very_many_classes_are_not_told(demo: Path, tmp_path: Path) -> None:
    folder = RunFolder.open(Path(shutil.copytree(demo, tmp_path / "classes")))
    result = folder.read_result()
    folder.write_result(result | {"truth": np.arange(len(result["row"])) % 41})
    assert "41 classes and 10 clusters are too many for a table here." in page(folder.path).text


def test_few_features_are_told(hostile: Path) -> None:
    text = page(hostile).text
    assert "All features, those first on which the clusters' means lie farthest apart." in text
    assert "feature 0" in text


def test_many_features_are_not(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "wide", hospitals(tmp_path / "rows.parquet", n_features=51))
    assert "51 features are too many to show one by one" in page(folder).text


def test_without_labels_there_is_no_accuracy(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "blind", hospitals(tmp_path / "rows.parquet", labels=False))
    parsed = page(folder)
    assert "No true labels are known, so there is no accuracy." in parsed.text
    assert "Clusters and classes" not in parsed.text
    assert "chart-objective" in parsed.source
    assert 'id="chart-accuracy"' not in parsed.source


def test_an_unfinished_run_says_how_to_go_on(unfinished: Path) -> None:
    parsed = page(unfinished)
    assert f"coterie run --resume --out '{unfinished}'" in parsed.text  # quoted: it has spaces
    assert "The run has not finished. So far, " in parsed.text
    assert "Not there yet: a run writes its labels when it ends." in parsed.text
    assert 'id="chart-objective"' in parsed.source


def test_a_run_that_has_hardly_begun(tmp_path: Path) -> None:
    parsed = page(make_run(tmp_path / "new", digits(), exchanges=1))
    assert "No round has ended yet." in parsed.text
    assert len(parsed.source) < 100_000  # no charts, no plotly


def test_many_clients_are_cut_to_the_largest(tmp_path: Path) -> None:
    tables = digits(200, clients_per_round=0.1)
    tables["partition"]["scheme"] = "power_law"
    parsed = page(make_run(tmp_path / "many", tables))
    assert "Shown are the 60 largest of 200 clients; they hold " in parsed.text
    assert "10% of the clients took part in a round." in parsed.text
    assert "What a client with a single row sends may all but tell that row." in parsed.text
    section = parsed.text.split("Clusters by client")[-1].split("Clusters and classes")[0]
    assert section.count(" all ") == 2  # a heading and the last row


def test_several_runs_share_charts_and_tables(
    demo: Path, hostile: Path, unfinished: Path, tmp_path: Path
) -> None:
    parsed = Parsed(build([demo, hostile, unfinished], tmp_path / "all.html"))
    assert "3 runs of federated clustering, side by side" in parsed.text
    assert "six of them FedMGS 1,797 5 3" in parsed.text
    figures = _figures(parsed)
    assert set(figures) == {"objective", "accuracy", "penalty", "orthogonality"}
    colors = {
        tuple(trace["line"]["color"] for trace in view["data"])
        for views in figures.values()
        for view in views.values()
    }
    assert len(colors) == 1  # a run has the same color everywhere
    assert len(set(colors.pop())) == 3


# -- how it is made --------------------------------------------------------------------------------


def test_the_same_folders_give_the_same_bytes(demo: Path, hostile: Path, tmp_path: Path) -> None:
    first = build([demo, hostile], tmp_path / "first.html")
    second = build([demo, hostile], tmp_path / "deep" / "er" / "second.html")
    assert first.read_bytes() == second.read_bytes()


def test_names_are_text_wherever_they_stand(hostile: Path, demo: Path, tmp_path: Path) -> None:
    alone = page(hostile)
    beside = Parsed(build([hostile, demo], tmp_path / "both.html"))
    for parsed in (alone, beside):
        assert all(name in "".join(parsed.pieces) for name in HOSTILE)
        assert "<b>Mary" not in parsed.source
        assert "<script>window" not in parsed.source
        assert not [a for _, a in parsed.tags if any(name.startswith("on") for name in a)]
    names = [trace["name"] for trace in _figures(beside)["objective"]["rounds"]["data"]]
    assert names == ["run &lt;i&gt;one", "digits"]  # plotly reads markup in names


def test_nothing_is_loaded_from_elsewhere(demo: Path) -> None:
    parsed = page(demo)
    for _, attributes in parsed.tags:
        for name in LOADS:
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    assert parsed.source.count(get_plotlyjs()) == 1
    assert "@import" not in parsed.source.replace(get_plotlyjs(), "")
    policy = next(a["content"] for _, a in parsed.of("meta") if "http-equiv" in a)
    assert (policy or "").startswith("default-src 'none'; script-src 'sha256-")


def test_it_is_sound_for_those_who_do_not_see_it(demo: Path) -> None:
    parsed = page(demo)
    assert not parsed.open
    assert parsed.of("html")[0][1]["lang"] == "en"
    ids = [a["id"] for _, a in parsed.tags if "id" in a]
    assert len(ids) == len(set(ids))
    named = [a["aria-labelledby"] for _, a in parsed.of("section")]
    targets = [(a["href"] or "")[1:] for _, a in parsed.of("a")]
    assert {*named, *targets} <= set(ids)
    assert all(a.get("alt") for _, a in parsed.of("img"))
    charts = [a for _, a in parsed.of("div") if a.get("class") == "chart"]
    assert all(a["role"] == "img" and "from" in (a["aria-label"] or "") for a in charts)
    scrolling = [a for _, a in parsed.of("div") if a.get("class") == "wide"]
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in scrolling)
    levels = [int(tag[1]) for tag, _ in parsed.of("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))


def test_a_place_that_cannot_be_written_is_an_error(demo: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="cannot be written"):
        build([demo], tmp_path)


def test_importing_the_package_is_cheap() -> None:
    told = (
        "import sys, coterie.report; print([m for m in ('plotly', 'pyarrow') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def _figures(parsed: Parsed) -> dict[str, dict[str, Any]]:
    """By measure and view, as the page's script reads them."""
    _, _, rest = parsed.source.partition('<script type="application/json" id="figures">')
    figures: dict[str, dict[str, Any]] = json.loads(rest.partition("</script>")[0])
    return figures

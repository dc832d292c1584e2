"""The page: whole, self-contained, safe against what columns may be called, and small."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from penstock.jobs import RunRecorder
from penstock.report import render
from penstock.report.charts import histogram_chart
from penstock.report.plots import Series, line_chart, thinned, ticks

VOID = {"meta", "link", "br"}
PARTS = ["headline", "training", "time", "cluster", "workflow", "embeddings", "data", "configuration", "machine"]


class Reader(HTMLParser):
    """Collects elements and attributes, and checks that all that is opened is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_every_part_is_there_and_nothing_comes_from_outside(recorded: RunRecorder) -> None:
    page = recorded.path.read_text()
    reader = Reader(page)
    assert [section["id"] for section in reader.all("section")] == PARTS
    for name in ("src", "srcset", "action", "ping"):
        assert not [attributes for _, attributes in reader.tags if name in attributes]
    assert all((link["href"] or "").startswith(("#", "data:,")) for link in [*reader.all("a"), *reader.all("link")])
    assert "http://" not in page and "https://" not in page
    assert "@import" not in page and "url(" not in page


def test_drawings_and_tables_can_be_read_aloud(recorded: RunRecorder) -> None:
    page = recorded.path.read_text()
    drawings = re.findall(r"<svg[^>]*role=\"img\"[^>]*>(.*?)</svg>", page, re.DOTALL)
    assert len(drawings) > 8 and all(drawing.startswith("<title>") for drawing in drawings)
    assert all("<caption" in table and 'scope="col"' in table for table in re.findall(r"<table.*?</table>", page))
    assert "training rows: from" in page  # what a curve shows, in words
    assert [tag for tag, _ in Reader(page).tags if tag == "h1"] == ["h1"]


def test_names_and_values_cannot_become_code(hostile: RunRecorder) -> None:
    page = hostile.path.read_text()
    reader = Reader(page)
    assert len(reader.all("script")) == 1 and not reader.all("img")
    assert not [a for _, a in reader.tags if any(name.startswith("on") for name in a)]
    assert "<img" not in page and "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;" in page
    policy = next(m["content"] for m in reader.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert "script-src 'sha256-" in policy and "connect-src 'none'" in policy


@pytest.mark.parametrize("missing", ["raw", "features", "workflow", "training", "store", "loader", "machine"])
def test_a_part_that_is_missing_leaves_the_others(recorded: RunRecorder, missing: str) -> None:
    report = {**recorded.report(), missing: None}
    assert [section["id"] for section in Reader(render(report)).all("section")] == PARTS


@pytest.mark.parametrize("state", ["running", "done", "failed", "interrupted"])
def test_nothing_at_all_still_makes_a_page(state: str) -> None:
    page = render({"version": 1, "state": state})
    Reader(page)
    assert page.count('class="empty"') >= 5


def test_long_runs_and_wide_data_stay_small(recorded: RunRecorder) -> None:
    report = recorded.report()
    records = [
        {"kind": "train", "step": 50 * i, "loss": 1 / i, "auc": 0.5, "rows": i, "rows_per_second": 1e6}
        for i in range(1, 20_001)
    ]
    columns = [{**report["raw"]["columns"][0], "name": f"column {i}"} for i in range(500)]
    tables = [{**report["store"]["tables"][0], "name": f"table {i}"} for i in range(200)]
    wide = {
        **report,
        "records": records,
        "raw": {**report["raw"], "columns": columns},
        "store": {**report["store"], "tables": tables},
    }
    page = render(wide)
    assert len(page) < 1_000_000 and "100 more columns in report.json" in page
    assert len(recorded.path.read_text()) < 150_000


def test_ticks_are_round_and_inside() -> None:
    for low, high in ((0.0, 1.0), (0.4612, 0.4619), (3.0, 120_000.0), (-5.0, 5.0)):
        found = ticks(low, high)
        assert 2 <= len(found) <= 8 and low <= found[0] and found[-1] <= high + 1e-12
    assert ticks(1.0, 1.0) == [1.0]


def test_odd_series_are_drawn() -> None:
    assert "no figures yet" in line_chart("Loss", [Series("train", "one", [])])
    assert "<circle" in line_chart("Loss", [Series("train", "one", [(10, 0.5)])])
    assert "NaN" not in line_chart("Loss", [Series("train", "one", [(10, 0.5), (20, 0.5)])])
    assert len(thinned([(i, float(i)) for i in range(1000)])) <= 240
    assert "no values" in histogram_chart({"scale": "linear", "edges": [], "counts": []}, "x")
    assert "5: 3" in histogram_chart({"scale": "linear", "edges": [5.0, 5.0], "counts": [3]}, "x")


def test_one_unit_in_a_column(recorded: RunRecorder) -> None:
    report = recorded.report()
    tables = [{**report["store"]["tables"][0], "name": f"t{i}", "bytes": 10**i, "rows": 10**i} for i in range(1, 9)]
    page = render({**report, "store": {**report["store"], "tables": tables}})
    memory = re.findall(r'data-label="memory"[^>]*>[^<]*?([kMGT]?B)<', page)
    assert memory and set(memory) == {"MB"}
    for lane in re.findall(r'<table class="waterfall">(.*?)</table>', page):
        assert len(set(re.findall(r'data-label="time"[^>]*>[^<]*? (ms|s|min)<', lane))) <= 1


def test_the_best_evaluation_is_marked(recorded: RunRecorder) -> None:
    report = recorded.report()
    chosen = {"by": "auc", "step": 30, "epoch": 1, "epochs": 2, "stopped_early": True}
    learning = {"kind": "overfitting", "text": "Overfitting since step 30.", "advice": "Fewer epochs."}
    labels = {"constant_log_loss": 0.6931}
    page = render({**report, "selected": chosen, "learning": learning, "labels": labels})
    assert page.count("best, kept</text>") == 3  # loss, AUC, log loss
    assert "step 30, epoch 1 of 2: the best AUC; training stopped early" in page
    assert '30<strong class="best"> kept</strong>' in page
    assert "Overfitting since step 30. Fewer epochs." in page and "a constant has 0.6931" in page
    assert "best, kept" not in render({**report, "selected": {}})

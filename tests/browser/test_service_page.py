"""The page of a service in a browser: readable anywhere, and its form predicts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.data.synthetic import criteo
from penstock.etl import presets
from penstock.jobs import RunRecorder, TrainJob
from penstock.jobs.comparing import compare_runs
from penstock.jobs.explaining import explain_model
from penstock.jobs.text_output import write_text
from penstock.report.explanation import render_explanation
from penstock.serve.http import HttpServer

LONG = "a_column_whose_name_is_longer_than_any_phone_is_wide_" * 3
SCREENS = [(360, "dark"), (375, "light"), (1280, "light"), (1280, "dark")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    criteo(place / "day.tsv", 1_500, cardinalities=40, progress=False)
    settings = {"model": {"name": "MLP", "hidden": [8]}, "embedding_dim": 4, "batch_size": 256, "device": "cpu"}
    for name, epochs in (("one", 1), (LONG, 2)):
        job = TrainJob(
            place / "day.tsv", place / name, presets.load("criteo"), settings={**settings, "epochs": epochs},
            progress=False, listener=RunRecorder(place / name),
        )  # fmt: skip
        job.run()
    compare_runs([place / "one", place / LONG], place / "compare.html")
    found = explain_model(place / "one", num_rows=50, repeats=1).to_dict()
    found["columns"][1]["column"] = LONG
    write_text(place / "explain.html", render_explanation(found))
    return place


@pytest.fixture(scope="module")
def server(runs: Path) -> Iterator[HttpServer]:
    with HttpServer(runs / "one", port=0) as server:
        yield server


@pytest.fixture
def opened(watch: Any, server: HttpServer) -> Any:
    seen = watch()
    seen.page.goto(server.url)
    return seen


def test_what_is_served_is_said(opened: Any, server: HttpServer) -> None:
    page = opened.page
    assert re.fullmatch(r"MLP on day\.tsv · AUC 0\.\d{4} · \d{4}-\d\d-\d\d · Penstock", page.title())
    assert page.locator("h1").inner_text() == "MLP on day.tsv"
    assert page.locator(".card").count() == 3 and "1,350 rows" in page.locator(".subtitle").inner_text()
    assert opened.complaints == [] and set(opened.requests) <= {server.url + "/", "data:,"}


def test_the_form_predicts_what_the_service_does(opened: Any, server: HttpServer) -> None:
    from playwright.sync_api import expect

    page, answer = opened.page, opened.page.locator("#answer")
    predictor = server.service.predictor
    example = dict(predictor.saved.card.example)
    assert page.locator("#field-0").input_value() == ("" if example["I1"] is None else str(example["I1"]))
    page.get_by_role("button", name="Predict").click()
    expect(answer).to_contain_text("probability 0.")
    shown = float(re.search(r"probability (\S+)", answer.inner_text())[1])
    assert shown == pytest.approx(predictor.predict_row(example), abs=1e-6)
    page.locator("#field-0").fill("31")
    page.locator("#field-20").fill("")
    page.keyboard.press("Enter")
    changed = predictor.predict_row({**example, "I1": 31, "C8": None})
    expect(answer).to_contain_text(f"probability {str(changed)[:5]}")
    page.get_by_role("button", name="As in the example").click()
    assert answer.inner_text() == "" and page.locator("#field-0").input_value() != "31"
    assert opened.complaints == []


def test_a_wrong_value_is_said_beside_its_field(opened: Any) -> None:
    from playwright.sync_api import expect

    page = opened.page
    page.locator("#field-0").fill("many")
    page.get_by_role("button", name="Predict").click()
    expect(page.locator("#answer")).to_contain_text("field 'I1': must be an integer")
    expect(page.locator("#field-0")).to_have_class("wrong")
    page.locator("#field-0").fill("3")
    page.get_by_role("button", name="Predict").click()
    expect(page.locator("#answer")).to_contain_text("probability")
    expect(page.locator("#field-0")).not_to_have_class("wrong")


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_nothing_is_wider_than_the_screen(
    watch: Any, overflowing: Any, runs: Path, server: HttpServer, width: int, scheme: str
) -> None:
    for address in (server.url, (runs / "compare.html").as_uri(), (runs / "explain.html").as_uri()):
        seen = watch(width=width, height=740, scheme=scheme)
        seen.page.goto(address)
        assert overflowing(seen.page) == [], address
        assert seen.complaints == []

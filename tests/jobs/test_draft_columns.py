"""What each column of raw rows is drafted as."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from penstock.etl import Workflow
from penstock.jobs import draft_recipe
from penstock.jobs.draft_columns import LEFT_OUT, judge

LABEL = pl.Series("click", [i // 7 % 2 for i in range(210)])


def column(values: list, name: str = "x", **dtype: pl.DataType) -> pl.Series:
    return pl.Series(name, (values * 210)[:210], **dtype)


def test_categories_of_frames_are_texts() -> None:
    colours = ["red", "green", "blue", None]
    found = [judge(column(colours, dtype=dtype), LABEL) for dtype in (pl.String, pl.Categorical, pl.Enum(colours[:3]))]
    assert {(judged.node, judged.why) for judged in found} == {("categories", "3 texts")}
    frame = pl.DataFrame({"x": column(colours, dtype=pl.Categorical), "click": LABEL})
    codes = Workflow.from_recipe(draft_recipe(frame).recipe).fit_transform(frame)["x"]
    assert codes[:4].n_unique() == 4


@pytest.mark.parametrize("name", ["__index_level_0__", "Unnamed: 0"])
def test_the_index_of_a_frame_is_no_feature(name: str) -> None:
    assert judge(pl.Series(name, range(210)), LABEL).node == LEFT_OUT
    assert judge(pl.Series("position", range(210)), LABEL).node != LEFT_OUT


@pytest.mark.parametrize("name", ["day", "x"])
def test_dates_as_numbers_whatever_they_are_called(name: str) -> None:
    dates = column([int(f"2023{month:02}{day:02}") for month in range(1, 13) for day in (1, 15, 28)], name)
    assert judge(dates, LABEL).arguments == {"parts": ["weekday", "month"], "format": "%Y%m%d"}
    assert judge(column([*dates[:30], 20231350], name), LABEL).node != "times"


@pytest.mark.parametrize("name", ["millis", "createdAt", "event_time"])
def test_times_since_1970(name: str) -> None:
    assert judge(column([1_700_000_000_000 + i * 3_600_000 for i in range(50)], name), LABEL).arguments["unit"] == "ms"


@pytest.mark.parametrize(
    ("values", "numbers", "how"),
    [
        (["999", "1,250", "1,234,567"], [999, 1_250, 1_234_567], "with commas between thousands"),
        (["1,250.5", "12.25"], [1250.5, 12.25], "with commas between thousands"),
        (["0,125", "1,250"], [0.125, 1.25], "with a comma"),
        (["$1,250", "$ 3.5"], [1250, 3.5], "with $ and with commas between thousands"),
        (["12,5 €", "3 €"], [12.5, 3], "with € and with a comma"),
        (["12.5%", "3%"], [12.5, 3], "with %"),
    ],
)
def test_amounts_as_people_write_them(values: list[str], numbers: list[float], how: str) -> None:
    more = [text.replace("3", "7").replace("1", "8") for text in values]
    expected = np.array([*numbers, *(float(str(n).replace("3", "7").replace("1", "8")) for n in numbers)])
    frame = pl.DataFrame({"x": column([*values, *more]), "click": LABEL})
    draft = draft_recipe(frame)
    assert f"written {how}" in draft.text
    recipe = draft.recipe
    node = recipe["output"][1]
    recipe["nodes"][node]["ops"] = recipe["nodes"][node]["ops"][:1]
    made = Workflow.from_recipe(recipe).fit_transform(frame)["x"]
    np.testing.assert_allclose(made[: len(expected)].to_numpy(), expected)


def test_what_is_left_out_is_told() -> None:
    frame = pl.DataFrame(
        {"price": np.linspace(0.5, 1.5, 210) ** 2 % 0.7, "source": "web", "paid_after": LABEL * 2, "click": LABEL}
    )
    assert draft_recipe(frame).summary == "label click, 1 number, 2 left out (paid_after: gives the label away)"


@pytest.mark.parametrize("name", ["is_clicked", "wasClicked", "Purchased", "has_converted"])
def test_labels_by_their_names(name: str) -> None:
    assert draft_recipe(pl.DataFrame({"price": np.linspace(0.1, 1, 210) ** 3 % 0.3, name: LABEL})).label == name


@pytest.mark.parametrize(("gaps", "is_flagged"), [(0, False), (1, False), (40, True), (208, False)])
def test_amounts_that_are_often_missing_say_so_beside_them(gaps: int, is_flagged: bool) -> None:
    values = [None if i < gaps else 0.37 * (i * 7 % 101) for i in range(210)]
    frame = pl.DataFrame({"price": values, "other": [0.61 * (i * 3 % 97) for i in range(210)], "click": LABEL})
    draft = draft_recipe(frame)
    features = Workflow.from_recipe(draft.recipe).fit_transform(frame)
    assert ("price_filled" in features.columns) == is_flagged
    assert "other_filled" not in features.columns and ("beside each" in draft.text) == is_flagged
    if is_flagged:
        flags = features["price_filled"]
        assert flags[:gaps].n_unique() == 1 and flags[0] > 1 > flags[gaps:].max()

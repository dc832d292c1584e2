"""What each column of raw rows is drafted as."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from penstock.core.errors import ColumnNotFoundError, SchemaError
from penstock.etl import Workflow, ops
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


@pytest.mark.parametrize("name", ["__index_level_0__", "Unnamed: 0", "index", "Row", "row_number", "No.", "#"])
def test_the_index_of_a_frame_is_no_feature(name: str) -> None:
    assert judge(pl.Series(name, range(210)), LABEL).node == LEFT_OUT
    assert judge(pl.Series("position", range(210)), LABEL).node != LEFT_OUT


def test_a_number_that_is_blank_or_a_word_now_and_then_stays_a_number(tmp_path: Path) -> None:
    """As the total of customers who have not paid yet, in a table of Kaggle's."""
    file = tmp_path / "customers.csv"
    totals = [" " if i % 50 == 0 else "#N/A" if i % 51 == 0 else f"{i * 37 % 1009}.{i % 90 + 10}" for i in range(210)]
    lines = [f"{total},{'Yes' if i % 3 == 0 else 'No'}" for i, total in enumerate(totals)]
    file.write_text("\n".join(["TotalCharges,Churn", *lines]))
    draft = draft_recipe(file)
    assert draft.label == "Churn" and draft.recipe["nodes"]["numbers"]["columns"] == ["TotalCharges"]
    assert draft.assumed is not None and draft.assumed.endswith("blanks, '#N/A' as missing in TotalCharges")


def test_names_that_break_lines_are_spelled_out() -> None:
    frame = pl.DataFrame({"a\nb: {": ["same"] * 210, "price": range(210), "click": LABEL})
    assert draft_recipe(frame).left_out == {"a\nb: {": "the same everywhere: 'same'"}
    assert draft_recipe(frame).recipe["output"] == ["label", "numbers"]


@pytest.mark.parametrize("name", ["day", "x"])
def test_dates_as_numbers_whatever_they_are_called(name: str) -> None:
    dates = column([int(f"2023{month:02}{day:02}") for month in range(1, 13) for day in (1, 15, 28)], name)
    assert judge(dates, LABEL).arguments == {"parts": ["weekday", "month"], "format": "%Y%m%d"}
    assert judge(column([*dates[:30], 20231350], name), LABEL).node != "times"


@pytest.mark.parametrize(
    ("values", "arguments", "hours"),
    [
        ([20230605143000 + i * 1_000_000 for i in range(20)], {"format": "%Y%m%d%H%M%S"}, {14}),
        ([20230605143000123 + i * 10**9 for i in range(20)], {"format": "%Y%m%d%H%M%S%3f"}, {14}),
        ([1_700_000_000.25 + i * 86_400 for i in range(20)], {}, {22}),
        ([(1_700_000_000 + i * 86_400) * 10**9 for i in range(20)], {"unit": "ns"}, {22}),
        (["08:15:30", "21:40:00"], {"format": "%H:%M:%S"}, {8, 21}),
        (["8:15", "21:40"], {"format": "%H:%M"}, {8, 21}),
        ([datetime.time(8, 15), datetime.time(21, 40)], {}, {8, 21}),
        (["Jun 5, 2023 2:30 PM", "Jul 6, 2023 9:05 AM"], {"format": "%B %d, %Y %I:%M %p"}, {14, 9}),
    ],
)
def test_times_in_many_forms(values: list, arguments: dict, hours: set[int]) -> None:
    times = column(values, "ts")
    found = judge(times, LABEL)
    assert found.node == "times" and {k: v for k, v in found.arguments.items() if k != "parts"} == arguments
    parts = Workflow(["ts"] >> ops.DateParts(**found.arguments)).fit_transform(pl.DataFrame({"ts": times}))
    assert set(parts["ts_hour"]) == hours


@pytest.mark.parametrize(
    ("values", "arguments", "first"),
    [
        (['["a1", "b 2"]', '["b 2"]', "[]"], {"separator": ",", "strip": " []'\""}, ["a1", "b 2"]),
        (["['a1', 'b2']", "['c3']"], {"separator": ",", "strip": " []'\""}, ["a1", "b2"]),
        (["N1 N2", "N2 N3", "N1 N3", "N3 N2 N1"], {"separator": " "}, ["N1", "N2"]),
        (["7^9", "9^8", "8^7", "9^8^7"], {"separator": "^"}, ["7", "9"]),
    ],
)
def test_lists_in_many_forms(values: list[str], arguments: dict, first: list[str]) -> None:
    texts = column(values, "tags")
    found = judge(texts, LABEL)
    assert (found.node, found.arguments) == ("lists", arguments)
    split = Workflow(["tags"] >> ops.Split(**arguments))
    assert split.fit_transform(pl.DataFrame({"tags": texts}))["tags"][0].to_list() == first
    assert judge(column(["New York", "York Town", "New Town"]), LABEL).node == "categories"


def test_what_a_draft_leaves_out_of_odd_types() -> None:
    frame = pl.DataFrame(
        {
            "price": pl.Series([f"{0.37 * (i * 7 % 101):.2f}" for i in range(210)]).cast(pl.Decimal(scale=2)),
            "where": [{"a": i} for i in range(210)],
            "nested": [[[1], [2]]] * 210,
            "images": pl.Series([[]] * 210, dtype=pl.List(pl.String)),
            "click": LABEL,
        }
    )
    draft = draft_recipe(frame)
    assert draft.recipe["nodes"]["numbers"]["columns"] == ["price"]
    assert draft.left_out == {
        "nested": "lists of lists; make columns of them",
        "images": "no value in any row",
        "where": "Struct({'a': Int64}) is not read; write what it holds as columns of their own to use it",
    }
    assert Workflow.from_recipe(draft.recipe).fit_transform(frame).columns == ["click", "price"]


def test_columns_without_names(tmp_path: Path) -> None:
    rows = [f"{i // 7 % 2}\t{i}\t{1000 + i * i % 40 * 977}\t{i * 0.37 % 11:.3f}" for i in range(210)]
    (tmp_path / "day.txt").write_text("\n".join(rows))
    with pytest.raises(ColumnNotFoundError, match="its first line looks like a row, so its columns have no names"):
        draft_recipe(tmp_path / "day.txt", "click")
    draft = draft_recipe(tmp_path / "day.txt")
    assert draft.label == "column_1" and list(draft.left_out) == ["column_2"]
    assert draft.recipe["nodes"]["categories"]["columns"] == ["column_3"]
    assert draft.recipe["nodes"]["numbers"]["columns"] == ["column_4"]


def test_a_label_that_cannot_be_one() -> None:
    frame = pl.DataFrame({"label": ["red", "green", "blue"] * 70, "price": range(210), "skipped": LABEL})
    with pytest.raises(SchemaError, match=r"'label' has 3 texts; .* choose another label \(with two values: skipped\)"):
        draft_recipe(frame)
    with pytest.raises(SchemaError, match=r"'red' \(70\).* such as ops: \[\{Binarize: \{ones: \['\w+'\]\}\}\] on the"):
        draft_recipe(frame, "label")
    assert draft_recipe(frame.rename({"skipped": "clicked"})).label == "clicked"
    gone = pl.DataFrame({"click": pl.Series([None] * 210, dtype=pl.Int64), "price": range(210)})
    with pytest.raises(SchemaError, match="the label 'click' has no value in any row"):
        draft_recipe(gone)
    always = pl.DataFrame({"click": [1] * 210, "price": range(210)})
    assert "# 1 in every row, so there is nothing to learn" in draft_recipe(always).text
    some = pl.DataFrame({"click": [None, 0, 1] * 70, "price": range(210)})
    assert "missing in 70, which training refuses" in draft_recipe(some).text


@pytest.mark.parametrize("name", ["user", "USER", "Item", "userID", "Product Id"])
def test_ids_by_their_names(name: str) -> None:
    assert judge(pl.Series(name, [i * 37 % 101 for i in range(210)]), LABEL).why == "101 ids, by its name"
    assert judge(pl.Series("Number of Items", [i * 37 % 101 for i in range(210)]), LABEL).node == "numbers"


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
        (["CHF 12.5", "CHF 3"], [12.5, 3], "with CHF"),
        (["¥1,250", "¥35"], [1250, 35], "with ¥ and with commas between thousands"),
        (["1 250,5", "12,25"], [1250.5, 12.25], "with blanks between thousands and with a comma"),
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


@pytest.mark.parametrize("name", ["is_clicked", "wasClicked", "Purchased", "has_converted", "was clicked?", "overall"])
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


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("gaps", [False, True])
def test_amounts_on_both_sides_of_nought_keep_their_sign(gaps: bool, as_text: bool) -> None:
    amounts = [-3.5, -1.0, 0.0, 1.0, 2.0, 3.0, 5.5, None if gaps else 4.0, 900.0]
    values = [None if value is None else f"{value:.2f} €" for value in amounts] if as_text else amounts
    frame = pl.DataFrame({"net gain": column(values, "net gain"), "click": LABEL})
    draft = draft_recipe(frame)
    assert judge(frame["net gain"], LABEL).node == ("signed_decimals" if as_text else "signed")
    features = Workflow.from_recipe(draft.recipe).fit_transform(frame)
    assert ("net gain_filled" in features.columns) == gaps  # amounts in text say so, too
    found = features["net gain"][:9].to_list()
    there = [value for value, amount in zip(found, amounts, strict=True) if amount is not None]
    assert np.argsort(there).tolist() == np.argsort([a for a in amounts if a is not None]).tolist()
    assert there[4] - there[1] > 0.5  # scaled as they are, all small amounts would lie within a hundredth


@pytest.mark.parametrize("others", [[1.0, 2.0, 3.5], [0.1, 0.2, 900.0], [-0.1, 0.2, -900.0]])
def test_numbers_that_are_infinite_now_and_then_are_bounded(others: list[float]) -> None:
    values = [others[i % 3] + i / 1000 for i in range(208)] + [np.inf, np.nan]
    frame = pl.DataFrame({"ratio": values, "click": LABEL})
    draft = draft_recipe(frame)
    made = Workflow.from_recipe(draft.recipe).fit_transform(frame)["ratio"]
    assert made.is_finite().all() and made[-2] == made.max() and "infinite now and then" in draft.text


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 0, 0, 1, 2, 5], "label y (1 and more are 1), "),  # a count
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "label y (7 and more are 1), "),  # a mark
        ([0.5, 3.5, 4.0, 5.0], "label y (4 and more are 1), "),
        (["no", "yes"], "label y ('yes' is 1), "),
        ([True, False], "label y, "),
        ([0.0, 1.0, float("nan")], "label y, "),
    ],
)
def test_what_counts_as_1_is_said(labels: list, words: str) -> None:
    frame = pl.DataFrame({"y": (labels * 210)[:210], "price": [i * 37 % 211 for i in range(210)]}, strict=False)
    assert draft_recipe(frame, "y").summary.startswith(words)

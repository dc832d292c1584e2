"""Expressions as text, and the operators for labels, lists in text and times."""

from __future__ import annotations

from datetime import datetime

import polars as pl
import pytest

from penstock import Dataset, Role, Workflow, ops
from penstock.core.errors import DataError, ParameterError, SchemaError

FRAME = pl.DataFrame(
    {
        "rating": [5, 3, 4, 1],
        "hour": [14102100, 14102101, 14102102, 14102103],
        "color": ["red", "blue", None, "red"],
        "genres": ["Comedy|Drama", "", None, " Drama | War "],
        "at": [0, 3600, 86400, None],
    }
)


def run(graph) -> dict:
    return Workflow(graph).transform(FRAME).to_dict(as_series=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hour % 100", [0, 1, 2, 3]),
        ("rating >= 4", [True, False, True, False]),
        ("color = 'red'", [True, False, None, True]),
        ("coalesce(color, 'none')", ["red", "blue", "none", "red"]),
        ("CASE WHEN rating > 3 THEN 1 ELSE 0 END", [1, 0, 1, 0]),
        ("rating IN (1, 5)", [True, False, False, True]),
        ("upper(color) LIKE 'R%'", [True, False, None, True]),
        ("1", [1, 1, 1, 1]),
    ],
)
def test_sql_words(text, expected):
    assert run(["rating"] >> ops.Expr({"x": text})) == {"x": expected}
    again = Workflow.from_recipe(Workflow(["rating"] >> ops.Expr({"x": text})).to_recipe())
    assert again.transform(FRAME)["x"].to_list() == expected


@pytest.mark.parametrize(
    "text",
    [
        "sum(rating)", "rating - avg(rating)", "rating - lag(rating, 1) OVER (ORDER BY hour)", "count(*)",
        "lag(rating)",
        "sum(rating) OVER (PARTITION BY color)", "CASE WHEN rating > max(rating) THEN 1 ELSE 0 END",
    ],
)  # fmt: skip
def test_text_that_looks_at_other_rows_is_refused(text):
    for make in (lambda: ops.Expr({"x": text}), lambda: ops.Filter(f"({text}) > 0")):
        with pytest.raises(ParameterError, match="looks at other rows"):
            make()


x = pl.col("rating")


@pytest.mark.parametrize(
    "expression",
    [
        x.shift(1), x - x.mean(), x.sum().over("color"), x.rank(), x.cum_sum(), x.diff(), x.reverse(), x.is_unique(),
        x.fill_null(strategy="forward"), x.rolling_mean(2), x.sort(), x.filter(x > 1), x.explode(), pl.len() + x,
        x.qcut(2), x.head(1), pl.when(x == x.max()).then(1), x.interpolate(), x.shuffle(),
    ],
    ids=str,
)  # fmt: skip
def test_polars_expressions_that_look_at_other_rows_are_refused(expression):
    with pytest.raises(ParameterError, match="looks at other rows"):
        ops.Expr({"x": expression})


@pytest.mark.parametrize(
    "expression",
    [
        x + 1, x.log1p(), pl.lit(3), x.clip(0, 1), x.is_in([1, 2]), x.cast(pl.String).str.len_chars(), x.hash(),
        pl.when(x > 2).then(x).otherwise(0), pl.max_horizontal("rating", "hour"), x.replace({5: 6}),
        pl.concat_list("rating", "hour").list.sum(),
    ],
    ids=str,
)  # fmt: skip
def test_expressions_of_one_row_are_taken(expression):
    assert len(run(["rating"] >> ops.Expr({"x": expression}))["x"]) == 4


@pytest.mark.parametrize(
    "text", ["rating >=", "nosuch(rating)", "(SELECT 1)", "EXISTS(SELECT * FROM read_csv('x'))", ""]
)
def test_text_that_is_no_expression(text):
    with pytest.raises(ParameterError, match="Expr: "):
        ops.Expr({"x": text})


def test_a_misspelt_column_in_an_expression_is_named():
    with pytest.raises(Exception, match=r"'ratng'.*did you mean 'rating'"):
        Workflow(["rating"] >> ops.Expr({"x": "ratng >= 4"})).transform(FRAME)


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (ops.Expr({"liked": "rating >= 4"}), "liked"), (ops.Binarize(4), "rating"), (ops.Bucketize([4]), "rating"),
        (ops.Expr({"rating": "rating >= 4"}), "rating"), (ops.Rename(name="y"), "y"), (ops.FillMissing(0), "rating"),
        (ops.LambdaOp(pl.Series.abs), "rating"), (ops.LogOp(), "rating"), (ops.HashBucket(5), "rating"),
        (ops.Categorify(), "rating"), (ops.Clip(0, 1), "rating"), (ops.NormalizeMinMax(), "rating"),
    ],
)  # fmt: skip
def test_a_label_keeps_its_role(op, name):
    data = Dataset(FRAME).with_roles(label=["rating"])
    workflow = Workflow(["rating"] >> op).fit(data)
    assert workflow.output_schema[name].role is Role.LABEL


def test_split_feeds_categorify():
    genres = Workflow(["genres"] >> ops.Split() >> ops.Categorify()).fit(FRAME)
    found = genres.transform(FRAME)["genres"].to_list()
    assert [len(row) for row in found] == [2, 0, 0, 2]
    assert found[0][1] == found[3][0]
    assert genres.transform_row({"genres": "War|Drama"})["genres"] == [found[3][1], found[3][0]]


def test_date_parts():
    assert run(["hour"] >> ops.DateParts(["hour", "weekday"], format="%y%m%d%H")) == {
        "hour_hour": [0, 1, 2, 3],
        "hour_weekday": [2, 2, 2, 2],
    }
    assert run(["at"] >> ops.DateParts(["year", "day", "hour"])) == {
        "at_year": [1970, 1970, 1970, None],
        "at_day": [1, 1, 2, None],
        "at_hour": [0, 1, 0, None],
    }
    times = pl.DataFrame({"t": ["2024-03-02 10:00:00", "2024-03-04"], "s": [datetime(2024, 3, 3, 5), None]})
    found = Workflow(["t", "s"] >> ops.DateParts(["is_weekend", "hour"])).transform(times)
    assert found.rows() == [(1, 10, 1, 5), (0, 0, None, None)]
    with pytest.raises(DataError, match="column 't': 'noon' is no time in ISO form; say format"):
        Workflow(["t"] >> ops.DateParts()).transform(pl.DataFrame({"t": ["noon"]}))


def test_binarize_says_what_it_wants():
    with pytest.raises(ParameterError, match="either threshold"):
        ops.Binarize()
    with pytest.raises(SchemaError, match="needs numbers; column 'color' is string"):
        Workflow(["color"] >> ops.Binarize(4)).transform(FRAME)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("user % 10", [7]),
        ("user", [17]),
        ("CASE WHEN user > 3 THEN 'user' ELSE 'a''user' END", ["user"]),
        ('"user" + 1', [18]),
        ("user_id + user", [20]),
        ('"order" + 1', [6]),
    ],
)
def test_columns_called_as_words_of_sql(text: str, made: list) -> None:
    frame = pl.DataFrame({"user": [17], "user_id": [3], "order": [5]})
    assert Workflow(["user"] >> ops.Expr({"x": text})).fit_transform(frame)["x"].to_list() == made
    with pytest.raises(ParameterError, match="a word of SQL stands in double quotes"):
        ops.Expr("order + 1").check_params()

"""Times written as text: which form they are in, and rows in the order of what they mean."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl
import pytest

from penstock import Dataset, Workflow, ops
from penstock.data.written_times import form_to_sort_by, read_times, written_forms
from penstock.jobs.draft_columns import judge

DAYS = [datetime(2023, 11, 25, 22, 30, 15) + timedelta(days=5 * i, hours=7 * i, minutes=i) for i in range(60)]
FORMS = [
    "%d.%m.%Y", "%d.%m.%y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d-%b-%Y", "%d/%b/%Y",
    "%d %B %Y", "%B %d, %Y", "%Y.%m.%d", "%d.%m.%Y %H:%M", "%d/%m/%Y %H:%M:%S", "%m/%d/%Y %I:%M %p",
    "%m/%d/%Y %I:%M:%S%p", "%m/%d/%y %H:%M", "%d/%b/%Y:%H:%M:%S %z", "%Y-%m-%dT%H:%M:%S%z", "%d.%m.%Y, %H:%M",
]  # fmt: skip


def written(form: str) -> list[str]:
    return [day.strftime(form.replace("%z", "+0000")) for day in DAYS]


@pytest.mark.parametrize("form", FORMS)
def test_the_form_is_told_from_the_values(form):
    texts = pl.Series("t", [None, *written(form)])
    assert written_forms(texts) == [form]
    expected = [datetime.strptime(text, form.replace("%z", "+0000")) for text in texts[1:]]
    assert [time.replace(tzinfo=None) for time in read_times(texts, form)[1:]] == expected


@pytest.mark.parametrize("texts", [["Paris", "Rome"], ["1.2.3.4"], ["31.02.2024"], ["01.01.2024", "soon"], ["12"], []])
def test_what_is_no_time(texts):
    assert written_forms(pl.Series("t", texts, pl.String)) == []


@pytest.mark.parametrize("texts", [["2024-01-02", "2024-10-03"], ["2024/01/02 10:00", "2024/10/02 09:00"]])
def test_text_that_is_in_order_by_itself_is_left_as_it_is(texts):
    assert form_to_sort_by(pl.Series(texts)) is None


def test_months_of_one_digit_are_not_in_order_as_text():
    assert form_to_sort_by(pl.Series(["2024/9/1", "2024/10/1"])) == "%Y/%m/%d"


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%m/%d/%Y %I:%M %p", "%d-%b-%Y", "%Y-%m-%dT%H:%M:%S%z"])
def test_a_split_by_time_holds_out_the_latest_rows(form):
    frame = pl.DataFrame({"row": range(60), "t": written(form)})
    missing = pl.DataFrame({"row": [60], "t": [None]}, schema=frame.schema)
    rows = Dataset(pl.concat([frame, missing]).sample(61, shuffle=True, seed=0)).repartition(4)
    train, valid = rows.split([0.8, 0.2], time="t")
    assert sorted(valid.to_polars()["row"]) == list(range(48, 60))
    assert sorted(train.to_polars()["row"]) == [*range(48), 60]


@pytest.mark.parametrize("form", FORMS)
def test_a_drafted_recipe_reads_the_form(form):
    times, label = pl.Series("t", written(form)), pl.Series("y", [i % 3 == 0 for i in range(60)])
    found = judge(times, label)
    assert (found.node, found.arguments["format"]) == ("times", form)
    assert found.arguments["parts"] == (["weekday", "hour"] if "%H" in form or "%I" in form else ["weekday", "month"])
    parts = Workflow(["t"] >> ops.DateParts(**found.arguments)).transform(times.to_frame())
    assert parts["t_weekday"].to_list() == [day.isoweekday() for day in DAYS]


def test_where_day_and_month_cannot_be_told_the_draft_says_so():
    times = pl.Series("t", ["01/02/2024", "03/04/2024"] * 20)
    assert written_forms(times) == ["%m/%d/%Y", "%d/%m/%Y"]
    found = judge(times, pl.Series("y", [0, 1, 1, 0] * 10))
    assert found.why == "a time written %m/%d/%Y; %d/%m/%Y would do as well"


def test_names_of_months_in_short():
    assert written_forms(pl.Series(["3 Jan 2024", "14 Sep 2023"])) == ["%d %B %Y"]

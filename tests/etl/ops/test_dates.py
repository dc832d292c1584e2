"""Times in text: a column may mix the forms that are read, and a text in none of them is named."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Workflow, ops
from penstock.core.errors import DataError

MEANT = {
    "2020-02-29": "2020-02-29 00:00:00",
    "2020-02-29 10:20": "2020-02-29 10:20:00",
    "2020-02-29 10:20:30": "2020-02-29 10:20:30",
    "2020-02-29 10:20:30.5": "2020-02-29 10:20:30",
    "2020-02-29 10:20:30.512": "2020-02-29 10:20:30",
    "2020-02-29 10:20:30.512345": "2020-02-29 10:20:30",
    "2020-02-29 10:20:30.512345678": "2020-02-29 10:20:30",
    "2020-02-29T10:20:30": "2020-02-29 10:20:30",
    "2020-02-29T10:20:30Z": "2020-02-29 10:20:30",
    "2020-02-29T10:20:30.512Z": "2020-02-29 10:20:30",
    "2020-02-29T10:20:30.1234": "2020-02-29 10:20:30",
    "1969/12/31": "1969-12-31 00:00:00",
    "1969/12/31 23:59:59": "1969-12-31 23:59:59",
}


@given(st.lists(st.sampled_from([*MEANT, None]), max_size=20))
def test_a_column_may_mix_forms(texts: list[str | None]) -> None:
    frame = pl.DataFrame({"time": pl.Series(texts, dtype=pl.String)})
    parts = ["year", "month", "day", "hour", "minute", "second"]
    found = Workflow(["time"] >> ops.DateParts(parts)).transform(frame)
    wanted = [(None,) * 6 if text is None else tuple(map(int, _digits(MEANT[text]))) for text in texts]
    assert found.rows() == wanted


def _digits(text: str) -> list[str]:
    return text.replace("-", " ").replace(":", " ").split()


@pytest.mark.parametrize("odd", ["", "12:00", "2020-13-01", "2020-02-29 10:20:30.5 ", "29.02.2020"])
def test_the_first_text_that_is_no_time_is_named(odd: str) -> None:
    frame = pl.DataFrame({"time": ["2020-02-29", None, "2020/02/29 10:20:30", odd, "2020-02-29", "never"]})
    with pytest.raises(DataError, match=f"'time': {odd!r} is no time in ISO form"):
        Workflow(["time"] >> ops.DateParts(["hour"])).transform(frame)

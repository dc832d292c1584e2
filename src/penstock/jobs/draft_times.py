"""Times among the columns of raw rows: as such, as text, as digits of a calendar, or counted since 1970."""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from penstock.data.written_times import written_forms

_NAME = re.compile(
    r"(?i:(^|_|\b)(time|timestamp|ts|date|datetime|day|hour|created|updated|at|when|epoch|unix|millis|ms)($|_|\b))"
    r"|(?i:timestamp$|datetime$)|[a-z](Time|Timestamp|Date|At)$"
)
_ISO = r"^\d{4}[-/]\d{2}[-/]\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?Z?)?$"
_CLOCKS = {r"^\d{1,2}:\d{2}:\d{2}$": "%H:%M:%S", r"^\d{1,2}:\d{2}$": "%H:%M"}
_DIGITS = {
    "%y%m%d%H": 8, "%Y%m%d": 8, "%Y%m%d%H": 10, "%Y%m%d%H%M": 12, "%Y%m%d%H%M%S": 14, "%Y%m%d%H%M%S%3f": 17,
}  # fmt: skip
_MANY = 10  # distinct numbers that all read as a time are one, whatever they are called
_EPOCHS = {"s": (5e8, 2.2e9), "ms": (5e11, 2.2e12), "us": (5e14, 2.2e15), "ns": (5e17, 2.2e18)}

Found = tuple[str, dict[str, Any]]


def as_time(there: pl.Series, distinct: int) -> Found | None:
    """Why a column is one of times, and the arguments of `DateParts` that read it; None where it is none.

    Args:
        there: its values, none of them missing.
        distinct: how many there are.

    Returns:
        The reason and the arguments.

    >>> as_time(pl.Series("at", ["08:15", "21:40"]), 2)
    ('a time of the day', {'parts': ['hour'], 'format': '%H:%M'})
    """
    if there.dtype == pl.Time:
        return "a time of the day", {"parts": ["hour"]}
    if there.dtype in (pl.Date, pl.Datetime):
        return "a time; its weekday and hour count", {"parts": _parts(there.dtype == pl.Date)}
    if there.dtype == pl.String:
        return _in_text(there)
    if not there.dtype.is_numeric():
        return None
    return _since_1970(there) or _in_digits(there, distinct)


def _in_text(there: pl.Series) -> Found | None:
    if there.str.contains(_ISO).all():
        only_dates = bool((there.str.len_chars() <= 10).all())
        return "a time as text; its weekday and hour count", {"parts": _parts(only_dates)}
    for shape, form in _CLOCKS.items():
        if there.str.contains(shape).all() and not there.str.to_time(form, strict=False).null_count():
            return "a time of the day", {"parts": ["hour"], "format": form}
    forms = written_forms(there)
    if not forms:
        return None
    doubt = f"; {forms[1]} would do as well" if len(forms) > 1 else ""
    arguments = {"parts": _parts(":" not in str(there[0])), "format": forms[0]}
    return f"a time written {forms[0]}{doubt}", arguments


def _since_1970(there: pl.Series) -> Found | None:
    low, high = float(there.min()), float(there.max())  # type: ignore[arg-type]
    for unit, (least, most) in _EPOCHS.items():
        if least <= low and high <= most and _NAME.search(there.name):
            arguments = {"parts": _parts(False), **({"unit": unit} if unit != "s" else {})}
            return f"a time in {unit} since 1970; its weekday and hour count", arguments
    return None


def _in_digits(there: pl.Series, distinct: int) -> Found | None:
    is_likely = distinct >= _MANY or (distinct >= 2 and _NAME.search(there.name))
    if not there.dtype.is_integer() or not is_likely:
        return None
    widths = {len(str(there.min())), len(str(there.max()))}
    for form, digits in _DIGITS.items():
        if widths == {digits} and _reads(there, form):
            return f"a time written {form}", {"parts": _parts("H" not in form), "format": form}
    return None


def _parts(is_date: bool) -> list[str]:
    return ["weekday", "month"] if is_date else ["weekday", "hour"]


def _reads(there: pl.Series, form: str) -> bool:
    text = there.head(1000).cast(pl.String)
    if form.endswith("%H"):
        text, form = text + "\n00", form + "\n%M"
    return not text.str.to_datetime(form, strict=False).null_count()

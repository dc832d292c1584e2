"""Hours, weekdays and other parts of times."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from penstock.core.errors import DataError, SchemaError
from penstock.core.params import NONE, STR, ListOf, OneOf
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.etl.operator import Columns, Operator

PARTS = ("year", "quarter", "month", "week", "day", "weekday", "hour", "minute", "second", "is_weekend")
_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1e-3}  # in microseconds
_DAY = "1970-01-01\n"  # of times that have none


class DateParts(Operator):
    """Parts of a time, as integer columns `NAME_PART`: `hour` from 0, `weekday` from 1 (Monday), `is_weekend` 0 or 1.

    The time is a date, a time stamp, a time of the day, text (ISO, or as `format` says), a number that `format` reads
    as text (Avazu's `14102100` by `%y%m%d%H`), or without a format a number of seconds since 1970 (or what `unit`
    says). A missing time has missing parts.

    Args:
        parts: of year, quarter, month, week, day, weekday, hour, minute, second, is_weekend.
        format: of text or numbers, in the letters of `strftime`.
        unit: of numbers since 1970: `"s"`, `"ms"`, `"us"` or `"ns"`.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"hour": [14102100, 14102523]})
    >>> Workflow(["hour"] >> DateParts(["weekday", "hour"], format="%y%m%d%H")).transform(frame).rows()
    [(2, 0), (6, 23)]
    """

    constraints = {"parts": ListOf(OneOf(PARTS)), "format": STR | NONE, "unit": OneOf(tuple(_UNITS))}

    def __init__(self, parts: Sequence[str] = ("weekday", "hour"), format: str | None = None, unit: str = "s") -> None:
        self.parts = parts
        self.format = format
        self.unit = unit

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        out = []
        for name in columns.names:
            times = self._times(frame[name])
            out += [_part(times, part).cast(pl.Int32).alias(f"{name}_{part}") for part in self.parts]
        return pl.DataFrame(out)

    def _times(self, series: pl.Series) -> pl.Series:
        if series.dtype == pl.Date:
            return series.cast(pl.Datetime("us"))
        if isinstance(series.dtype, pl.Datetime):
            return series
        if series.dtype == pl.Time:  # of the day, in nanoseconds
            return (series.cast(pl.Int64) // 1_000).cast(pl.Datetime("us"))
        if series.dtype.is_numeric() and self.format is None:
            return (series.cast(pl.Float64) * _UNITS[self.unit]).cast(pl.Int64).cast(pl.Datetime("us"))
        text = series.cast(pl.String)
        return self._from_text(text, series.name)

    def _from_text(self, text: pl.Series, name: str) -> pl.Series:
        if self.format is not None:
            # polars wants a minute beside the hour, which texts such as 14102100 lack.
            padded, spelled = text, self.format
            if not re.search("%[^HMSTRIpXfn.3]", spelled):  # a time of the day
                padded, spelled = _DAY + text, "%Y-%m-%d\n" + spelled
            if "%H" in spelled and "%M" not in spelled and "%T" not in spelled and "%R" not in spelled:
                padded, spelled = padded + "\n00", spelled + "\n%M"
            times = _read(padded, spelled)
        else:
            times = _read_iso(text)
        lost = (times.is_null() & text.is_not_null()).arg_true()
        if len(lost):
            asked = f"is no time in the format {self.format!r}" if self.format else "is no time in ISO form; say format"
            raise DataError(f"DateParts: column {name!r}: {text[int(lost[0])]!r} {asked}")
        return times

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        out = []
        for name in columns.names:
            column = inputs[name]
            if column.is_list or column.dtype in ("binary", "bool"):
                raise SchemaError(f"DateParts needs times; column {name!r} is {column.dtype}")
            role = Role.LABEL if column.role is Role.LABEL else Role.OTHER
            out += [ColumnSchema(f"{name}_{part}", "int32", role=role) for part in self.parts]
        return Schema(out)


# `%.f` takes any fraction or none, and four times as long as a length that is given: so the usual lengths come first.
_FRACTIONS = ("", ".%3f", ".%6f", "%.f")
_ISO = (
    "%Y-%m-%d",
    *(f"%Y-%m-%d %H:%M:%S{fraction}" for fraction in _FRACTIONS),
    *(f"%Y-%m-%dT%H:%M:%S{fraction}{zone}" for zone in ("", "Z") for fraction in _FRACTIONS),
    "%Y-%m-%d %H:%M",
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d",
)


def _read(text: pl.Series, form: str) -> pl.Series:
    return text.str.to_datetime(form, strict=False, time_unit="us")


def _read_iso(text: pl.Series) -> pl.Series:
    """Times in any of the forms; null from the first text on that is in none of them.

    A column is mostly of one form. So the first text says which, all are read by it, and the first text that it leaves
    says which comes next.

    >>> _read_iso(pl.Series(["2026-01-02", None, "2026/01/02 03:04:05"])).dt.to_string("%d %H").to_list()
    ['02 00', None, '02 03']
    """
    times = pl.Series(text.name, [None], pl.Datetime("us")).new_from_index(0, len(text))
    left = text
    while (first := left.is_not_null().arg_max()) is not None and left[first] is not None:
        form = next((form for form in _ISO if _read(left[first : first + 1], form).null_count() == 0), None)
        if form is None:
            break
        times = _read(left, form) if left is text else times.fill_null(_read(left, form))
        if times.null_count() == text.null_count():
            break
        left = pl.select(pl.when(times.is_null()).then(left)).to_series()
    return times


def _part(times: pl.Series, part: str) -> pl.Series:
    if part == "is_weekend":
        return times.dt.weekday() >= 6
    found: pl.Series = getattr(times.dt, part)()
    return found

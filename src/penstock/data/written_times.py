"""Times written as text, other than by ISO: in which form, told from the values."""

from __future__ import annotations

import re
from itertools import product

import polars as pl

# How each shape of a date is spelled; the first spelling that reads every value is taken. %B reads Jan and January.
_DATES = {
    r"\d{1,2}\.\d{1,2}\.\d{4}": ("%d.%m.%Y",),
    r"\d{1,2}\.\d{1,2}\.\d{2}": ("%d.%m.%y",),
    r"\d{1,2}/\d{1,2}/\d{4}": ("%m/%d/%Y", "%d/%m/%Y"),
    r"\d{1,2}/\d{1,2}/\d{2}": ("%m/%d/%y", "%d/%m/%y"),
    r"\d{1,2}-\d{1,2}-\d{4}": ("%d-%m-%Y", "%m-%d-%Y"),
    r"\d{1,2}-[A-Za-z]{3}-\d{4}": ("%d-%b-%Y",),
    r"\d{1,2}-[A-Za-z]{3}-\d{2}": ("%d-%b-%y",),
    r"\d{1,2}/[A-Za-z]{3}/\d{4}": ("%d/%b/%Y",),
    r"\d{1,2} [A-Za-z]{3,9} \d{4}": ("%d %B %Y",),
    r"[A-Za-z]{3,9} \d{1,2}, \d{4}": ("%B %d, %Y",),
    r"\d{1,2} \d{1,2}, \d{4}": ("%m %d, %Y", "%d %m, %Y"),
    r"\d{4}-\d{2}-\d{2}": ("%Y-%m-%d",),
    r"\d{4}/\d{1,2}/\d{1,2}": ("%Y/%m/%d",),
    r"\d{4}\.\d{1,2}\.\d{1,2}": ("%Y.%m.%d",),
}
_CLOCKS = {
    "": "",
    r"\d{1,2}:\d{2}": "%H:%M",
    r"\d{1,2}:\d{2}:\d{2}": "%H:%M:%S",
    r"\d{1,2}:\d{2}:\d{2}\.\d+": "%H:%M:%S%.f",
    r"\d{1,2}:\d{2} ?[AaPp][Mm]": "%I:%M %p",
    r"\d{1,2}:\d{2}:\d{2} ?[AaPp][Mm]": "%I:%M:%S %p",
}
_ZONE = r"[+-]\d{2}:?\d{2}"
_ISO = ("%Y-%m-%d", "%Y/%m/%d")  # dates that text sorts as time does
_SAMPLE = 1_000  # rows that rule most columns out


def written_forms(texts: pl.Series) -> list[str]:
    """The forms in the letters of `strftime` that read every text of a column as a time, the likeliest first.

    Args:
        texts: a column of text; what is missing does not count.

    Returns:
        One form, two where it cannot be told whether day or month comes first, none where some text is no time.

    >>> written_forms(pl.Series(["24.12.2025", "1.1.2026"])), written_forms(pl.Series(["Paris", "Rome"]))
    (['%d.%m.%Y'], [])
    >>> written_forms(pl.Series(["01/02/2026 5:30 PM"]))
    ['%m/%d/%Y %I:%M %p', '%d/%m/%Y %I:%M %p']
    """
    there = texts.drop_nulls()
    if there.dtype != pl.String or not there.len():
        return []
    return [form for form in _shaped(str(there[0])) if _reads(there.head(_SAMPLE), form) and _reads(there, form)]


def form_to_sort_by(texts: pl.Series) -> str | None:
    """The form to read a column of text by before it is put in the order of time; None where text is in that order.

    Args:
        texts: a column.

    Returns:
        The form, where there is one.

    >>> form_to_sort_by(pl.Series(["24.12.2025"])), form_to_sort_by(pl.Series(["2025-12-24"]))
    ('%d.%m.%Y', None)
    """
    form = next(iter(written_forms(texts)), None)
    if form is None or (form.startswith(_ISO) and "%z" not in form and not _has_short_parts(texts)):
        return None
    return form


def can_be_sorted(texts: pl.Series) -> bool:
    """Whether a column of text may well hold times: in a form that is known, or digits that text sorts as time does.

    Args:
        texts: a column.

    Returns:
        Whether.

    >>> [can_be_sorted(pl.Series([text, text])) for text in ("1.2.2026", "2025-12-24T10:00Z", "2025W07", "u42")]
    [True, True, True, False]
    """
    there = texts.drop_nulls()
    is_even = bool(there.str.contains(r"^\d").all()) and there.str.len_chars().n_unique() <= 1
    return is_even or bool(there.str.contains(r"^\d{4}-\d\d-\d\d").all()) or bool(written_forms(there))


def read_times(texts: pl.Series, form: str) -> pl.Series:
    """Times of a column of text; null where one is no time.

    Args:
        texts: as `form` says.
        form: in the letters of `strftime`.

    Returns:
        A column of times.
    """
    return texts.str.to_datetime(form, strict=False, time_unit="us")


def _shaped(text: str) -> list[str]:
    """The forms that a text may be written in, by its shape."""
    found = []
    for (date, spelled), (clock, hours) in product(_DATES.items(), _CLOCKS.items()):
        between = r"([ T:]|, )" if clock else "()"
        match = re.fullmatch(rf"{date}{between}{clock}( ?{_ZONE})?" if clock else date, text)
        if match is None:
            continue
        zone = "" if not clock or match[2] is None else (" %z" if match[2].startswith(" ") else "%z")
        hours = hours.replace(" %p", "%p") if clock and not re.search(r" [AaPp][Mm]", text) else hours
        found += [f"{day}{match[1] if clock else ''}{hours}{zone}" for day in spelled]
    return found


def _reads(texts: pl.Series, form: str) -> bool:
    return not read_times(texts, form).null_count()


def _has_short_parts(texts: pl.Series) -> bool:
    """Whether months or days have one digit somewhere: 2025/9/1 is before 2025/10/1, and behind it as text."""
    return texts.drop_nulls().str.len_chars().n_unique() > 1

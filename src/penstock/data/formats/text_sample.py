"""Some rows of a text file, from its beginning and from places all over it, and the dtypes that suit them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import polars as pl

from penstock.core.runtime.forks import require_polars
from penstock.data.formats.text_bytes import as_it_is, file_size, read_bytes
from penstock.data.formats.text_sniffing import BOM, MISSING

_HEAD_BYTES = 1 << 20
_WINDOW_BYTES = 1 << 16
_WINDOWS = 8
_INTEGER = r"^[-+]?[0-9]+$"
_LEADING_ZERO = r"^[-+]?0[0-9]"


def first_lines(path: str, storage_options: dict[str, Any] | None = None) -> bytes:
    """The first megabyte of a file, without the last line where that is cut off, and without a byte order mark."""
    head = read_bytes(path, 0, min(file_size(path, storage_options), _HEAD_BYTES), storage_options).tobytes()
    if len(head) == _HEAD_BYTES:  # do not judge by half a line
        head = head[: head.rfind(b"\n") + 1]
    return head.removeprefix(BOM)


def read_sample(
    path: str,
    head: bytes,
    separator: str,
    quote: str | None,
    has_header: bool,
    storage_options: dict[str, Any] | None = None,
) -> pl.DataFrame:
    """Rows from the beginning of the file and from places all over it, every column as text.

    Raises:
        DataError: the quotes cannot be read.
    """
    from penstock.data.formats.text_layout import unreadable_quotes

    require_polars(f"finding out how {path} is laid out")
    text = head if head.endswith(b"\n") else head + b"\n"
    try:
        return pl.read_csv(
            io.BytesIO(as_it_is(text + _elsewhere(path, len(head), quote, storage_options))),
            encoding="utf8-lossy",
            has_header=has_header,
            separator=separator,
            quote_char=quote,
            infer_schema=False,
            truncate_ragged_lines=True,
            ignore_errors=True,
        )
    except pl.exceptions.PolarsError as error:
        raise unreadable_quotes(path, head, separator, 0, error) from None


def _elsewhere(path: str, start: int, quote: str | None, storage_options: dict[str, Any] | None) -> bytes:
    """Whole lines from places behind the first ones: a dtype that suits the beginning may not suit the rest."""
    size = file_size(path, storage_options)
    found = []
    step = (size - start) // (_WINDOWS + 1)
    if step < _WINDOW_BYTES:
        return b""
    for number in range(1, _WINDOWS + 1):
        at = start + number * step
        window = read_bytes(path, at, min(size, at + _WINDOW_BYTES), storage_options).tobytes()
        window = window[window.find(b"\n") + 1 : window.rfind(b"\n") + 1]
        if quote is None or quote.encode() not in window:  # else nobody knows which newlines are inside quotes
            found.append(window)
    return b"".join(found)


def missing_words(values: pl.Series) -> list[str]:
    """Words that stand for a missing value in a column that holds numbers otherwise; none where it holds text.

    >>> missing_words(pl.Series(["1", "NA", "2.5", None])), missing_words(pl.Series(["NA", "x"]))
    (['NA'], [])
    >>> missing_words(pl.Series(["1", " ", "2.5"]))
    [' ']
    """
    stand_for_nothing = values.is_in(MISSING) | (values.str.strip_chars() == "")
    words = values.filter(stand_for_nothing).unique().sort().to_list()
    others = values.filter(~stand_for_nothing).drop_nulls()
    return words if words and others.len() and not others.cast(pl.Float64, strict=False).null_count() else []


def infer_dtype(values: pl.Series, missing: Sequence[str] = ()) -> str:
    """The dtype that holds all these texts and gives each of them back.

    Numbers with leading zeros (`00501`) and integers beyond 64 bits are text: as numbers they would not be the same.

    >>> [infer_dtype(pl.Series(v)) for v in (["1", "-2"], ["18446744073709551615"], ["007"], ["1.5", "2"], ["true"])]
    ['int64', 'uint64', 'string', 'float64', 'bool']
    """
    values = values.filter(~values.is_in(list(missing))) if missing else values
    values = values.drop_nulls()
    if not values.len():
        return "string"
    if values.str.contains(_INTEGER).all():
        if values.str.contains(_LEADING_ZERO).any():
            return "string"
        for dtype, name in ((pl.Int64, "int64"), (pl.UInt64, "uint64")):
            if not values.cast(dtype, strict=False).null_count():
                return name
        return "string"
    if values.str.to_lowercase().is_in(["true", "false"]).all():
        return "bool"
    return "string" if values.cast(pl.Float64, strict=False).null_count() else "float64"

"""The fast path for text: numbers and hexadecimal ids straight from bytes into Arrow columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from penstock.data.formats.text_bytes import line_pieces
from penstock.data.formats.text_layout import TextLayout
from penstock.data.partition import named
from penstock.kernels import cpu_text, cpu_text_fields
from penstock.kernels.cpu_lines import count_byte


def parse(buffer: np.ndarray, layout: TextLayout, wanted: list[str]) -> tuple[pl.DataFrame, list[tuple[int, str]], int]:
    """`(frame, [(line, what is wrong), …], number of malformed lines)`.

    With `on_error="skip"` every column is checked, so that the rows left do not depend on the columns wanted.
    """
    return _frame(cpu_text.parse(buffer, *_about(layout, wanted)), layout, wanted)


def parse_range(
    path: str, start: int, end: int, layout: TextLayout, wanted: list[str], num_rows: int
) -> tuple[pl.DataFrame, list[tuple[int, str]], int] | None:
    """The same of a range of a local file that has numbers and hexadecimal ids alone; None where something is quoted.

    Args:
        path, start, end: the range.
        layout: of the file.
        wanted: the columns to return.
        num_rows: about how many rows there are.
    """
    pieces = _unquoted(line_pieces(path, start, end), layout.quote)
    try:
        parsed = cpu_text.parse_pieces(pieces, *_about(layout, wanted), num_rows=num_rows)
    except _QuotedError:
        return None
    return _frame(parsed, layout, wanted)


class _QuotedError(Exception):
    """A quote was found, which the kernel does not read."""


def _unquoted(pieces: Iterator[tuple[np.ndarray, int]], quote: str | None) -> Iterator[tuple[np.ndarray, int]]:
    for buffer, size in pieces:
        if quote is not None and count_byte(buffer[:size], ord(quote)):
            raise _QuotedError
        yield buffer, size


def _about(layout: TextLayout, wanted: list[str]) -> tuple[list[str], list[int], bytes, str]:
    kinds = [layout.dtypes[name] for name in layout.names]
    keep = sorted(layout.names.index(name) for name in wanted)
    return kinds, keep, layout.separator.encode(), layout.on_error


def _frame(
    parsed: cpu_text.ParsedText, layout: TextLayout, wanted: list[str]
) -> tuple[pl.DataFrame, list[tuple[int, str]], int]:
    errors = [(error.line, _describe(error, layout)) for error in parsed.errors]
    if errors and layout.on_error == "raise":
        return pl.DataFrame(), errors, parsed.num_bad_lines
    return parsed.to_polars(layout.names).select(named(wanted)), errors, parsed.num_bad_lines


def _describe(error: cpu_text.LineError, layout: TextLayout) -> str:
    if error.code in (cpu_text_fields.TOO_FEW_FIELDS, cpu_text_fields.TOO_MANY_FIELDS):
        return f"{error.text}, {len(layout.names)} expected"
    name = layout.names[error.column]
    return f"column {name!r}: {error.text} ({layout.dtypes[name]})"

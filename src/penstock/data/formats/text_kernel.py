"""The fast path for text: numbers and hexadecimal ids straight from bytes into Arrow columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from penstock.core.errors import DataError
from penstock.data.formats.text_bytes import shorter
from penstock.data.formats.text_layout import TextLayout
from penstock.data.partition import select
from penstock.kernels import cpu_text, cpu_text_fields
from penstock.kernels.cpu_text_columns import LineError, ParsedText

PIECE = cpu_text.PIECE  # bytes of a file that are read and parsed at a time


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
    quote = -1 if layout.quote is None else ord(layout.quote)
    try:
        with Path(path).open("rb", buffering=0) as file:
            parsed = cpu_text.parse_handle(
                file.fileno(), start, end, *_about(layout, wanted), num_rows=num_rows, quote=quote, piece=PIECE
            )
    except EOFError:
        raise shorter(path) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    return None if parsed is None else _frame(parsed, layout, wanted)


def _about(layout: TextLayout, wanted: list[str]) -> tuple[list[str], list[int], bytes, str]:
    kinds = [layout.dtypes[name] for name in layout.names]
    keep = sorted(layout.names.index(name) for name in wanted)
    return kinds, keep, layout.separator.encode(), layout.on_error


def _frame(
    parsed: ParsedText, layout: TextLayout, wanted: list[str]
) -> tuple[pl.DataFrame, list[tuple[int, str]], int]:
    errors = [(error.line, _describe(error, layout)) for error in parsed.errors]
    if errors and layout.on_error == "raise":
        return pl.DataFrame(), errors, parsed.num_bad_lines
    frame = parsed.to_polars(layout.names)
    frame = frame if frame.columns == wanted else select(frame, wanted, "the text")
    return frame, errors, parsed.num_bad_lines


def _describe(error: LineError, layout: TextLayout) -> str:
    if error.code in (cpu_text_fields.TOO_FEW_FIELDS, cpu_text_fields.TOO_MANY_FIELDS):
        return f"{error.text}, {len(layout.names)} expected"
    name = layout.names[error.column]
    return f"column {name!r}: {error.text} ({layout.dtypes[name]})"

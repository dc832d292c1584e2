"""The fast path for text: numbers and hexadecimal ids straight from bytes into Arrow columns."""

from __future__ import annotations

import numpy as np
import polars as pl

from penstock.data.formats.text_layout import TextLayout
from penstock.data.partition import named
from penstock.kernels import cpu_text, cpu_text_fields


def parse(buffer: np.ndarray, layout: TextLayout, wanted: list[str]) -> tuple[pl.DataFrame, list[tuple[int, str]], int]:
    """`(frame, [(line, what is wrong), …], number of malformed lines)`.

    With `on_error="skip"` every column is checked, so that the rows left do not depend on the columns wanted.
    """
    kinds = [layout.dtypes[name] for name in layout.names]
    keep = sorted(layout.names.index(name) for name in wanted)
    parsed = cpu_text.parse(buffer, kinds, keep, layout.separator.encode(), layout.on_error)
    errors = [(error.line, _describe(error, layout)) for error in parsed.errors]
    if errors and layout.on_error == "raise":
        return pl.DataFrame(), errors, parsed.num_bad_lines
    return parsed.to_polars(layout.names).select(named(wanted)), errors, parsed.num_bad_lines


def _describe(error: cpu_text.LineError, layout: TextLayout) -> str:
    if error.code in (cpu_text_fields.TOO_FEW_FIELDS, cpu_text_fields.TOO_MANY_FIELDS):
        return f"{error.text}, {len(layout.names)} expected"
    name = layout.names[error.column]
    return f"column {name!r}: {error.text} ({layout.dtypes[name]})"

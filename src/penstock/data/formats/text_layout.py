"""How a delimited file is laid out: told by the caller, or inferred from its first rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from penstock.core import dtypes as dt
from penstock.core.choices import ON_ERROR
from penstock.core.errors import ColumnNotFoundError, DataError, ParameterError
from penstock.core.runtime.forks import require_polars
from penstock.data.formats.base import OpenOptions
from penstock.data.formats.text_bytes import file_size, is_utf8, read_bytes

_INFER_BYTES = 1 << 20


@dataclass(frozen=True)
class TextLayout:
    """How a delimited file is laid out; `dtypes` may say `hex32`/`hex64` for hexadecimal ids."""

    names: tuple[str, ...]
    dtypes: Mapping[str, str]
    separator: str
    has_header: bool
    quote: str | None
    on_error: str = "raise"

    @property
    def fast(self) -> bool:
        """Whether the kernel can read every column: numbers, hexadecimal ids and text."""
        known = (*dt.INTEGERS, *dt.FLOATS, *dt.HEX, "string")
        return all(self.dtypes[n] in known for n in self.names)

    def suits(self, buffer: np.ndarray) -> bool:
        """Whether the kernel can read these bytes, whose text is UTF-8: nothing quoted, and not too much of it."""
        from penstock.kernels.cpu_lines import count_byte

        if not self.fast or (self.quote is not None and count_byte(buffer, ord(self.quote))):
            return False
        return not self.has_text or len(buffer) < 2**31

    @property
    def has_text(self) -> bool:
        """Whether some column holds text: what is no UTF-8 is found in others as no number is."""
        return any(self.dtypes[n] not in (*dt.INTEGERS, *dt.FLOATS, *dt.HEX) for n in self.names)

    @property
    def polars_schema(self) -> dict[str, pl.DataType]:
        return {n: dt.to_polars(self.dtypes[n]) for n in self.names}


def infer_layout(path: str, separator: str, quote: str | None, options: OpenOptions) -> TextLayout:
    """Fill in what the caller left open from the format's habits and the first rows of one file.

    Args:
        path: the file.
        separator: of the format, where the options name none.
        quote: the character that quotes a field, or None where the format has none.
        options: names, dtypes, separator, header and what a malformed line does.
    """
    names, dtypes, on_error, storage_options = options.names, options.dtypes, options.on_error, options.storage_options
    if on_error not in ON_ERROR:
        raise ParameterError(f"on_error must be one of {', '.join(map(repr, ON_ERROR))}, got {on_error!r}")
    separator = options.separator or separator
    if len(separator.encode()) != 1:
        raise ParameterError(f"separator must be one ASCII character, got {separator!r}")
    has_header = names is None if options.header is None else options.header
    given = {n: d if isinstance(d, str) and d in dt.HEX else dt.canonical(d) for n, d in (dtypes or {}).items()}
    if names is not None and all(n in given for n in names):
        return TextLayout(tuple(names), given, separator, has_header, quote, on_error)
    require_polars(f"finding out how {path} is laid out")
    head = read_bytes(path, 0, min(file_size(path, storage_options), _INFER_BYTES), storage_options).tobytes()
    if len(head) == _INFER_BYTES:  # do not judge by half a line
        head = head[: head.rfind(b"\n") + 1]
    if not head.strip():
        raise DataError(f"{path} is empty; columns and dtypes cannot be inferred from it: pass names= and dtypes=")
    if has_header and not is_utf8(head.partition(b"\n")[0]):
        raise DataError(f"{path}, line 1: the names of its columns are no UTF-8; write them so, or pass names=")
    try:
        sample = pl.read_csv(
            io.BytesIO(head),
            encoding="utf8-lossy",
            has_header=has_header,
            separator=separator,
            quote_char=quote,
            infer_schema_length=10_000,
            truncate_ragged_lines=True,
            ignore_errors=True,
        )
    except pl.exceptions.PolarsError as error:
        raise unreadable_quotes(path, head, separator, 0, error) from None
    found = list(names) if names is not None else sample.columns
    if names is not None and len(found) != len(sample.columns):
        raise DataError(
            f"{path} has {len(sample.columns)} columns (separator {separator!r}), names= lists {len(found)}"
        )
    for name in given:
        if name not in found:
            raise ColumnNotFoundError(name, found, f"{path} (named in dtypes=)")
    inferred = {n: dt.canonical(d) for n, d in zip(found, sample.dtypes, strict=True)}
    return TextLayout(tuple(found), {**inferred, **given}, separator, has_header, quote, on_error)


def unreadable_quotes(path: str, text: bytes, separator: str, lines_before: int, error: Exception) -> DataError:
    """The error for quotes that nobody can read, with their line: Python's reader, when strict, says where."""
    reader = csv.reader(io.StringIO(text.decode(errors="replace"), newline=""), delimiter=separator, strict=True)
    where, reason, line = "", str(error).partition("\n")[0], 1
    try:
        for _ in reader:
            line = reader.line_num + 1  # where the next record begins
    except csv.Error as found:
        where, reason = f", line {lines_before + line}", str(found)
    return DataError(
        f"{path}{where}: the quotes cannot be read ({reason}); a field with a quote in it is written "
        f'"5"" pipe", in quotes and with the quote doubled'
    )

"""How a delimited file is laid out: told by the caller, or inferred from its first rows."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from penstock.core import dtypes as dt
from penstock.core.choices import ON_ERROR
from penstock.core.errors import ColumnNotFoundError, DataError, ParameterError
from penstock.data.formats.base import OpenOptions
from penstock.data.formats.names import check_names, check_width, refuse_packed
from penstock.data.formats.text_bytes import file_size, is_utf8
from penstock.data.formats.text_sample import first_lines, infer_dtype, missing_words, read_sample
from penstock.data.formats.text_sniffing import (
    SEPARATORS,
    are_names,
    fields_of,
    is_aligned,
    is_json,
    is_sparse,
    looks_like_a_row,
    num_comments,
    sniff_quote,
    sniff_separator,
)

_LOOK_BYTES = 1 << 16


@dataclass(frozen=True)
class TextLayout:
    """How a delimited file is laid out; `dtypes` may say `hex32`/`hex64` for hexadecimal ids.

    `missing` are words that stand for no value, by column; `assumed` says in words what nobody told.
    """

    names: tuple[str, ...]
    dtypes: Mapping[str, str]
    separator: str
    has_header: bool
    quote: str | None
    on_error: str = "raise"
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    assumed: tuple[str, ...] = field(default=(), compare=False)
    encoding: str = "utf-8"  # of the file; what is read is UTF-8
    long_separator: str | None = None  # of the file, where it is longer than the one character that is read

    @property
    def file_separator(self) -> str:
        """The separator as the file has it."""
        return self.long_separator or self.separator

    @property
    def fast(self) -> bool:
        """Whether the kernel can read every column: numbers, hexadecimal ids and text."""
        known = (*dt.INTEGERS, *dt.FLOATS, *dt.HEX, "string")
        return not self.missing and all(self.dtypes[n] in known for n in self.names)

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


def _is_json(path: str, head: bytes) -> DataError:
    """The error for JSON by another name, or of a form that has no lines."""
    if not head.lstrip().startswith(b"["):
        return DataError(f"{path} holds JSON lines; give it a name that ends in .jsonl (packed: .jsonl.gz)")
    return DataError(
        f"{path} holds one array of JSON, which is not read; write it as parquet once: python -c "
        f'\'import polars; polars.read_json("{path}").write_parquet("rows.parquet")\''
    )


def _refuse_comments(path: str, head: bytes, separator: str, quote: str | None) -> None:
    text = head[:_LOOK_BYTES].decode(errors="replace")
    if count := num_comments(text, separator, quote):
        lines = "the first line is a comment" if count == 1 else f"the first {count} lines are comments"
        raise DataError(
            f"{path}: {lines} ({text.splitlines()[0][:60]!r}); what is read begins "
            f"with names or rows: tail -n +{count + 1} {path} writes it so"
        )


def infer_layout(
    path: str, separator: str, quote: str | None, options: OpenOptions, original: str | None = None
) -> TextLayout:
    """Fill in what the caller left open from the format's habits and some rows of one file.

    Args:
        path: the file.
        separator: of the format, where the options name none and the rows do not speak for another.
        quote: the character that quotes a field, or None where the format has none by habit.
        options: names, dtypes, separator, quote, header, missing words and what a malformed line does.
        original: the file that this is a copy of, for warnings; errors are given its name by whoever made the copy.

    Raises:
        ParameterError: an option is none that there is.
        DataError: the file cannot be read so.
    """
    _check(options)
    names = options.names
    given = dt.canonical_each(options.dtypes or {})
    is_told = names is not None and all(n in given for n in names)
    head = first_lines(path, options.storage_options)
    if not head.strip():
        if not is_told and not head and file_size(path, options.storage_options):
            raise DataError(
                f"{path}: the first line is longer than a megabyte, so columns and dtypes cannot be inferred from it: "
                f"pass names= and dtypes=, or separator= and line ends that it has"
            )
        if not is_told:
            raise DataError(f"{path} is empty; columns and dtypes cannot be inferred from it: pass names= and dtypes=")
        has_header = bool(options.header)
        return TextLayout(
            tuple(names or ()), given, options.separator or separator, has_header, quote, options.on_error
        )
    refuse_packed(path, head)
    if not is_told and b"\n" not in head and b"\r" in head.rstrip(b"\r"):
        raise DataError(
            f"{path}: its lines end in a carriage return alone, and would be read as one; "
            f"tr '\\r' '\\n' < {path} writes them with line feeds"
        )
    if options.separator is None and is_json(head):
        raise _is_json(path, head)
    if options.separator is None and is_sparse(head):
        raise DataError(
            f"{path} holds pairs of index and value (libsvm), which are not read; write what has an index of its own "
            f"as a column of its own"
        )
    _refuse_comments(path, head, separator, quote)
    look = _look(head, separator, quote, options)
    if options.separator is None and is_aligned(head[:_LOOK_BYTES].decode(errors="replace"), look.separator, quote):
        raise DataError(
            f"{path}: its fields are aligned by blanks, and a separator is one character; "
            f"awk '{{$1=$1}}1' {path} leaves one blank between them"
        )
    check_width(len(look.first), path)
    if look.has_header and names is None and not is_utf8(head.partition(b"\n")[0]):
        raise DataError(f"{path}, line 1: the names of its columns are no UTF-8; pass names= or encoding=")
    if options.header and look.first_is_a_row:
        warnings.warn(
            f"{original or path}: the first line looks like the others and was read as the names of the columns "
            f"({', '.join(look.first[:6])}…); pass header=False and names= if it is a row",
            stacklevel=2,
        )
    if options.separator is not None and names is None and len(look.first) == 1:
        _warn_of_separator(original or path, head, look)
    missing: Mapping[str, tuple[str, ...]] = {}
    if is_told:
        found, dtypes = _names(path, list(names or ()), names, look.separator, given), given
        missing = {name: own for name in found if (own := _told_missing(name, options))}
    else:
        sample = read_sample(path, head, look.separator, look.quote, look.has_header, options.storage_options)
        columns = _header(head, look, sample) if look.has_header else [""] * sample.width
        found = _names(path, columns, names, look.separator, given)
        words = {n: _missing(n, sample[c], given.get(n), options) for n, c in zip(found, sample.columns, strict=True)}
        missing = {name: own for name, own in words.items() if own}
        inferred = {n: infer_dtype(sample[c], words[n]) for n, c in zip(found, sample.columns, strict=True)}
        dtypes = {**inferred, **given}
    again = _assumed_names(look.first, found) if look.has_header and names is None else []
    assumed = (*look.assumed, *again, *_assumed_missing(missing, options))
    return TextLayout(
        tuple(found), dtypes, look.separator, look.has_header, look.quote, options.on_error, missing, assumed
    )


def _warn_of_separator(path: str, head: bytes, look: _Look) -> None:
    """Lines that the separator leaves whole and another one cuts evenly."""
    text = head[:_LOOK_BYTES].decode(errors="replace")
    other = sniff_separator(text, look.separator, look.quote)
    if other != look.separator:
        width = len(fields_of(text, other, look.quote, most=1)[0])
        warnings.warn(
            f"{path}: with separator {look.separator!r} a line is one field, and {width} fields with {other!r}; pass "
            f"separator={other!r} if that is what they are",
            stacklevel=3,
        )


def _check(options: OpenOptions) -> None:
    if options.on_error not in ON_ERROR:
        raise ParameterError(f"on_error must be one of {', '.join(map(repr, ON_ERROR))}, got {options.on_error!r}")
    for name, value, least in (("separator", options.separator, 1), ("quote", options.quote, 0)):
        if value is not None and (not isinstance(value, str) or not least <= len(value.encode()) <= 1):
            raise ParameterError(f"{name} must be one ASCII character, got {value!r}")


@dataclass(frozen=True)
class _Look:
    """What the first lines look like, and which of it nobody said."""

    separator: str
    quote: str | None
    has_header: bool
    first: list[str]
    first_is_a_row: bool
    assumed: tuple[str, ...]


def _look(head: bytes, separator: str, quote: str | None, options: OpenOptions) -> _Look:
    text = head[:_LOOK_BYTES].decode(errors="replace")
    assumed = []
    if options.quote is not None:
        quote = options.quote or None
    elif quote is None:
        quote = sniff_quote(text, options.separator or "".join((separator, *SEPARATORS)))
        assumed += ['fields quoted by "'] if quote else []
    if options.separator is None:
        num_fields = None if options.names is None else len(options.names)
        separator = sniff_separator(text, separator, quote, num_fields)
        assumed.insert(0, f"separator {separator!r}")
    else:
        separator = options.separator
    rows = fields_of(text, separator, quote)
    first = rows[0] if rows else []
    is_row = looks_like_a_row(first, rows[1:])
    if options.header is not None:
        has_header = options.header
    elif options.names is not None:
        has_header = first == list(options.names) or (len(first) == len(options.names) and are_names(first, rows[1:]))
    else:
        has_header = not is_row
        assumed.append("a header" if has_header else "no header, so columns are called column_1, column_2, …")
    return _Look(separator, quote, has_header, first, is_row, tuple(assumed))


def _header(head: bytes, look: _Look, sample: pl.DataFrame) -> list[str]:
    """The names in the first line; polars leaves quotes inside quoted names doubled, and tells repeated ones apart."""
    found = fields_of(head.decode(errors="replace"), look.separator, look.quote, most=1)[0]
    is_plain = len(found) == sample.width and len(set(found)) == len(found)
    return found if is_plain else sample.columns


def _names(
    path: str, columns: list[str], names: Sequence[str] | None, separator: str, given: Mapping[str, str]
) -> list[str]:
    found = list(names) if names is not None else [name or f"column_{i + 1}" for i, name in enumerate(columns)]
    if len(found) != len(columns):
        raise DataError(f"{path} has {len(columns)} columns (separator {separator!r}), names= lists {len(found)}")
    check_names(found, path)
    for name, dtype in given.items():
        if name not in found:
            raise ColumnNotFoundError(name, found, f"{path} (named in dtypes=)")
        if dtype.startswith("list["):
            raise ParameterError(
                f"dtypes={{{name!r}: {dtype!r}}}: a field of text is one value; read it as 'string', and take it apart "
                f"with the operator Split"
            )
    return found


def _assumed_names(header: Sequence[str], names: Sequence[str]) -> list[str]:
    """Columns whose name another one has already."""
    pairs = zip(header, names, strict=False)
    return [f"another {own!r} as {name!r}" for own, name in pairs if own and name.startswith(f"{own}_duplicated_")]


def _told_missing(name: str, options: OpenOptions) -> tuple[str, ...]:
    told = options.missing or ()
    return tuple(told.get(name, ()) if isinstance(told, Mapping) else told)


def _missing(name: str, values: pl.Series, dtype: str | None, options: OpenOptions) -> tuple[str, ...]:
    """The words that stand for no value in a column."""
    if options.missing is not None:
        return _told_missing(name, options)
    return () if dtype is not None and dtype not in dt.NUMERIC else tuple(missing_words(values))


def _assumed_missing(missing: Mapping[str, tuple[str, ...]], options: OpenOptions) -> list[str]:
    if options.missing is not None or not missing:
        return []
    found = {word for own in missing.values() for word in own}
    words = [
        *(["blanks"] if any(not word.strip() for word in found) else []),
        *map(repr, sorted(filter(str.strip, found))),
    ]
    return [f"{', '.join(words)} as missing in {', '.join(missing)}"]


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

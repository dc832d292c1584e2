"""What a text file looks like, judged by its first lines: encoding, separator, quotes, header, missing values."""

from __future__ import annotations

import codecs
import csv
import io
import re

SEPARATORS = (",", "\t", ";", "|")
# In a column of numbers. What spreadsheets write for an error is among them.
MISSING = (
    "NA", "N/A", "n/a", "na", "NULL", "Null", "null", "(null)", "None", "none", "NONE", "NaN", "nan", "\\N", "?", "-",
    "--", ".", "<NA>", "#N/A", "#NA", "#NULL!", "#DIV/0!", "#VALUE!", "NIL", "nil", "unknown", "Unknown", "UNKNOWN",
    "missing", "Missing",
)  # fmt: skip
BOM = codecs.BOM_UTF8
_LINES = 200
_LOOK = 4096  # bytes
_EVEN = 0.95  # of the lines must have as many fields
MOSTLY_EVEN = 0.8  # for the separator that the file's name speaks of
_NAME = re.compile(r"[A-Za-z_][\w .-]*")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
# A letter of Western Europe beside a plain one, as only single-byte encodings write it. ÿ ends damaged files.
_ACCENTED = re.compile(rb"[A-Za-z][\xe0-\xf6\xf8-\xfd]|[\xe0-\xf6\xf8-\xfd][A-Za-z]")
_NO_CP1252 = re.compile(rb"[\x80\x81\x8d\x8f\x90\x9d\xff]")
_UTF8_LETTER = re.compile(rb"[\xc3-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}")


def sniff_encoding(head: bytes) -> str:
    """The encoding of a file by its first bytes; UTF-8 unless they speak clearly for another.

    >>> sniff_encoding("name;café".encode("cp1252")), sniff_encoding("é".encode()), sniff_encoding("a".encode("utf-16"))
    ('cp1252', 'utf-8', 'utf-16')
    """
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if (half := _without_mark(head)) is not None:
        return half
    if head.isascii():
        return "utf-8"
    speaks_for = _ACCENTED.search(head) and not _UTF8_LETTER.search(head) and not _NO_CP1252.search(head)
    return "cp1252" if speaks_for else "utf-8"


def _without_mark(head: bytes) -> str | None:
    """UTF-16 without its mark: of plain letters every other byte is nought."""
    even, odd = head[0:_LOOK:2], head[1:_LOOK:2]
    if len(odd) < 8 or bool(even.count(0)) == bool(odd.count(0)):
        return None
    if max(even.count(0), odd.count(0)) < 0.7 * len(odd):
        return None
    return "utf-16-le" if odd.count(0) else "utf-16-be"


def is_sparse(head: bytes) -> bool:
    """Whether lines are a label and pairs of index and value, as libsvm and libffm write them.

    >>> is_sparse(b"1 3:1 7:0.5\\n0 2:1\\n"), is_sparse(b"1 0:3:1 1:7:1\\n"), is_sparse(b"08:15 a\\n")
    (True, True, False)
    """
    lines = head.splitlines()[: 1 + head.count(b"\n")][:20]
    return bool(lines) and all(re.fullmatch(rb"[-+]?[\d.]+( +\d+:(\d+:)?[-+.\deE]+)+ *", line) for line in lines)


def is_json(head: bytes) -> bool:
    """Whether some lines are JSON, one object in each or an array of them, rather than fields of a row.

    >>> is_json(b'{"user": 1, "click": 0}\\n'), is_json(b'[\\n {"user": 1}]'), is_json(b"{a},b\\n")
    (True, True, False)
    """
    return re.match(rb'(\xef\xbb\xbf)?\s*(\[\s*)?\{\s*"([^"\\]|\\.)*"\s*:', head) is not None


def num_comments(text: str, separator: str, quote: str | None) -> int:
    """How many lines of `#` stand before a table; a single one with as many fields as the others holds the names.

    >>> num_comments("# made today\\na,b\\n1,2\\n", ",", '"'), num_comments("#a,b\\n1,2\\n", ",", '"')
    (1, 0)
    """
    lines = text.removeprefix("\ufeff").splitlines(keepends=True)
    count = next((i for i, line in enumerate(lines) if not line.startswith("#")), 0)
    table = "".join(lines[count:])
    if not count or not table.strip():
        return 0
    separator = sniff_separator(table, separator, quote)
    first, row = (_first(_widths(part, separator, quote)) for part in (lines[0], table))
    return 0 if count == 1 and first == row else count


def sniff_separator(text: str, own: str, quote: str | None, num_fields: int | None = None) -> str:
    """The separator of some lines: the format's own, unless the lines are even with another one only.

    Where the number of fields is known, only a separator that cuts the first line into so many takes the own one's
    place.

    >>> sniff_separator("a;b\\n1;2,5\\n", ",", '"'), sniff_separator("a,b\\n1,2;5\\n", ",", '"')
    (';', ',')
    >>> sniff_separator("7|So, so|0|1|0|1\\n8|No, no|1|0|1|1\\n", ",", '"')  # a comma in every title
    '|'
    """
    widths = {sep: _widths(text, sep, quote) for sep in dict.fromkeys((own, *SEPARATORS))}
    if _first(widths[own]) > 1 and _evenness(widths[own]) >= MOSTLY_EVEN and not _is_inside(own, widths, text, quote):
        return own
    even = [sep for sep, found in widths.items() if _first(found) > 1 and _evenness(found) >= _EVEN]
    if num_fields is not None:
        fitting = [sep for sep in even if _first(widths[sep]) == num_fields]
        return own if _first(widths[own]) == num_fields or not fitting else fitting[0]
    if even:
        return max(even, key=lambda sep: _first(widths[sep]))
    blank = _widths(text, " ", quote)
    if _first(widths[own]) <= 1 and _first(blank) > 2 and _evenness(blank) == 1 and _has_numbers(text):
        return " "
    return own


def cuts_within_fields(separator: str, other: str, lines: list[list[str]]) -> bool:
    """Whether a separator cuts fields of another one into pieces, so that the other one is in every piece.

    Args:
        separator: that is in doubt.
        other: that may be the right one.
        lines: the pieces that the separator leaves.

    Returns:
        Whether it is no separator.

    >>> cuts_within_fields(",", "|", [["7|So", " so|0"]]), cuts_within_fields(",", "|", [["7", "so|no"]])
    (True, False)
    """
    return bool(lines) and all(other in piece for line in lines for piece in line)


def _is_inside(own: str, widths: dict[str, list[int]], text: str, quote: str | None) -> bool:
    """Whether the own separator is a part of fields that another one cuts every line evenly into, many more of them."""
    wider = [sep for sep, found in widths.items() if _first(found) >= 3 * _first(widths[own]) and _evenness(found) == 1]
    rows = fields_of(text, own, quote) if wider else []
    return any(cuts_within_fields(own, sep, rows) for sep in wider)


def is_aligned(text: str, separator: str, quote: str | None) -> bool:
    """Whether lines are cut evenly by stretches of blanks, of which some are longer, and by nothing else.

    >>> is_aligned("user   age\\nann    30\\nbob    9\\n", ",", '"'), is_aligned("a note  or\\nanother\\n", ",", '"')
    (True, False)
    """
    lines = [line for line in text.splitlines() if line.strip()][:_LINES]
    if max(_widths(text, separator, quote), default=0) > 1 or not any("  " in line.strip() for line in lines):
        return False
    rows = [line.split() for line in lines]
    is_even = len(rows) > 2 and len(rows[0]) > 1 and all(len(row) == len(rows[0]) for row in rows)
    return is_even and any(all(is_number(row[i]) for row in rows[1:]) for i in range(len(rows[0])))


def sniff_quote(text: str, separators: str) -> str | None:
    """`"` where some field begins and ends with it; None where quotes mean nothing. Any of `separators` ends a field.

    >>> sniff_quote('a\\t"b\\tc"\\n', "\\t"), sniff_quote('5" pipe\\tb\\n', "\\t")
    ('"', None)
    """
    sep = f"[{re.escape(separators)}]"
    return '"' if re.search(rf'(?m)(^|{sep})"([^"]|"")*"($|{sep}|\r)', text) else None


def looks_like_a_row(first: list[str], rows: list[list[str]]) -> bool:
    """Whether the first line is a row as the others are, and not the names of columns.

    It is where every column of numbers has a number there too. Without such a column, it is where a value of the first
    line comes again below it.

    >>> looks_like_a_row(["user", "age"], [["ann", "3"]]), looks_like_a_row(["bob", "4"], [["ann", "3"]])
    (False, True)
    """
    if first in ([str(i) for i in range(len(first))], [str(i + 1) for i in range(len(first))]) and len(first) > 1:
        return False  # numbered columns, as tables without names are written
    columns = [[row[i] for row in rows if i < len(row) and not _is_missing(row[i])] for i in range(len(first))]
    numbers = [i for i, values in enumerate(columns) if values and all(map(is_number, values))]
    if numbers:
        return all(is_number(first[i]) or _is_missing(first[i]) for i in numbers) and any(is_number(v) for v in first)
    return any(value in column for value, column in zip(first, columns, strict=True))


def are_names(first: list[str], rows: list[list[str]]) -> bool:
    """Whether the first line surely holds names: words above two columns of numbers or more.

    >>> are_names(["userId", "age"], [["1", "3"]]), are_names(["bob", "age"], [["ann", "3"]])
    (True, False)
    """
    rows = [row for row in rows if len(row) == len(first)]  # a malformed line says nothing
    columns = [[row[i] for row in rows if not _is_missing(row[i])] for i in range(len(first))]
    numbers = [i for i, values in enumerate(columns) if values and all(map(is_number, values))]
    return len(numbers) > 1 and all(_NAME.fullmatch(first[i]) for i in numbers)


def is_number(text: str) -> bool:
    """Whether it is a decimal number.

    >>> is_number("1.5e3"), is_number("1,5"), is_number("")
    (True, False, False)
    """
    return _NUMBER.fullmatch(text.strip()) is not None


def fields_of(text: str, separator: str, quote: str | None, most: int = _LINES) -> list[list[str]]:
    """The fields of the first lines; empty lines are left out."""
    lines = io.StringIO(text, newline="")
    if quote:
        reader = csv.reader(lines, delimiter=separator, quotechar=quote)
    else:
        reader = csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE)
    rows: list[list[str]] = []
    try:
        for row in reader:
            if row:
                rows.append(row)
            if len(rows) >= most:
                break
    except csv.Error:  # what is wrong with it is said where it is read
        pass
    return rows


def _widths(text: str, separator: str, quote: str | None) -> list[int]:
    return [len(row) for row in fields_of(text, separator, quote)]


def _first(widths: list[int]) -> int:
    return widths[0] if widths else 0


def _evenness(widths: list[int]) -> float:
    """The share of lines that have as many fields as the first."""
    return sum(width == widths[0] for width in widths) / len(widths) if widths else 0.0


def _has_numbers(text: str) -> bool:
    rows = fields_of(text, " ", None)
    return any(all(is_number(row[i]) for row in rows[1:]) for i in range(len(rows[0]))) and len(rows) > 1


def _is_missing(value: str) -> bool:
    return not value.strip() or value in MISSING

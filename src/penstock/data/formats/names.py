"""What a file's name says: its suffix, and the stream compression around it; and names of columns that can be ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath

from penstock.core.errors import DataError

MAX_COLUMNS = 100_000  # of a file; each takes ten kilobytes of memory, however few rows there are
STREAM_CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz", ".zip": "zip"}  # by suffix

_WORKBOOKS = (".xlsx", ".xls", ".ods")
_PACKED = {
    b"PK\x03\x04": "zip",
    b"\xfd7zXZ\0": "xz",
    b"7z\xbc\xaf": "7z",
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
}


def file_suffix(path: str) -> str:
    """The suffix that tells the format, below that of a compression.

    >>> file_suffix("day_0.tsv.gz"), file_suffix("A.PARQUET"), file_suffix("day_0")
    ('.tsv', '.parquet', '')
    """
    name = PurePosixPath(path.rsplit("/", 1)[-1])
    return (name.with_suffix("") if stream_codec(path) else name).suffix.lower()


def stream_codec(path: str) -> str | None:
    """The compression around the whole file, or None.

    >>> stream_codec("day_0.tsv.gz"), stream_codec("a.parquet")
    ('gzip', None)
    """
    return STREAM_CODECS.get(PurePosixPath(path).suffix.lower())


def refuse_packed(path: str, head: bytes) -> None:
    """Refuse a file whose first bytes are those of an archive, or of a compression that its name does not tell.

    >>> refuse_packed("logs.7z", b"7z\\xbc\\xaf")
    Traceback (most recent call last):
    ...
    penstock.core.errors.DataError: logs.7z is packed by 7z; unpack it, or pack it as .gz, .zst, .bz2, .xz or .zip
    >>> refuse_packed("logs.csv", b"\\x1f\\x8b")
    Traceback (most recent call last):
    ...
    penstock.core.errors.DataError: logs.csv is packed by gzip; call it logs.csv.gz, and it is unpacked as it is read
    """
    kind = next((name for mark, name in _PACKED.items() if head.startswith(mark)), None)
    if kind is None or stream_codec(path) == kind:
        return
    if PurePosixPath(path).suffix.lower() in _WORKBOOKS:
        raise DataError(f"{path} is a workbook, which is not read; save the sheet with the rows as CSV")
    suffix = next((known for known, codec in STREAM_CODECS.items() if codec == kind), None)
    *most, last = STREAM_CODECS
    what = f"unpack it, or pack it as {', '.join(most)} or {last}"
    what = f"call it {path.rsplit('/', 1)[-1]}{suffix}, and it is unpacked as it is read" if suffix else what
    raise DataError(f"{path} is packed by {kind}; {what}")


def check_width(num_columns: int, path: str) -> None:
    """Refuse more columns than can be read in bounded memory.

    >>> check_width(1_000_000, "day_0.parquet")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    penstock.core.errors.DataError: day_0.parquet has 1,000,000 columns, and at most 100,000 are read: ...
    """
    if num_columns > MAX_COLUMNS:
        raise DataError(
            f"{path} has {num_columns:,} columns, and at most {MAX_COLUMNS:,} are read: keep values of one kind in a "
            f"column of lists, or split the file"
        )


def check_names(names: Sequence[str], path: str) -> None:
    """Refuse names that two columns share, those that end early where others read them, and far too many of them.

    >>> check_names(["a", "b", "a"], "day_0.parquet")
    Traceback (most recent call last):
    ...
    penstock.core.errors.DataError: day_0.parquet has 2 columns of the name 'a'; give each a name of its own
    """
    check_width(len(names), path)
    for name, count in Counter(names).items():
        if "\0" in name:
            raise DataError(
                f"{path}: the name {name[:80]!r} of a column holds bytes of nought; write it without, and if the file "
                f"is text in UTF-16, pass encoding='utf-16'"
            )
        if count > 1:
            raise DataError(f"{path} has {count} columns of the name {name!r}; give each a name of its own")

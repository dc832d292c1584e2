"""What a file's name says: its suffix, and the stream compression around it; and names of columns that can be ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import PurePosixPath

from penstock.core.errors import DataError

STREAM_CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}  # by suffix, as Arrow calls them


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


def check_names(names: Iterable[str], path: str) -> None:
    """Refuse names that two columns share, and those that end early where others read them.

    >>> check_names(["a", "b", "a"], "day_0.parquet")
    Traceback (most recent call last):
    ...
    penstock.core.errors.DataError: day_0.parquet has 2 columns of the name 'a'; give each a name of its own
    """
    for name, count in Counter(names).items():
        if "\0" in name:
            raise DataError(
                f"{path}: the name {name[:80]!r} of a column holds bytes of nought; write it without, and if the file "
                f"is text in UTF-16, pass encoding='utf-16'"
            )
        if count > 1:
            raise DataError(f"{path} has {count} columns of the name {name!r}; give each a name of its own")

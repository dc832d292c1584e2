"""What a file's name says: its suffix, and the stream compression around it."""

from __future__ import annotations

from pathlib import PurePosixPath

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

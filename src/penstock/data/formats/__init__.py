"""File formats: one class each, in one list. A new format is a file here, a line in `FORMATS` and a row in its suite.

>>> list(FORMATS)
['parquet', 'csv', 'tsv', 'jsonl', 'ipc', 'avro']
>>> format_of_name("day_0.tsv.gz"), format_of_name("day_0")
('tsv', None)
"""

from __future__ import annotations

from penstock.core.errors import ParameterError
from penstock.data.formats.avro import Avro
from penstock.data.formats.base import Format, FrameWriter, OpenOptions
from penstock.data.formats.ipc import Ipc
from penstock.data.formats.json_lines import JsonLines
from penstock.data.formats.names import file_suffix
from penstock.data.formats.parquet import Parquet
from penstock.data.formats.text import Csv, Tsv

FORMATS: dict[str, Format] = {made.name: made for made in (Parquet(), Csv(), Tsv(), JsonLines(), Ipc(), Avro())}

__all__ = [
    "FORMATS",
    "Format",
    "FrameWriter",
    "OpenOptions",
    "choices",
    "format_named",
    "format_of_name",
    "is_text",
    "suffixes",
]


def choices() -> str:
    """The formats' names as an error or a help text lists them.

    >>> choices()
    "'parquet', 'csv', 'tsv', 'jsonl', 'ipc' or 'avro'"
    """
    *most, last = (repr(name) for name in FORMATS)
    return f"{', '.join(most)} or {last}"


def suffixes() -> list[str]:
    """Every file suffix that some format goes by."""
    return [suffix for known in FORMATS.values() for suffix in known.suffixes]


def format_of_name(path: str) -> str | None:
    """The format that a file's name says (a compression's suffix aside), or None."""
    suffix = file_suffix(path)
    return next((known.name for known in FORMATS.values() if suffix in known.suffixes), None)


def format_named(name: str) -> Format:
    """The format of that name.

    Raises:
        ParameterError: there is none; the message lists those there are.
    """
    if name not in FORMATS:
        raise ParameterError(f"format must be {choices()}, got {name!r}")
    return FORMATS[name]


def is_text(name: str | None) -> bool:
    """Whether files of that format leave names, dtypes and separator to be told."""
    return name in FORMATS and FORMATS[name].is_text

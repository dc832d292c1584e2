"""Errors about rows name the file that the rows come from: what works on a frame does not know it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.core.errors import ColumnNotFoundError, ConversionError, PenstockError, SchemaError
from penstock.data.partition import Partition

NAMELESS = "the data", "the frame", "the data given to the workflow"  # what errors say who were told no file


@contextmanager
def naming(place: str | Partition | None) -> Iterator[None]:
    """A block that works on the rows of a file: errors that name no file name this one, and the line of a row.

    Args:
        place: the file, or the part of it whose rows these are; None where they lie in no file.

    >>> with naming("clicks.csv"):
    ...     raise SchemaError("Normalize needs numbers; column 'word' is string")
    Traceback (most recent call last):
    ...
    penstock.core.errors.SchemaError: clicks.csv: Normalize needs numbers; column 'word' is string
    """
    try:
        yield
    except (ConversionError, SchemaError) as error:
        path, part = (place.path, place) if isinstance(place, Partition) else (place, None)
        if path in (None, *NAMELESS) or str(path) in str(error):
            raise
        named = _named(error, str(path), part)
        if named is error:
            raise
        raise named from error


def _named(error: ConversionError | SchemaError, path: str, part: Partition | None) -> PenstockError:
    if isinstance(error, ColumnNotFoundError):
        return ColumnNotFoundError(error.name, error.known, path) if error.where in NAMELESS else error
    if isinstance(error, ConversionError):
        if error.where not in (None, *NAMELESS):
            return error
        row, where = _place(error.row, path, part)
        return ConversionError(error.value, error.dtype, error.reason, error.column, row, where)
    return type(error)(f"{path}: {error}") if type(error) is SchemaError and "column '" in str(error) else error


def _place(row: int | None, path: str, part: Partition | None) -> tuple[int | None, str]:
    """The row and what it is one of; in text, the line."""
    from penstock.data.formats.text_partition import line_of  # which knows partitions

    line = None if part is None or row is None else line_of(part, row)
    if line is not None:
        return None, f"{path}, line {line}"
    return row, path if row is None else f"a part of {path}"

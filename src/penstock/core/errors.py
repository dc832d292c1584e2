"""Every error Penstock raises on purpose. Each names the file, column, row or setting at fault and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class PenstockError(Exception):
    """Base class: catch this to catch everything Penstock raises on purpose.

    >>> issubclass(SchemaError, PenstockError)
    True
    """


class ParameterError(PenstockError, ValueError):
    """A constructor argument or setting is out of its domain."""


class SchemaError(PenstockError, ValueError):
    """Columns, dtypes or roles do not fit what was declared."""


class ColumnNotFoundError(SchemaError, KeyError):
    """A column name is not there; the message lists the names that are.

    >>> raise ColumnNotFoundError("C27", ["C1", "C2", "C26"], where="train.tsv")
    Traceback (most recent call last):
    ...
    penstock.core.errors.ColumnNotFoundError: column 'C27' is not in train.tsv; did you mean 'C2' or 'C26'? ...
    """

    def __init__(self, name: str, known: Iterable[str], where: str = "the data") -> None:
        self.name, self.known, self.where = name, list(known), where
        super().__init__(f"column {name!r} is not in {where}{suggest(name, self.known, 'columns')}")

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:  # crosses process boundaries with its parts
        return type(self), (self.name, self.known, self.where)


class DataError(PenstockError, ValueError):
    """Input data is malformed: a ragged line, a truncated file, a wrong dtype."""


def renamed(error: DataError | ColumnNotFoundError, names: Mapping[str, str]) -> DataError | ColumnNotFoundError:
    """The error with other names of files: what was read may be a copy that nobody knows.

    Args:
        error: as it was raised.
        names: in the place of each, another.

    Returns:
        The error to be raised.

    >>> renamed(DataError("/scratch/a.csv is empty"), {"/scratch/a.csv": "a.csv.gz"})
    DataError('a.csv.gz is empty')
    """

    def in_own_words(text: str) -> str:
        for name, other in names.items():
            text = text.replace(name, other)
        return text

    if isinstance(error, ColumnNotFoundError):
        return ColumnNotFoundError(error.name, error.known, in_own_words(error.where))
    return DataError(in_own_words(str(error)))


@contextmanager
def known_as(path: str, copy: str, others: Mapping[str, str] | None = None) -> Iterator[None]:
    """A block that reads a copy of a file: its errors name the file itself.

    Args:
        path: of the file.
        copy: of what is read; where it is the file, errors stay as they are.
        others: further words to be replaced.

    >>> with known_as("a.csv.gz", "/scratch/a.csv"):
    ...     raise DataError("/scratch/a.csv is empty")
    Traceback (most recent call last):
    ...
    penstock.core.errors.DataError: a.csv.gz is empty
    """
    try:
        yield
    except (DataError, ColumnNotFoundError) as error:
        if copy == path:
            raise
        raise renamed(error, {copy: path, **(others or {})}) from None


class ConversionError(DataError):
    """A value that another dtype does not hold; it names column, row and value.

    >>> raise ConversionError(1.9, "int64", "it has a fraction", "age", row=3, where="clicks.parquet")
    Traceback (most recent call last):
    ...
    penstock.core.errors.ConversionError: column 'age', row 3 of clicks.parquet: 1.9 is no int64 (it has a fraction)
    """

    def __init__(
        self,
        value: object,
        dtype: str,
        reason: str,
        column: str,
        row: int | None = None,
        where: str | None = None,
    ) -> None:
        self.value, self.dtype, self.reason = value, dtype, reason
        self.column, self.row, self.where = column, row, where
        place = f", row {row}" * (row is not None) + f" of {where}" * (where is not None)
        super().__init__(f"column {column!r}{place}: {_shortened(value)} is no {dtype} ({reason})")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.value, self.dtype, self.reason, self.column, self.row, self.where)


class ArtefactError(PenstockError, ValueError):
    """A saved artefact is truncated, altered, foreign or of another version."""


class OutputExistsError(PenstockError, FileExistsError):
    """The output is there already and `overwrite` was not given."""


class NotFittedError(PenstockError, RuntimeError):
    """Something that must be fitted first was used before."""


class GraphError(PenstockError, ValueError):
    """A workflow graph that cannot mean anything: rows that do not line up, a name twice, a cycle."""


class ForkError(PenstockError):
    """Something was asked of a forked process that only its parent's threads could do."""


class MissingExtraError(PenstockError, ImportError):
    """An optional dependency is not installed; the message carries the pip command."""

    def __init__(self, module: str, extra: str) -> None:
        self.module, self.extra = module, extra
        super().__init__(f"{module} is not installed; run: pip install 'penstock[{extra}]'")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.module, self.extra)


def suggest(name: str, known: Iterable[str], what: str, most: int = 40) -> str:
    """The tail of a "not found" message: near misses first, then the names there are."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.6)
    hint = f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ";"
    listed = ", ".join(known[:most]) + (f", … ({len(known)} in all)" if len(known) > most else "")
    return f"{hint} {what}: {listed or 'none'}"


def _shortened(value: object, most: int = 80) -> str:
    shown = repr(value)
    return shown if len(shown) <= most else f"{shown[:most]}…"

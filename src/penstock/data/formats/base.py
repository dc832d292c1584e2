"""What a file format is: how its files become partitions and a schema, and how frames become such a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import polars as pl
import pyarrow as pa

from penstock.core import dtypes as dt
from penstock.core.errors import ColumnNotFoundError, DataError, ParameterError
from penstock.core.schema import Schema
from penstock.data.formats.names import check_names
from penstock.data.partition import Partition


@dataclass(frozen=True)
class OpenOptions:
    """Everything that says how files are to be read."""

    part_size: int
    dtypes: Mapping[str, Any] | None = None
    names: Sequence[str] | None = None
    separator: str | None = None
    header: bool | None = None
    on_error: str = "raise"
    storage_options: dict[str, Any] | None = None
    quote: str | None = None
    encoding: str | None = None
    missing: Sequence[str] | Mapping[str, Sequence[str]] | None = None


class FrameWriter(Protocol):
    """Takes frames of one schema, one after another."""

    def write(self, frame: pl.DataFrame) -> None: ...


class Format(ABC):
    """A file format. Subclasses say its name and suffixes, read it, and write it where `can_write` says so."""

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    mark: ClassVar[bytes] = b""  # what its files begin with, where that tells
    is_text: ClassVar[bool] = False  # names, dtypes and separator have to be told, or guessed
    can_write: ClassVar[bool] = False

    @abstractmethod
    def open(self, files: list[str], options: OpenOptions) -> tuple[list[Partition], Schema]:
        """The partitions of files of this format, and the one schema that all of them have.

        Args:
            files: paths or URLs, at least one.
            options: how they are to be read.

        Raises:
            DataError: a file is damaged, or disagrees with the others; the message names it.
        """

    def writer(self, path: Path) -> AbstractContextManager[FrameWriter]:
        """Opens a local file to write frames to, which is whole when the context ends."""
        raise ParameterError(f"{self.name} files cannot be written; cannot write {path}")


def polars_schema(schema: pa.Schema, path: str) -> dict[str, pl.DataType]:
    """The dtypes that polars reads the Arrow schema of a file as; it has none for some types, such as unions."""
    check_names(schema.names, path)
    found: dict[str, pl.DataType] = {}
    for field in schema:
        try:
            found |= pl.Schema(pa.schema([field]))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            kind = f"{path}, column {field.name!r}: {field.type} is no type that can be read"
            raise DataError(f"{kind}; write the file without the column, or with another type") from error
    return found


def agree(
    expected: dict[str, pl.DataType] | None,
    found: dict[str, pl.DataType],
    path: str,
    first: str,
    dtypes: Mapping[str, Any] | None,
) -> dict[str, pl.DataType]:
    """One schema for all files: columns that lack or differ are errors, unless `dtypes` decides them."""
    found = {name: dt.without_half(dtype) for name, dtype in found.items()}
    given = {n: dt.to_polars(d) for n, d in dt.canonical_each(dtypes or {}).items()}
    for name, dtype in (dtypes or {}).items():
        if dtype in dt.HEX and name in found and found[name] != given[name]:  # text would be read as decimal numbers
            raise ParameterError(
                f"dtypes={{{name!r}: {dtype!r}}} is for text files, and {path} is none; decode it first"
            )
    if expected is None:
        for name in given:
            if name not in found:
                raise ColumnNotFoundError(name, found, f"{path} (named in dtypes=)")
        return {
            n: pl.List(given[n]) if isinstance(d, pl.List) and n in given else given.get(n, d) for n, d in found.items()
        }
    for name, dtype in expected.items():
        if not any(dt.is_readable(kind) for kind in (dtype, found.get(name, dtype))):  # neither file's is read
            continue
        if name not in found:
            raise ColumnNotFoundError(name, found, f"{path} ({first} has it)")
        if found[name] != dtype and name not in given:
            raise disagreement(path, name, found[name], first, dtype)
    return expected


def settled(found: Mapping[str, pl.DataType], where: str) -> tuple[dict[str, pl.DataType], Schema]:
    """The columns that can be read, and their schema, which names the others: one odd column spoils no file.

    Raises:
        DataError: none of them can be read.
    """
    readable = {name: dtype for name, dtype in found.items() if dt.is_readable(dtype)}
    unread = {name: _short(str(dtype)) for name, dtype in found.items() if name not in readable}
    for name, dtype in unread.items() if not readable else ():
        raise DataError(f"{where}, column {name!r}: {dtype} is not read; write what it holds as columns of their own")
    return readable, Schema(Schema.from_polars(readable), unread)


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def disagreement(path: str, name: str, found: Any, first: str, expected: Any) -> DataError:
    """The error for a column whose dtype differs between two files."""
    return DataError(
        f"column {name!r} is {found} in {path} and {expected} in {first}; "
        f"pass dtypes={{{name!r}: …}} to read both as one, or mend the files"
    )

"""Frames written one after another to one file, which appears when it is whole."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import polars as pl
import pyarrow.parquet as pq

from penstock.core.artefact import replacing
from penstock.core.errors import ArtefactError, ParameterError

_SEPARATORS = {".csv": ",", ".tsv": "\t"}


class FrameWriter(Protocol):
    def write(self, frame: pl.DataFrame) -> None: ...


Opener = Callable[[Any], AbstractContextManager[FrameWriter]]


def writer_of(output: str | Path) -> Opener:
    """How a file of that name is written: `.parquet`, `.csv`, `.tsv`, or `-` for CSV on standard output.

    >>> writer_of("a.xls")
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: cannot tell the format of a.xls from its name; use .parquet, .csv, .tsv or -
    """
    if str(output) == "-":
        return _on_stdout
    suffix = Path(output).suffix.lower()
    if suffix == ".parquet":
        return _parquet
    if suffix in _SEPARATORS:
        return _text
    raise ParameterError(f"cannot tell the format of {output} from its name; use .parquet, .csv, .tsv or -")


@contextmanager
def _on_stdout(_: Any) -> Iterator[FrameWriter]:
    yield _Text(sys.stdout, ",")
    sys.stdout.flush()


@contextmanager
def _text(output: str | Path) -> Iterator[FrameWriter]:
    with _beside(output) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        yield _Text(file, _SEPARATORS[Path(output).suffix.lower()])


@contextmanager
def _parquet(output: str | Path) -> Iterator[FrameWriter]:
    with _beside(output) as partial:
        writer = _Parquet(partial)
        try:
            yield writer
        finally:
            writer.close()


@contextmanager
def _beside(output: str | Path) -> Iterator[Path]:
    place = Path(output)
    if not place.parent.is_dir():
        raise ArtefactError(f"cannot write {place}: the folder {place.parent} does not exist")
    if place.is_dir():
        raise ArtefactError(f"cannot write {place}: it is a folder; name a file")
    with replacing(place) as partial:
        yield partial


class _Text:
    def __init__(self, file: Any, separator: str) -> None:
        self._file, self._separator, self._begun = file, separator, False

    def write(self, frame: pl.DataFrame) -> None:
        text = frame.write_csv(separator=self._separator, include_header=not self._begun)
        self._file.write(text)
        self._begun = True


class _Parquet:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: pq.ParquetWriter | None = None

    def write(self, frame: pl.DataFrame) -> None:
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

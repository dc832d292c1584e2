"""JSON lines: an object a line, compressed or not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import polars as pl

from penstock.core import dtypes as dt
from penstock.core.errors import DataError, known_as
from penstock.core.runtime.forks import require_polars
from penstock.core.schema import Schema
from penstock.data.formats.base import Format, OpenOptions, agree, settled
from penstock.data.formats.names import check_names, refuse_packed
from penstock.data.formats.text_bytes import PACKED, read_bytes, record_bounds
from penstock.data.formats.unpacking import unpacked
from penstock.data.partition import Partition, cast_frame, select
from penstock.data.scratch import Scratch

_Dtypes = dict[str, pl.DataType]


class JsonLines(Format):
    """Objects a line, in partitions of byte ranges. Only rows say what columns there are: all are read at opening.

    A key that an object lacks is a missing value. Numbers are floats where one of them is; text and numbers in one
    column are text.
    """

    name = "jsonl"
    suffixes = (".jsonl", ".ndjson")

    def open(self, files: list[str], options: OpenOptions) -> tuple[list[Partition], Schema]:
        expected: _Dtypes | None = None
        parts: list[JsonPartition] = []
        for path in files:
            own = _parts(path, options)
            found = _settled(path, [part.dtypes for part in own])
            known = expected or {}
            found = {name: _with_numbers(dtype, known.get(name)) for name, dtype in found.items()}
            expected = {name: _with_numbers(dtype, found.get(name)) for name, dtype in known.items()} or None
            expected = agree(expected, found, path, files[0], options.dtypes)
            parts += own
        assert expected is not None
        dtypes, schema = settled(expected, files[0])
        return [replace(part, dtypes=dtypes) for part in parts], schema


@dataclass(frozen=True)
class JsonPartition(Partition):
    """Whole lines of one file, or of its unpacked copy in scratch."""

    path: str
    start: int
    end: int
    local: str
    scratch: Scratch | None = field(default=None, compare=False)
    storage_options: dict[str, Any] | None = field(default=None, compare=False)
    dtypes: _Dtypes = field(default_factory=dict, compare=False)
    num_rows: int = 0
    num_bytes: int = 0

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        schema = self.dtypes if columns is None else {n: d for n, d in self.dtypes.items() if n in columns}
        frame = self.rows(schema=schema)
        if frame.height != self.num_rows:
            raise DataError(f"{self.path} was changed after the data set was opened; open the data set again")
        frame = frame if columns is None else select(frame, columns, self.path)
        return cast_frame(frame, self.dtypes, self.path)

    def rows(self, **how: Any) -> pl.DataFrame:
        """The lines as polars reads them."""
        require_polars(f"reading {self.path}")
        with known_as(self.path, self.local):
            text = read_bytes(self.local, self.start, self.end, self.storage_options).tobytes()
        if not text.strip():
            return pl.DataFrame(schema=how.get("schema"))
        if text.startswith(PACKED):  # polars would unpack it, to any size
            refuse_packed(self.path, text)
            raise self._unreadable(text, DataError("it begins as a packed file does"))
        try:
            return pl.read_ndjson(text, **how)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise self._unreadable(text, error) from error

    def _unreadable(self, text: bytes, error: BaseException) -> DataError:
        """The error with its line: polars names none, so Python reads the lines up to it."""
        before = read_bytes(self.local, 0, self.start, self.storage_options).tobytes().count(b"\n")
        kinds: dict[str, tuple[str, int]] = {}
        for number, line in enumerate(text.split(b"\n"), before + 1):
            if not line.strip():
                continue
            where = f"{self.path}, line {number}"
            try:
                found = json.loads(line, parse_constant=_refused)
            except (ValueError, RecursionError) as fault:
                return DataError(f"{where} is no JSON ({fault}); mend it or take it out")
            if not isinstance(found, dict):
                return DataError(f"{where} is no object with columns: {line[:60].decode(errors='replace')!r}")
            for name, value in found.items():
                kind, first = kinds.setdefault(name, (_kind(value), number))
                if value is not None and _kind(value) != kind != "null":
                    return DataError(
                        f"{where}, column {name!r}: {_kind(value)}, and {kind} in line {first}; write one kind of value"
                    )
                if kind == "null":
                    kinds[name] = (_kind(value), number)
        return DataError(f"{self.path} cannot be read as JSON lines ({error})")


def _refused(word: str) -> Any:
    raise ValueError(f"{word} is no value; write null")


def _kind(value: Any) -> str:
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return kinds.get(type(value), "null")


def _parts(path: str, options: OpenOptions) -> list[JsonPartition]:
    """The byte ranges of a file, each with the columns and rows that it has."""
    scratch, local = unpacked(path, options)
    with known_as(path, local):
        bounds = record_bounds(local, False, None, options.part_size, options.storage_options)
    parts = []
    for start, end in pairwise(bounds):
        part = JsonPartition(path, start, end, local, scratch, options.storage_options)
        frame = part.rows(infer_schema_length=None, schema_overrides=_told(options.dtypes))
        if frame.height:
            found = dict(frame.schema)
            parts.append(replace(part, dtypes=found, num_rows=frame.height, num_bytes=int(frame.estimated_size())))
    if not parts:
        raise DataError(f"{path} is empty; columns and dtypes cannot be inferred from it")
    return parts


def _told(dtypes: Mapping[str, Any] | None) -> _Dtypes:
    """What decides before values are judged; hexadecimal text is refused later, by name."""
    return {name: dt.to_polars(dt.canonical(dtype)) for name, dtype in (dtypes or {}).items() if dtype not in dt.HEX}


def _settled(path: str, ranges: list[_Dtypes]) -> _Dtypes:
    """The dtypes of a file from those of its ranges."""
    try:
        found = dict(pl.concat([pl.DataFrame(schema=own) for own in ranges], how="diagonal_relaxed").schema)
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path}: its lines hold values of several kinds ({error}); write one kind a column") from error
    if not found:
        raise DataError(f"{path}: its objects have no keys, so there are no columns")
    check_names(list(found), path)
    return {name: _readable(dtype) for name, dtype in found.items()}


def _readable(dtype: pl.DataType) -> pl.DataType:
    """Values of no kind (nulls alone) and whole numbers that no other dtype holds are text."""
    if isinstance(dtype, pl.List):
        return pl.List(pl.String) if dtype.inner in (pl.Null, pl.Int128) else dtype
    return pl.String() if dtype in (pl.Null, pl.Int128) else dtype


def _with_numbers(dtype: pl.DataType, other: pl.DataType | None) -> pl.DataType:
    """Whole numbers in one file and fractions in another are fractions in both."""
    return pl.Float64() if {dtype, other} == {pl.Int64(), pl.Float64()} else dtype

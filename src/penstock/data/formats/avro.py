"""Avro."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from penstock.core.errors import DataError
from penstock.core.runtime.forks import require_polars
from penstock.core.schema import Schema
from penstock.data.files import filesystem, is_remote
from penstock.data.formats.avro_blocks import check_blocks
from penstock.data.formats.base import Format, OpenOptions, agree, settled
from penstock.data.formats.names import check_names
from penstock.data.partition import Partition, cast_frame, select


class Avro(Format):
    """Avro files, each of them one partition."""

    name = "avro"
    suffixes = (".avro",)
    mark = b"Obj\x01"

    def open(self, files: list[str], options: OpenOptions) -> tuple[list[Partition], Schema]:
        expected: dict[str, pl.DataType] | None = None
        parts: list[AvroPartition] = []
        for path in files:
            found = AvroPartition(path, storage_options=options.storage_options).read()
            check_names(found.columns, path)
            expected = agree(expected, dict(found.schema), path, files[0], options.dtypes)
            size = int(found.estimated_size())
            parts.append(AvroPartition(path, found.height, size, storage_options=options.storage_options))
        assert expected is not None
        dtypes, schema = settled(expected, files[0])
        return [replace(p, dtypes=dtypes) for p in parts], schema


@dataclass(frozen=True)
class AvroPartition(Partition):
    """One Avro file: its blocks have no index, so it is read as a whole."""

    path: str
    num_rows: int | None = None
    num_bytes: int = 0
    dtypes: dict[str, pl.DataType] | None = field(default=None, compare=False)
    storage_options: dict[str, Any] | None = field(default=None, compare=False)

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        require_polars(f"reading {self.path}")
        columns = list(self.dtypes) if columns is None and self.dtypes else columns
        try:
            if is_remote(self.path):
                content = filesystem(self.path, self.storage_options).cat_file(self.path)
            else:
                content = Path(self.path).read_bytes()
            check_blocks(self.path, content)
            frame = pl.read_avro(io.BytesIO(content))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            raise DataError(f"{self.path}: Avro is damaged or truncated ({error}); write the file again") from error
        frame = frame if columns is None else select(frame, columns, self.path)
        return cast_frame(frame, self.dtypes, self.path)

"""Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.errors import ColumnNotFoundError, DataError, PenstockError
from penstock.core.file_names import check_path
from penstock.core.runtime.forks import require_polars
from penstock.core.runtime.memory import available_memory
from penstock.core.runtime.passes import shared_in_pass
from penstock.core.runtime.threads import available_cores
from penstock.core.schema import Schema
from penstock.data.files import filesystem, is_remote
from penstock.data.formats.base import Format, FrameWriter, OpenOptions, agree, polars_schema, settled
from penstock.data.formats.hive import hive_column, hive_folders
from penstock.data.formats.parquet_footer import Footer
from penstock.data.formats.parquet_pages import check_pages, for_arrow, known_footer
from penstock.data.parquet_file import NumbersFile, can_write
from penstock.data.part_size import SMALLEST
from penstock.data.partition import Partition, cast_frame, decoded_bytes, named, select

_SHARE_OF_MEMORY = 0.125  # of what is free, for a row group that threads share


class Parquet(Format):
    """Parquet files, in partitions of adjacent row groups; where these are fewer than the cores, of stretches of them.

    Values in the names of Hive folders are columns too.
    """

    name = "parquet"
    suffixes = (".parquet", ".pq", ".parq")
    mark = b"PAR1"
    can_write = True

    def open(self, files: list[str], options: OpenOptions) -> tuple[list[Partition], Schema]:
        expected: dict[str, pl.DataType] | None = None
        runs: list[tuple[ParquetPartition, Footer]] = []
        for path in files:
            opened = file_identity(path)
            footer = Footer.read(path, options.storage_options)
            constants = hive_folders(path)
            found = polars_schema(footer.schema, path) | dict.fromkeys(constants, pl.String())
            expected = agree(expected, found, path, files[0], options.dtypes)
            found_runs = _row_group_runs(path, footer.metadata, options)
            runs += [(replace(run, constants=constants, opened=opened), footer) for run in found_runs]
        assert expected is not None
        parts = [part for part, _ in runs]
        if len(parts) < available_cores():  # some would have nothing to do; else each decodes row groups of its own
            parts = [piece for part, footer in runs for piece in _pieces(part, footer, options.part_size)]
        dtypes, schema = settled(expected, files[0])
        return [replace(p, dtypes=dtypes) for p in parts], schema

    @contextmanager
    def writer(self, path: Path) -> Iterator[FrameWriter]:
        writer = FrameFile(path)
        try:
            yield writer
        finally:
            writer.close()


@dataclass(frozen=True)
class ParquetPartition(Partition):
    """Some adjacent row groups of one parquet file, or some rows of a large one.

    Threads of one pass decode a row group that was cut once and share it; anybody else reads the rows alone.
    """

    path: str
    row_groups: tuple[int, ...]
    first_row: int
    num_rows: int
    num_bytes: int = 0
    dtypes: dict[str, pl.DataType] | None = field(default=None, compare=False)  # what the data set expects
    storage_options: dict[str, Any] | None = field(default=None, compare=False)
    constants: dict[str, str] = field(default_factory=dict, compare=False)  # values as Hive folders spell them
    opened: tuple[int, int] | None = field(default=None, compare=False)  # size and time of the file, as it was opened
    before: int = 0  # rows of the row groups that come before these
    behind: int = 0

    @property
    def is_cut(self) -> bool:
        """Whether these are not all the rows of their row groups."""
        return self.before + self.behind > 0

    def whole(self) -> ParquetPartition:
        """All rows of the row groups."""
        rows = self.before + self.num_rows + self.behind
        first, size = self.first_row - self.before, round(self.num_bytes * rows / max(1, self.num_rows))
        return replace(self, first_row=first, num_rows=rows, num_bytes=size, before=0, behind=0)

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        require_polars(f"reading {self.path}")
        check_path(self.path, DataError)
        self.check_unchanged()
        columns = list(self.dtypes) if columns is None and self.dtypes else columns
        frame = self._from_whole(columns) if self.is_cut else None
        return cast_frame(self._frame(columns) if frame is None else frame, self.dtypes, self.path, self.first_row)

    def _from_whole(self, columns: Sequence[str] | None) -> pl.DataFrame | None:
        """The rows out of the decoded row groups; None where nobody shares them, or they would take much memory."""
        whole = self.whole()
        if whole.num_rows * whole.row_bytes > (available_memory() or 0) * _SHARE_OF_MEMORY:
            return None
        key = (self.path, self.opened, self.row_groups, None if columns is None else tuple(columns))
        frame = shared_in_pass(key, self.num_rows, whole.num_rows, lambda: whole._frame(columns))
        return None if frame is None else frame.slice(self.before, self.num_rows)

    def _frame(self, columns: Sequence[str] | None) -> pl.DataFrame:
        """The rows in the dtypes of the file."""
        try:
            frame = self._decode([c for c in columns if c not in self.constants] if columns is not None else None)
        except PenstockError:
            raise
        except (FileNotFoundError, PermissionError) as error:
            raise DataError(f"{self.path} cannot be opened any more: {error}") from error
        except pl.exceptions.ColumnNotFoundError:
            known = pq.read_schema(self.path).names
            missing = next((c for c in columns or () if c not in known), "?")
            raise ColumnNotFoundError(missing, known, self.path) from None
        except (pl.exceptions.PolarsError, pa.ArrowException, OSError) as error:
            raise self._damaged(error) from error
        except pl.exceptions.PanicException as error:  # what polars does on some damaged pages
            raise self._damaged(error) from error
        if frame.height != self.num_rows:
            raise DataError(
                f"{self.path}: row groups {list(self.row_groups)} held {self.num_rows} rows when the data set was "
                f"opened and {frame.height} now; the file was changed, open the data set again"
            )
        self.check_unchanged()
        if self.constants:
            frame = frame.with_columns(
                pl.lit(hive_column(n, v, (self.dtypes or {}).get(n, pl.String()), self.path)).first().alias(n)
                for n, v in self.constants.items()
                if columns is None or n in columns
            )
            frame = frame if columns is None else select(frame, columns, self.path)
        return frame

    def check_unchanged(self) -> None:
        """Refuse a file that has taken the place of the one that was opened."""
        if self.opened is not None and file_identity(self.path) != self.opened and Path(self.path).exists():
            raise replaced(self.path)

    @property
    def row_bytes(self) -> int:
        return max(super().row_bytes, decoded_bytes(self.dtypes or {}))

    def _damaged(self, error: BaseException) -> DataError:
        groups = ", ".join(map(str, self.row_groups))
        return DataError(f"{self.path}: row group {groups} is damaged or truncated ({error}); write the file again")

    def _decode(self, columns: list[str] | None) -> pl.DataFrame:
        if is_remote(self.path):
            with filesystem(self.path, self.storage_options).open(self.path, "rb") as file:
                return self._by_arrow(pq.ParquetFile(file, page_checksum_verification=True), columns)
        if columns == []:  # only the number of rows is wanted
            return pl.DataFrame(height=self.num_rows)
        if (identity := file_identity(self.path)) is None:
            raise FileNotFoundError(f"{self.path} is gone")
        footer = known_footer(self.path, identity)
        wanted = list(dict.fromkeys(footer.schema.names if columns is None else columns))
        lists = check_pages(self.path, footer, self.row_groups, wanted)
        apart = for_arrow(footer, self.row_groups, wanted)
        apart = [name for name in wanted if name in apart or name in lists]
        scan = pl.scan_parquet(self.path, glob=False, hive_partitioning=False, low_memory=True)
        rest = [name for name in wanted if name not in apart]
        frame = scan.select(named(rest)).slice(self.first_row, self.num_rows).collect() if rest else pl.DataFrame()
        if not apart:
            return frame
        with pq.ParquetFile(self.path, page_checksum_verification=True) as file:
            return pl.DataFrame([*frame, *self._by_arrow(file, apart)]).select(named(wanted))

    def _by_arrow(self, file: pq.ParquetFile, columns: list[str] | None) -> pl.DataFrame:
        table = file.read_row_groups(list(self.row_groups), columns=columns).slice(self.before, self.num_rows)
        if columns is not None and len(table.column_names) != len(columns):
            missing = next(c for c in columns if c not in table.column_names)
            raise ColumnNotFoundError(missing, table.column_names, self.path)
        table.validate(full=True)  # whether text is UTF-8, which polars takes for granted
        return pl.DataFrame(pl.from_arrow(table))


def file_identity(path: str) -> tuple[int, int] | None:
    """What tells a local file from one that takes its place; the same seen from every machine."""
    if is_remote(path):
        return None
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def replaced(path: str) -> DataError:
    """The error for a file that another one has taken the place of."""
    return DataError(f"{path} was replaced after the data set was opened; open the data set again")


def _row_group_runs(path: str, metadata: pq.FileMetaData, options: OpenOptions) -> list[ParquetPartition]:
    """Adjacent row groups together as long as they stay within `part_size`."""
    parts: list[ParquetPartition] = []
    run: list[int] = []
    first = rows = size = 0

    def close() -> None:
        nonlocal run, first, rows, size
        if run and rows:
            parts.append(ParquetPartition(path, tuple(run), first, rows, size, storage_options=options.storage_options))
        first, rows, size, run = first + rows, 0, 0, []

    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        if run and size + group.total_byte_size > options.part_size:
            close()
        run.append(index)
        rows += group.num_rows
        size += group.total_byte_size
    close()
    return parts


def _pieces(whole: ParquetPartition, footer: Footer, part_size: int) -> list[ParquetPartition]:
    """A row group that is large beside what a partition aims at, cut into pieces of about that size.

    Remote ones, and those that Arrow must read, stay whole: whoever reads a piece alone would read all of it.
    """
    stored = sum(footer.chunk_bytes(group) for group in whole.row_groups)
    count = min(round(stored / max(part_size, SMALLEST)), whole.num_rows)
    if count < 2 or is_remote(whole.path) or _is_for_arrow(footer, whole.row_groups):
        return [whole]
    bounds = [whole.num_rows * place // count for place in range(count + 1)]
    return [
        replace(
            whole, first_row=whole.first_row + begin, num_rows=end - begin, before=begin, behind=whole.num_rows - end,
            num_bytes=whole.num_bytes * end // whole.num_rows - whole.num_bytes * begin // whole.num_rows,
        )
        for begin, end in pairwise(bounds)
    ]  # fmt: skip


def _is_for_arrow(footer: Footer, row_groups: Sequence[int]) -> bool:
    """Whether Arrow reads more of row groups than truth values, which take it no time."""
    names = [field.name for field in footer.schema if not pa.types.is_boolean(field.type)]
    return bool(for_arrow(footer, row_groups, names))


_ROWS_A_GROUP = 1 << 20  # of a frame that is written, at most


class FrameFile:
    """Frames to one file, a row group each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: pq.ParquetWriter | NumbersFile | None = None

    def write(self, frame: pl.DataFrame) -> None:
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        if self._writer is None:
            # Numbers above all are predictions, which neither dictionaries nor codecs make smaller.
            make = NumbersFile if can_write(table.schema, "none") else pq.ParquetWriter
            self._writer = make(self._path, table.schema)
        self._writer.write_table(table, row_group_size=_ROWS_A_GROUP)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

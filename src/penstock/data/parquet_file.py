"""Parquet files of flat numbers, written by kernels that need the interpreter's lock once a row group.

What is written is what pyarrow would write with the same settings, in fewer and larger pages: uncompressed, plain
values or dictionaries, checksums, no statistics. Other columns and codecs are left to pyarrow.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.data.numbers_footer import FooterWords, Group, is_known
from penstock.data.places import Places, cut_pieces, place_of

_MAGIC = b"PAR1"
_threads = threading.local()
_key = secrets.randbits(64)  # of the tables that find equal values: nobody can choose values that meet in them


def can_write(schema: pa.Schema, compression: str) -> bool:
    """Whether files of this schema are written here."""
    return hasattr(os, "pwrite") and compression == "none" and all(map(is_known, schema.types))


class NumbersLayout:
    """What files of one schema have in common, made once for all of them.

    Args:
        schema: of the columns, for which `can_write` is true.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.itemsizes = np.array([kind.bit_width // 8 for kind in schema.types], np.int64)
        self.words = FooterWords(schema)


class NumbersFile:
    """A parquet file that row groups are added to; it is whole once it is closed.

    Args:
        path: of the file; one that is there is replaced.
        schema: of the columns, for which `can_write` is true, or the layout that files share.

    >>> import tempfile
    >>> import pyarrow.parquet as pq
    >>> table = pa.table({"user": pa.array([7, None, 7], pa.int64())})
    >>> path = Path(tempfile.mkdtemp()) / "rows.parquet"
    >>> file = NumbersFile(path, table.schema)
    >>> file.write_table(table, row_group_size=2)
    >>> file.close()
    >>> pq.read_table(path)["user"].to_pylist(), pq.ParquetFile(path).num_row_groups
    ([7, None, 7], 2)
    """

    def __init__(self, path: Path, schema: pa.Schema | NumbersLayout) -> None:
        self._layout = schema if isinstance(schema, NumbersLayout) else NumbersLayout(schema)
        self._groups: list[Group] = []
        self._file = path.open("wb", buffering=0)
        self._position = len(_MAGIC)
        self._file.write(_MAGIC)
        self._end = b""

    def write_table(self, table: pa.Table, row_group_size: int) -> None:
        """Add rows, in groups of this many."""
        pieces = [
            Places(np.array([place_of(column) for column in batch.columns], np.int64), [], batch.num_rows, batch)
            for batch in table.to_batches()
            if batch.num_rows
        ]
        self.write_pieces(pieces, row_group_size)

    def write_pieces(self, pieces: Sequence[Places], row_group_size: int) -> None:
        """Add rows, in groups of this many, from pieces of which each has all columns."""
        total = sum(piece.num_rows for piece in pieces)
        for first in range(0, total, row_group_size):
            self._write_group(cut_pieces(pieces, self._layout.itemsizes, first, row_group_size))

    def _write_group(self, pieces: Sequence[Places]) -> None:
        from penstock.kernels import cpu_parquet_write as kernels

        itemsizes = self._layout.itemsizes
        rows = np.array([piece.num_rows for piece in pieces], np.int64)
        tables = np.array([piece.table for piece in pieces], np.int64)
        tables = tables.reshape(len(pieces), len(itemsizes), kernels.PIECE_FIELDS)
        chunks = np.empty((len(itemsizes), kernels.CHUNK_FIELDS), np.int64)
        if not hasattr(_threads, "workspace"):
            _threads.workspace = kernels.Workspace()
        num_rows, begin = int(rows.sum()), self._position
        buffers = _threads.workspace.buffers(num_rows)
        end = kernels.write_group(
            self._file.fileno(), begin, tables, rows, itemsizes, np.uint64(_key | 1), *buffers, chunks
        )
        if end < 0:
            os.pwrite(self._file.fileno(), b"\0", -1 - end)  # says what is wrong
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._groups.append((num_rows, begin, chunks))
        self._position = end

    def close(self) -> None:
        """Write the footer and close the file."""
        footer = self._layout.words.footer(self._groups)
        self._end = footer + len(footer).to_bytes(4, "little") + _MAGIC
        content, position = memoryview(self._end), self._position
        while content:
            written = os.pwrite(self._file.fileno(), content, position)
            content, position = content[written:], position + written
        self._file.close()

    @property
    def entry(self) -> dict[str, Any]:
        """What a manifest says of the file, once it is closed."""
        return {
            "bytes": self._position + len(self._end),
            "rows": sum(rows for rows, _, _ in self._groups),
            "footer": hashlib.sha256(self._end).hexdigest(),
        }

    def abandon(self) -> None:
        """Close the file as it is, without a footer: nobody takes it for a whole one."""
        self._file.close()


def release_workspace() -> None:
    """Give up the buffers of this thread, which outlives the writing."""
    _threads.__dict__.clear()

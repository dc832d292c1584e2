"""Parquet files of flat numbers, written by kernels that need the interpreter's lock once a row group.

What is written is what pyarrow would write with the same settings, in fewer and larger pages: uncompressed, plain
values or dictionaries, checksums, no statistics. Other columns and codecs are left to pyarrow.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.data.places import place_of

_MAGIC = b"PAR1"
_PHYSICAL = {pa.int32(): 1, pa.int64(): 2, pa.float32(): 4, pa.float64(): 5}  # parquet's types by Arrow's
_PLAIN, _RLE, _DICTIONARY = 0, 3, 8
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12  # thrift's, in its compact protocol
_threads = threading.local()
_key = secrets.randbits(64)  # of the tables that find equal values: nobody can choose values that meet in them


def can_write(schema: pa.Schema, compression: str) -> bool:
    """Whether files of this schema are written here."""
    return hasattr(os, "pwrite") and compression == "none" and all(kind in _PHYSICAL for kind in schema.types)


class NumbersFile:
    """A parquet file that row groups are added to; it is whole once it is closed.

    Args:
        path: of the file; one that is there is replaced.
        schema: of the columns, for which `can_write` is true.

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

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._itemsizes = np.array([kind.bit_width // 8 for kind in schema.types], np.int64)
        self._groups: list[tuple[int, int, np.ndarray]] = []  # rows, where it begins, sizes of its columns
        self._file = path.open("wb", buffering=0)
        self._position = len(_MAGIC)
        self._file.write(_MAGIC)

    def write_table(self, table: pa.Table, row_group_size: int) -> None:
        """Add rows, in groups of this many."""
        for first in range(0, table.num_rows, row_group_size):
            self._write_group(table.slice(first, row_group_size).to_batches())

    def _write_group(self, batches: list[pa.RecordBatch]) -> None:
        from penstock.kernels import cpu_parquet_write as kernels

        rows = np.array([batch.num_rows for batch in batches], np.int64)
        pieces = np.array([[place_of(column) for column in batch.columns] for batch in batches], np.int64)
        pieces = pieces.reshape(len(batches), len(self._schema), kernels.PIECE_FIELDS)
        chunks = np.empty((len(self._schema), kernels.CHUNK_FIELDS), np.int64)
        if not hasattr(_threads, "workspace"):
            _threads.workspace = kernels.Workspace()
        buffers = _threads.workspace.buffers(int(rows.sum()))
        begin = self._position
        end = kernels.write_group(
            self._file.fileno(), begin, pieces, rows, self._itemsizes, np.uint64(_key | 1), *buffers, chunks
        )
        if end < 0:
            os.pwrite(self._file.fileno(), b"\0", -1 - end)  # says what is wrong
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._groups.append((int(rows.sum()), begin, chunks))
        self._position = end

    def close(self) -> None:
        """Write the footer and close the file."""
        footer = self._footer()
        self._file.seek(self._position)
        content = memoryview(footer + len(footer).to_bytes(4, "little") + _MAGIC)
        while content:
            content = content[self._file.write(content) :]
        self._file.close()

    def abandon(self) -> None:
        """Close the file as it is, without a footer: nobody takes it for a whole one."""
        self._file.close()

    def _footer(self) -> bytes:
        names, kinds = [name.encode() for name in self._schema.names], [_PHYSICAL[k] for k in self._schema.types]
        root = _struct([(4, _BINARY, _text(b"schema")), (5, _I32, _number(len(names)))])
        leaves = [
            _struct([(1, _I32, _number(kind)), (3, _I32, _number(1)), (4, _BINARY, _text(name))])
            for name, kind in zip(names, kinds, strict=True)
        ]
        fixed = [
            ([(1, _I32, _number(kind))], [(3, _LIST, _list(_BINARY, [_text(name)])), (4, _I32, _number(0))])
            for name, kind in zip(names, kinds, strict=True)
        ]
        groups = [_group(fixed, *group) for group in self._groups]
        return _struct([
            (1, _I32, _number(2)),
            (2, _LIST, _list(_STRUCT, [root, *leaves])),
            (3, _I64, _number(sum(rows for rows, _, _ in self._groups))),
            (4, _LIST, _list(_STRUCT, groups)),
            (6, _BINARY, _text(b"penstock")),
        ])  # fmt: skip


_Field = tuple[int, int, bytes]  # number, kind, content
_ENCODINGS: dict[bool, _Field]


def release_workspace() -> None:
    """Give up the buffers of this thread, which outlives the writing."""
    _threads.__dict__.clear()


def _group(fixed: list[tuple[list[_Field], list[_Field]]], num_rows: int, begin: int, chunks: np.ndarray) -> bytes:
    """What the footer says of a row group."""
    columns, total = [], int(chunks[:, 0].sum())
    for (kind, path), (size, dictionary_size) in zip(fixed, chunks.tolist(), strict=True):
        sizes = [(5, _I64, _number(num_rows)), (6, _I64, _number(size)), (7, _I64, _number(size))]
        pages = [(9, _I64, _number(begin + dictionary_size))]
        if dictionary_size:
            pages.append((11, _I64, _number(begin)))
        about = _struct([*kind, _ENCODINGS[dictionary_size > 0], *path, *sizes, *pages])
        columns.append(_struct([(2, _I64, _number(0)), (3, _STRUCT, about)]))
        begin += size
    return _struct([
        (1, _LIST, _list(_STRUCT, columns)), (2, _I64, _number(total)), (3, _I64, _number(num_rows)),
    ])  # fmt: skip


def _struct(fields: Iterable[_Field]) -> bytes:
    """A thrift struct; its fields come by rising number, no two more than 15 apart."""
    listed = list(fields)
    steps = [after - before for before, after in pairwise([0, *(number for number, _, _ in listed)])]
    pieces = [bytes([step << 4 | kind]) + content for step, (_, kind, content) in zip(steps, listed, strict=True)]
    return b"".join(pieces) + b"\0"


def _list(kind: int, items: list[bytes]) -> bytes:
    count = len(items)
    head = bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + _varint(count)
    return head + b"".join(items)


def _text(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _number(value: int) -> bytes:
    """An integer that is not negative, zigzag."""
    return _varint(value << 1)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ENCODINGS = {
    has_codes: (2, _LIST, _list(_I32, [_number(e) for e in ([_PLAIN, _RLE] + [_DICTIONARY] * has_codes)]))
    for has_codes in (False, True)
}

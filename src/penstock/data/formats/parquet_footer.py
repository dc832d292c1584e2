"""A parquet file's footer: read once, checked by the kernels, and only then handed to pyarrow."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.errors import DataError
from penstock.data.files import filesystem, is_remote
from penstock.data.formats.names import check_width

_MAGIC = b"PAR1"
_TAIL = 1 << 16  # bytes read at once from the end: most footers are smaller
_VALUES_PER_BYTE = 1 << 16  # more than any page holds that is not one run of one value


@dataclass(frozen=True)
class Footer:
    """What a footer says: for pyarrow, and as the kernels' table of column chunks (`kernels.cpu_parquet_footer`)."""

    metadata: pq.FileMetaData
    schema: pa.Schema
    chunks: np.ndarray
    checksum: str  # of its bytes, as a data set's manifest has it
    file_size: int

    @cached_property
    def leaf_fields(self) -> list[pa.Field]:
        """The column that each leaf of the file belongs to; empty where a type's leaves cannot be told.

        A column's name is that of its field: the path of its leaf joins names by dots, which names may contain.
        """
        fields = [field for field in self.schema for _ in range(_num_leaves(field.type))]
        return fields if len(fields) == self.metadata.num_columns else []

    @cached_property
    def flat_levels(self) -> np.ndarray:
        """How deep the levels of each leaf are: 0 where it has a value in every row, 1 where it may have none, -1
        for a leaf of lists, or deeper."""
        columns = (self.metadata.schema.column(leaf) for leaf in range(self.metadata.num_columns))
        deep = [(column.max_definition_level, column.max_repetition_level) for column in columns]
        return np.array([-1 if repeats or level > 1 else level for level, repeats in deep], np.int64)

    def chunk_bytes(self, row_group: int) -> int:
        """What a row group takes in the file."""
        from penstock.kernels import cpu_parquet_footer as kernel

        return int(self.chunks[self.chunks[:, kernel.GROUP] == row_group, kernel.SIZE].sum())

    @classmethod
    def read(cls, path: str, storage_options: dict[str, Any] | None = None) -> Footer:
        """The checked footer of a file.

        Raises:
            DataError: the file is no whole parquet file; the message says what is wrong with it.
        """
        try:
            if is_remote(path):
                with filesystem(path, storage_options).open(path, "rb") as file:
                    return cls._of(path, file)
            with Path(path).open("rb") as file:
                return cls._of(path, file)
        except (pa.ArrowException, OSError) as error:
            raise _broken(path, str(error)) from error
        except UnicodeError as error:
            raise _broken(path, f"the name of a column is no UTF-8: {error}") from error

    @classmethod
    def _of(cls, path: str, file: BinaryIO) -> Footer:
        size = file.seek(0, io.SEEK_END)
        if size == 0:
            raise DataError(f"{path} is empty (0 bytes), not a parquet file; write it again or leave it out")
        file.seek(max(0, size - _TAIL))
        tail = file.read(_TAIL)
        if size < 12 or tail[-4:] != _MAGIC:
            raise _broken(path, "it does not end as one does" if tail[-4:] != b"PARE" else "its footer is encrypted")
        length = int.from_bytes(tail[-8:-4], "little")
        if length > size - 12:
            raise _broken(path, f"its footer of {length} bytes does not fit its {size} bytes")
        if length + 8 > len(tail):
            file.seek(size - 8 - length)
            tail = file.read(length + 8)
            if len(tail) != length + 8:
                raise _broken(path, "it became shorter")
        tail = tail[-8 - length :]
        writable = np.frombuffer(tail, np.uint8)[:-8].copy()  # for others the kernels would be compiled once more
        chunks = _checked(path, writable, size - 8 - length)
        # pyarrow gets the bytes that were checked, not the file: somebody may be writing it.
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + tail))
        schema = metadata.schema.to_arrow_schema().remove_metadata()  # which may be no text, and polars insists
        for field in schema:
            _read_names(field)
        return cls(metadata, schema, chunks, hashlib.sha256(tail).hexdigest(), size)


def _num_leaves(kind: pa.DataType) -> int:
    """How many columns of the file a field of this type takes."""
    if isinstance(kind, pa.BaseExtensionType):
        return _num_leaves(kind.storage_type)
    if pa.types.is_nested(kind):  # a map has one child here, of its entries
        return sum(_num_leaves(kind.field(i).type) for i in range(kind.num_fields))
    return 1


def _read_names(field: pa.Field) -> str:
    """Decode the names of a field and of those inside it."""
    kind = field.type
    return str(field.name) + "".join(_read_names(kind.field(i)) for i in range(kind.num_fields))


def _checked(path: str, data: np.ndarray, size_of_data: int) -> np.ndarray:
    """The table of column chunks, after every number in it was found possible."""
    from penstock.kernels import cpu_parquet_footer as kernel

    leaves, found = np.zeros((len(data) // 2 + 1, 2), np.int64), np.zeros(4, np.int64)  # no element takes two bytes
    chunks = np.zeros((0, kernel.FOOTER_FIELDS), np.int64)
    for _ in range(2):  # first to count them
        status = kernel.scan_footer(data, size_of_data, leaves, chunks, found)
        if status:
            raise _broken(path, kernel.FOOTER_TEXTS[int(status)] + _place(int(found[2]), int(found[3])))
        check_width(int(found[0]), path)
        if len(chunks) == 0:
            chunks = np.zeros((int(found[0]) * int(found[1]), kernel.FOOTER_FIELDS), np.int64)
    _require_possible_sizes(path, chunks)
    return chunks


def _require_possible_sizes(path: str, chunks: np.ndarray) -> None:
    """Refuse promises of more rows or bytes than so few bytes can keep: readers take the memory before they look."""
    from penstock.kernels import cpu_parquet_footer as kernel

    size = np.maximum(chunks[:, kernel.SIZE], 1).astype(np.float64)
    for column, most, what in ((kernel.NUM_VALUES, _VALUES_PER_BYTE, "values"), (kernel.FULL_SIZE, 1 << 16, "bytes")):
        beyond = np.flatnonzero(chunks[:, column] > np.maximum(size * most, 1 << 24))
        if len(beyond):
            chunk = chunks[beyond[0]]
            raise _broken(
                path,
                f"{chunk[column]} {what} cannot be in {chunk[kernel.SIZE]} bytes"
                + _place(int(chunk[kernel.GROUP]), int(chunk[kernel.LEAF])),
            )


def _place(group: int, leaf: int) -> str:
    return f" (row group {group}" * (group >= 0) + f", column number {leaf}" * (leaf >= 0) + ")" * (group >= 0)


def _broken(path: str, why: str) -> DataError:
    return DataError(f"{path} is not a whole parquet file ({why}); it may be truncated or damaged: write it again")

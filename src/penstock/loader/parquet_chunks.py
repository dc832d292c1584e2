"""Column chunks of parquet files that the loader's kernels understand, as a checked footer describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.errors import DataError
from penstock.core.schema import ColumnSchema
from penstock.data.codecs import Codec, codec_in_footer
from penstock.data.formats.parquet_footer import Footer
from penstock.data.formats.parquet_pages import CODECS, COMMON_ENCODINGS, damaged_page
from penstock.kernels import cpu_parquet_footer as table

# As the format numbers them.
_TYPES: dict[int, np.dtype] = {1: np.dtype(np.int32), 2: np.dtype(np.int64), 4: np.dtype(np.float32)}
_TYPES[5] = np.dtype(np.float64)


@dataclass(frozen=True)
class ColumnChunk:
    """Where one column of one row group lies, and how it is written."""

    column: str
    row_group: int
    offset: int
    size: int
    num_rows: int
    codec: Codec
    dtype: np.dtype  # on disk: narrow integers are stored as int32
    logical: np.dtype  # what the numbers are: unsigned ones are stored as signed
    optional: bool
    num_values: int = 0
    full_size: int = 0  # uncompressed
    levels: tuple[int, int] | None = None  # of a list column: the definition levels of an empty list and of an item

    def damaged(self, path: str, page: int, why: str = "it cannot be right") -> DataError:
        """The error for a page that is not to be believed."""
        return damaged_page(path, self.column, self.row_group, page, why)

    @property
    def is_snappy(self) -> bool:
        """Whether the kernels must uncompress its pages: the one codec that they know."""
        return self.codec.name == "snappy"


def _logical(kind: pa.DataType) -> np.dtype | None:
    """The numbers that a column, or a list's items, are; None for anything that only looks like numbers on disk."""
    kind = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else kind
    if pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind):
        dtype: np.dtype = np.dtype(kind.to_pandas_dtype())
        return dtype
    return None


def column_chunks(footer: Footer) -> dict[tuple[int, str], ColumnChunk]:
    """Every column chunk of the file that the kernels understand, by row group and column."""
    schema = footer.metadata.schema
    leaves = {}
    for c, field in enumerate(footer.leaf_fields):
        levels = _levels(schema.column(c), field)
        logical = _logical(field.type)
        if levels is not False and logical is not None:
            leaves[c] = field.name, levels, logical, schema.column(c).max_definition_level > 0
    chunks = {}
    for said in footer.chunks.tolist():
        codec = codec_in_footer(CODECS.get(said[table.CODEC], ""))
        known = said[table.TYPE] in _TYPES and said[table.ENCODINGS] & ~COMMON_ENCODINGS == 0
        if said[table.LEAF] not in leaves or not known or codec is None or not codec.known_to_loader:
            continue
        name, levels, logical, optional = leaves[said[table.LEAF]]
        start, dictionary = said[table.DATA_PAGE], said[table.DICTIONARY_PAGE]
        chunks[said[table.GROUP], name] = ColumnChunk(
            name,
            said[table.GROUP],
            min(start, dictionary) if dictionary else start,
            said[table.SIZE],
            said[table.ROWS],
            codec,
            _TYPES[said[table.TYPE]],
            logical,
            optional,
            said[table.NUM_VALUES],
            said[table.FULL_SIZE],
            levels,
        )
    return chunks


def _levels(leaf: pq.ColumnSchema, field: pa.Field) -> tuple[int, int] | Literal[False] | None:
    """None for a flat column, the levels of a list of numbers, False for anything deeper."""
    if not pa.types.is_nested(field.type):
        return None if leaf.max_repetition_level == 0 and leaf.max_definition_level <= 1 else False
    if leaf.max_repetition_level != 1 or not (pa.types.is_list(field.type) or pa.types.is_large_list(field.type)):
        return False
    empty = int(field.nullable)
    item = empty + 1 + int(field.type.value_field.nullable)
    return (empty, item) if item == leaf.max_definition_level else False


def stored_dtype(chunk: ColumnChunk, column: ColumnSchema) -> np.dtype:
    """The dtype of a chunk's values: the schema's, where that takes as many bytes."""
    wanted: np.dtype = np.dtype(column.dtype)
    return wanted if wanted.itemsize == chunk.dtype.itemsize else chunk.dtype

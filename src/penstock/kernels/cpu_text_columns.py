"""What text is parsed into: typed columns with Arrow validity, cut from one block, and the errors of lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.core.runtime.buffers import SpareBuffers
from penstock.kernels import cpu_text_fields as fields
from penstock.kernels import cpu_text_tiles as tiles
from penstock.kernels.cpu_intrinsics import ALIGNMENT

if TYPE_CHECKING:
    import polars as pl

INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
DTYPES = {name: name for name in (*INTEGERS, "float32", "float64")} | {"hex32": "uint32", "hex64": "uint64"}
DTYPES["string"] = "V16"  # a string view
KINDS = (*DTYPES, "skip")
ERROR_TEXTS = {
    fields.TOO_FEW_FIELDS: "too few fields",
    fields.TOO_MANY_FIELDS: "too many fields",
    fields.BAD_INTEGER: "not an integer",
    fields.OUT_OF_RANGE: "an integer that the column's type cannot hold",
    fields.BAD_HEX: "not hexadecimal",
    fields.HEX_TOO_LONG: "more hexadecimal digits than the column's type can hold",
    fields.BAD_FLOAT: "not a number",
}
_blocks = SpareBuffers()


class LineError(NamedTuple):
    """A malformed line or field: its line (from 0) and byte offset in the range, its column, and the error code."""

    line: int
    offset: int
    column: int
    code: int

    @property
    def text(self) -> str:
        """What is wrong, in words."""
        return ERROR_TEXTS[self.code]


@dataclass
class ParsedColumn:
    """One column: values (0 where null), and an Arrow validity bitmap (bit i, lowest first, is row i).

    Arrays are made of it when they are asked for: most often nobody but the kernel looks at a column.
    """

    block: np.ndarray  # of all columns
    dtype: np.dtype
    num_rows: int
    start: int  # where its values begin in the block
    bitmap_start: int
    null_count: int = 0
    text: np.ndarray | None = None  # what string views point into

    @property
    def values(self) -> np.ndarray:
        return self.block[self.start : self.start + self.num_rows * self.dtype.itemsize].view(self.dtype)

    @property
    def bitmap(self) -> np.ndarray:
        return self.block[self.bitmap_start : self.bitmap_start + -(-self.num_rows // 8)]

    def valid(self) -> np.ndarray:
        """The validity as one boolean per row."""
        return np.unpackbits(self.bitmap, count=len(self.values), bitorder="little").view(np.bool_)

    def to_arrow(self, memory: Any = None) -> Any:
        """A pyarrow array over the same memory; `memory` is a pyarrow buffer of the block, where there is one."""
        import pyarrow as pa

        memory = pa.py_buffer(self.block) if memory is None else memory
        bitmap = memory.slice(self.bitmap_start, -(-self.num_rows // 8)) if self.null_count else None
        values = memory.slice(self.start, self.num_rows * self.dtype.itemsize)
        if self.text is not None:
            buffers = [bitmap, values, pa.py_buffer(self.text)]
            return pa.Array.from_buffers(pa.string_view(), self.num_rows, buffers, self.null_count)
        return pa.Array.from_buffers(pa.from_numpy_dtype(self.dtype), self.num_rows, [bitmap, values], self.null_count)


@dataclass
class ParsedText:
    """The kept columns of a byte range in file order (by index), and what was wrong with its lines.

    `errors` holds the first ones found, `num_bad_lines` counts all lines with an error.
    """

    columns: dict[int, ParsedColumn]
    num_rows: int
    num_lines: int
    num_bad_lines: int = 0
    errors: list[LineError] = field(default_factory=list)

    def to_polars(self, names: Sequence[str]) -> pl.DataFrame:
        """A polars frame over the same memory; `names` has one name per column of the file."""
        import polars as pl
        import pyarrow as pa

        memory = next((pa.py_buffer(column.block) for column in self.columns.values()), None)  # all are in one
        arrays = [column.to_arrow(memory) for column in self.columns.values()]
        return pl.DataFrame(pa.record_batch(arrays, [names[i] for i in self.columns]))


def allocate_columns(num_rows: int, dtypes: dict[int, np.dtype]) -> dict[int, ParsedColumn]:
    """Columns cut from one block, of memory that was used before where there is some: fresh pages cost a sixth of
    parsing, and a third where they are not huge ones, which NumPy asks for.

    Bitmaps have one word more than rows need, because tiles may end inside a word.
    """
    bitmap_bytes = _round_up(num_rows // 8 + 16)
    size = sum(_round_up(num_rows * dtype.itemsize) for dtype in dtypes.values())
    block = _blocks.acquire(size + bitmap_bytes * len(dtypes))
    block[size:] = 0
    columns, start, bitmap_start = {}, 0, size
    for column, dtype in dtypes.items():
        columns[column] = ParsedColumn(block, dtype, num_rows, start, bitmap_start)
        start += _round_up(num_rows * dtype.itemsize)
        bitmap_start += bitmap_bytes
    return columns


def _round_up(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def copied_strings(views: np.ndarray, text: np.ndarray) -> np.ndarray:
    """The strings that views point at, copied out of the text, which need not be kept then."""
    pairs = views.view(np.uint64).reshape(-1, 2)
    arena = np.empty(int(tiles.own_strings(pairs, text, np.empty(0, np.uint8))), np.uint8)
    tiles.own_strings(pairs, text, arena)
    return arena

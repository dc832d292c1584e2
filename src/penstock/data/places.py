"""Where the values of frames lie in memory: many columns handed to a kernel in one call, and back, without copies."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.data.partition import in_order

_NEWEST = pl.CompatLevel.newest()


_NUMBERS = pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64
_SIZES: dict[Any, int] = {kind: np.dtype(kind.__name__.lower()).itemsize for kind in _NUMBERS}
_address_in: Any = ctypes.pythonapi.PyCapsule_GetPointer
_address_in.restype, _address_in.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
# Called with the interpreter's lock: they take less time than to get it back.
_GetNext = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_Release = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class Places(NamedTuple):
    """Columns of a frame: a line of `table` says where one lies, and `owner` keeps the memory."""

    table: np.ndarray
    null_counts: list[int]
    num_rows: int
    owner: object


class _Exported:
    """What Arrow's C interface gives of a frame: ten words (see `kernels.cpu_arrow`), released with this."""

    def __init__(self) -> None:
        self.words = np.zeros(10, np.int64)
        self.address: int = self.words.ctypes.data

    def __del__(self, release: Any = _Release) -> None:
        if function := int(self.words[8]):
            release(function)(self.address)


def place_of(column: pa.Array) -> tuple[int, int, int]:
    """Where a column's values begin, where its validity bits lie (0 where nothing is missing), and its first bit."""
    bits, values = column.buffers()
    first = 0 if values is None else values.address + column.offset * (column.type.bit_width // 8)
    has_nulls = bits is not None and column.null_count
    return first, bits.address if has_nulls else 0, column.offset if has_nulls else 0


def pieces_of(frame: pl.DataFrame) -> list[Places]:
    """Where a frame's columns, all of them numbers, lie: the pieces that they are in, one below the other.

    pyarrow has a dozen Python objects a column for the same, made under the interpreter's lock.

    >>> frame = pl.DataFrame({"x": [1, None], "y": [2, 3]})
    >>> [(piece.num_rows, piece.null_counts) for piece in pieces_of(frame)]
    [(2, [1, 0])]
    """
    from penstock.kernels.cpu_arrow import find_columns

    itemsizes = np.array([_SIZES[type(dtype)] for dtype in frame.dtypes], np.int64)
    pieces: list[Places] = []
    capsule = frame.__arrow_c_stream__()
    stream: int = _address_in(capsule, b"arrow_array_stream")
    get_next: Any = _GetNext((ctypes.c_int64 * 5).from_address(stream)[1])
    while True:
        piece = _Exported()
        if get_next(stream, piece.address):
            raise MemoryError("polars cannot say where a frame lies")
        if not piece.words[8]:  # there are no more
            return pieces
        num_rows = int(piece.words[0])
        if num_rows:
            table, null_counts = np.empty((len(itemsizes), 3), np.int64), np.empty(len(itemsizes), np.int64)
            find_columns(piece.address, itemsizes, table, null_counts)
            pieces.append(Places(table, null_counts.tolist(), num_rows, piece))


def cut_pieces(pieces: Sequence[Places], itemsizes: np.ndarray, first: int, num_rows: int) -> list[Places]:
    """The pieces of so many rows from one on, or of as many as there are."""
    from penstock.kernels.cpu_arrow import cut_columns

    found = []
    for piece in pieces:
        count = min(piece.num_rows - first, num_rows)
        if first <= 0 and count == piece.num_rows:
            found.append(piece)
        elif count > 0 and first < piece.num_rows:
            table = np.empty_like(piece.table)
            cut_columns(piece.table, itemsizes, first, count, table)
            found.append(Places(table, [], count, piece.owner))
        first, num_rows = max(0, first - piece.num_rows), num_rows - max(0, count)
    return found


def places_of(frame: pl.DataFrame, names: Sequence[str] | None = None) -> Places:
    """Where columns of numbers lie, each in one piece: a line of three for each, as `place_of` says.

    Args:
        frame: that has them.
        names: of the columns; all of them where left out.

    >>> places = places_of(pl.DataFrame({"x": [1, None, 3], "y": ["a", "b", "c"]}), ["x"])
    >>> places.num_rows, places.null_counts, places.table.shape
    (3, [1], (1, 3))
    """
    chosen = frame if names is None else in_order(frame, names)
    pieces = pieces_of(chosen)
    if len(pieces) > 1:
        pieces = pieces_of(chosen.rechunk())
    return pieces[0] if pieces else Places(np.zeros((chosen.width, 3), np.int64), [0] * chosen.width, 0, None)


def text_places_of(columns: Sequence[pl.Series]) -> Places:
    """Where columns of texts (or bytes) lie: a line of five for each, as `kernels.cpu_text_table` says.

    polars holds texts as string views, which Arrow pads with zeros; nothing is copied but views in several pieces.

    >>> places = text_places_of([pl.Series(["a", None, "much longer than a view"])])
    >>> places.num_rows, places.null_counts, places.table.shape
    (3, [1], (1, 5))
    """
    lines, owner = [], []
    for column in columns:
        array = (column if column.n_chunks() == 1 else column.rechunk()).to_arrow(compat_level=_NEWEST)
        bits, views, *buffers = array.buffers()
        addresses = np.array([0 if own is None else own.address for own in buffers] or [0], np.int64)
        first = 0 if views is None else views.address + 16 * array.offset
        masked = bits is not None and array.null_count
        validity = (bits.address, array.offset) if masked else (0, 0)
        lines.append((first, *validity, addresses.ctypes.data, 0))
        owner.append((array, addresses))
    null_counts = [column.null_count() for column in columns]
    return Places(np.array(lines, np.int64).reshape(-1, 5), null_counts, len(columns[0]) if columns else 0, owner)


def frame_over(names: Sequence[str], block: np.ndarray) -> pl.DataFrame:
    """A frame over the memory of a block, `(columns, rows)`; it is not to be written to any more.

    >>> frame_over(["a", "b"], np.array([[1, 2], [3, 4]], np.int32)).rows()
    [(1, 3), (2, 4)]
    """
    kind, memory, size = pa.from_numpy_dtype(block.dtype), pa.py_buffer(block), block.shape[1] * block.itemsize
    arrays = [
        pa.Array.from_buffers(kind, block.shape[1], [None, memory.slice(i * size, size)], 0) for i in range(len(block))
    ]
    return pl.DataFrame(pa.record_batch(arrays, list(names)))

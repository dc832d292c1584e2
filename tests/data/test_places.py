"""Where columns lie: the same addresses as pyarrow says, and memory that lives as long as they are used."""

import gc

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from penstock.data.places import cut_pieces, pieces_of, place_of, places_of

DTYPES = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64)


def frame_of(rows: int = 1000, seed: int = 3) -> pl.DataFrame:
    """Columns of all dtypes, whole ones and some with nulls."""
    draw = np.random.default_rng(seed)
    columns = []
    for dtype in DTYPES:
        values = pl.Series(draw.integers(0, 100, rows)).cast(dtype)
        columns.append(values.alias(f"{dtype}"))
        columns.append(values.set(pl.Series(draw.random(rows) < 0.2), None).alias(f"{dtype} with nulls"))
    return pl.DataFrame(columns)


def values_at(line: np.ndarray, num_rows: int, dtype: pl.DataType) -> list:
    """What lies where a line of a table of places says."""
    kind = pa.from_numpy_dtype(np.dtype(str(dtype).lower()))
    first, bits, first_bit = line.tolist()
    values = pa.foreign_buffer(first, num_rows * (kind.bit_width // 8))
    found = pa.Array.from_buffers(kind, num_rows, [None, values]).to_pylist()
    if bits:
        valid = pa.Array.from_buffers(pa.bool_(), num_rows, [None, pa.foreign_buffer(bits, 10**6)], offset=first_bit)
        found = [value if there else None for value, there in zip(found, valid.to_pylist(), strict=True)]
    return found


def assert_there(pieces, frame: pl.DataFrame) -> None:
    """The pieces hold the frame's rows, and say which columns lack values."""
    for place, column in enumerate(frame):
        found = [value for piece in pieces for value in values_at(piece.table[place], piece.num_rows, column.dtype)]
        assert found == column.to_list(), column.name
    assert sum(piece.num_rows for piece in pieces) == frame.height


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame,
        lambda frame: frame[13:],
        lambda frame: frame[130:131],
        lambda frame: pl.concat([frame[:77], frame[77:500]], rechunk=False),
        lambda frame: pl.DataFrame(pl.from_arrow(frame.to_arrow().slice(5, 300), rechunk=False)),
        lambda frame: pl.concat([frame[:70].select(frame.columns[:3]), frame[70:].select(frame.columns[:3])]),
    ],
)
def test_pieces_hold_the_rows(change):
    frame = change(frame_of())
    assert_there(pieces_of(frame), frame)
    for piece in pieces_of(frame):
        assert [bool(count) for count in piece.null_counts] == [bool(bits) for bits in piece.table[:, 1]]


def test_the_same_as_pyarrow_says():
    frame = frame_of()[:100]
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    wanted = [place_of(column.chunk(0)) for column in table.columns]
    places = places_of(frame)
    assert [tuple(line) for line in places.table.tolist()] == wanted
    assert places.null_counts == [column.null_count for column in table.columns]


def test_some_columns_in_one_piece():
    frame = frame_of()
    chunked = pl.concat([frame[:400], frame[400:]], rechunk=False).with_columns(word=pl.lit("a"))
    names = ["Float32 with nulls", "Int8"]
    places = places_of(chunked, names)
    assert_there([places], frame.select(names))


def test_without_rows():
    assert pieces_of(frame_of()[:0]) == []
    places = places_of(frame_of()[:0])
    assert places.num_rows == 0 and places.table.shape == (2 * len(DTYPES), 3) and not any(places.null_counts)


@pytest.mark.parametrize(
    "first, rows", [(0, 1000), (0, 400), (3, 5), (399, 2), (250, 700), (999, 1), (0, 0), (900, 400)]
)
def test_pieces_are_cut(first, rows):
    frame = frame_of()
    chunked = pl.concat([frame[:400], frame[400:403], frame[403:]], rechunk=False)
    itemsizes = np.array([np.dtype(str(dtype).lower()).itemsize for dtype in frame.dtypes], np.int64)
    wanted = frame[first : first + rows]
    found = cut_pieces(pieces_of(chunked), itemsizes, first, rows)
    assert_there(found, wanted)


def test_a_cut_without_nulls_has_no_bits():
    values = pl.Series("a", [None, *range(200), None], dtype=pl.Int32)
    pieces, itemsizes = pieces_of(pl.DataFrame([values])), np.array([4], np.int64)
    for first, rows, has_bits in [(1, 200, False), (0, 1, True), (1, 201, True), (2, 64, False), (137, 65, True)]:
        (piece,) = cut_pieces(pieces, itemsizes, first, rows)
        assert bool(piece.table[0, 1]) == has_bits, (first, rows)


def test_memory_lives_as_long_as_its_places():
    memory = np.arange(100_000, dtype=np.int64)
    freed = []

    class Owner:
        def __init__(self, array):
            self.__array_interface__ = array.__array_interface__
            self.array = array

        def __del__(self):
            freed.append(True)

    column = pa.Array.from_buffers(pa.int64(), len(memory), [None, pa.py_buffer(np.asarray(Owner(memory)))])
    frame = pl.DataFrame({"a": pl.from_arrow(column)})
    del column
    pieces = pieces_of(frame)
    del frame
    gc.collect()
    assert pieces[0].table[0, 0] == memory.ctypes.data and not freed
    itemsizes = np.array([8], np.int64)
    cut = cut_pieces(pieces, itemsizes, 5, 10)
    del pieces
    gc.collect()
    assert not freed
    del cut
    gc.collect()
    assert freed

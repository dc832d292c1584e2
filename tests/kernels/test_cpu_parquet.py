"""The column decoder against pyarrow, over codecs, encodings, page versions, nulls; and against damaged bytes."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.batch import Ragged
from penstock.data import Dataset
from penstock.data.parquet_file import NumbersFile
from penstock.kernels import cpu_parquet as kernels
from penstock.kernels import cpu_parquet_pages as page_kernels
from penstock.kernels.cpu_bit_packing import GROUP
from penstock.loader.parquet import ParquetColumns, Workspace

ROWS = 3_001


def columns(rows: int = ROWS) -> dict[str, pa.Array]:
    rng = np.random.default_rng(0)
    few, many = rng.integers(0, 7, rows), rng.integers(0, 2**31 - 1, rows)
    mask = rng.random(rows) < 0.3
    return {
        "few": pa.array(few, pa.int32()),
        "many": pa.array(many, pa.int64()),
        "negative": pa.array(-many, pa.int64()),
        "constant": pa.array(np.full(rows, 5), pa.int32()),
        "runs": pa.array(np.arange(rows) // 100, pa.int32()),
        "real": pa.array(rng.standard_normal(rows), pa.float32()),
        "double": pa.array(np.round(rng.standard_normal(rows), 1), pa.float64()),
        "unsigned": pa.array(many.astype(np.uint32) + np.uint32(2**31), pa.uint32()),
        "byte": pa.array(few, pa.int8()),
        "holes": pa.array(few, pa.int32(), mask=mask),
        "real_holes": pa.array(rng.standard_normal(rows), pa.float32(), mask=mask),
        "nothing": pa.nulls(rows, pa.float32()),
    }


def decode(path: str, name: str, fill: float = -1):
    """`(values, nulls)` of a whole file's column, or None where the decoder declines."""
    source = ParquetColumns()
    partitions = Dataset(path).partitions
    assert len(partitions) == 1
    chunks = source.chunks(partitions[0], name)
    if chunks is None:
        return None
    out = np.empty(partitions[0].num_rows, chunks[0].dtype)
    nulls = source.read(chunks, source.open(path), path, Workspace(), out, fill)
    return out, nulls


@pytest.mark.parametrize("compression", ["snappy", "none", "zstd", "gzip"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_agrees_with_pyarrow(tmp_path, compression, version, dictionary):
    path = str(tmp_path / "a.parquet")
    table = pa.table(columns())
    pq.write_table(
        table, path, row_group_size=1100, compression=compression, data_page_version=version,
        use_dictionary=dictionary, data_page_size=2000, dictionary_pagesize_limit=3000,
    )  # fmt: skip
    for name in table.column_names:
        decoded = decode(path, name)
        assert decoded is not None, name
        values, nulls = decoded
        expected = table[name].fill_null(-1).to_numpy() if table[name].null_count else table[name].to_numpy()
        assert nulls == table[name].null_count
        if name == "unsigned":  # stored as signed, the bits are the same
            values = values.view(np.uint32)
        np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 65])
def test_few_rows_and_required_columns(tmp_path, rows):
    path = str(tmp_path / "a.parquet")
    table = pa.table(columns(rows))
    required = [n for n in table.column_names if not table[n].null_count]
    schema = pa.schema([pa.field(n, table.schema.field(n).type, nullable=False) for n in required])
    pq.write_table(table.select(required).cast(schema), path)
    for name in required:
        values, nulls = decode(path, name)
        assert nulls == 0
        np.testing.assert_array_equal(values.view(np.uint32) if name == "unsigned" else values, table[name].to_numpy())


def decode_codes(path: str, name: str, fill: float = -1):
    """`(values, codes, nulls)` of all row groups of a file by one call."""
    source = ParquetColumns()
    (partition,) = Dataset(path).partitions
    chunks = source.chunks(partition, name)
    file = source.open(path)
    out = np.empty(partition.num_rows, chunks[0].dtype)
    nulls, found = source.read_at_once([(c, file) for c in chunks], Workspace(), out, fill, may_be_codes=True)
    return found.values, found.codes, nulls


@pytest.mark.parametrize("compression", ["snappy", "none"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("limit", [1 << 20, 3000])
def test_codes_and_what_they_stand_for_agree_with_pyarrow(tmp_path, compression, version, limit):
    path = str(tmp_path / "a.parquet")
    table = pa.table(columns())
    pq.write_table(
        table, path, row_group_size=1100, compression=compression, data_page_version=version, data_page_size=2000,
        dictionary_pagesize_limit=limit,
    )  # fmt: skip
    as_codes = set()
    for name in table.column_names:
        values, codes, nulls = decode_codes(path, name)
        assert nulls == table[name].null_count
        if len(codes):
            as_codes.add(name)
            values = values[codes]
        values = values.view(np.uint32) if name == "unsigned" else values
        expected = table[name].fill_null(-1) if nulls else table[name]
        np.testing.assert_array_equal(values, expected.to_numpy())
    # Pages that the writer has begun to write plain, since the dictionary was full, end it.
    full = {"many", "negative", "real", "unsigned"} if limit == 3000 else set()
    assert as_codes == set(table.column_names) - full


def test_a_dictionary_that_becomes_too_large_on_the_way(tmp_path):
    path, rng = str(tmp_path / "a.parquet"), np.random.default_rng(0)
    few, many = rng.integers(0, 40_000, 50_000), rng.integers(0, 2**31 - 1, 50_000)
    values = np.concatenate([few, many, few]).astype(np.int32)
    pq.write_table(pa.table({"x": values}), path, row_group_size=50_000, dictionary_pagesize_limit=1 << 22)
    found, codes, _ = decode_codes(path, "x")
    assert len(codes) == 0
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("distinct", [65_534, 65_535, 65_536, 65_537])
@pytest.mark.parametrize("missing", [False, True])
def test_as_many_values_as_codes_can_tell_apart(tmp_path, distinct, missing):
    path = str(tmp_path / "a.parquet")
    values = np.random.default_rng(1).permutation(np.arange(distinct)).astype(np.int64)
    array = pa.array(np.append(values, 0), mask=np.append(np.zeros(distinct, bool), missing))
    pq.write_table(pa.table({"x": array}), path, dictionary_pagesize_limit=1 << 22)
    found, codes, nulls = decode_codes(path, "x")
    assert nulls == missing and (len(codes) > 0) == (distinct < 65_536)
    np.testing.assert_array_equal(found[codes] if len(codes) else found, np.append(values, -1 if missing else 0))


def test_compressible_pages(tmp_path):
    path = str(tmp_path / "a.parquet")
    # Short and overlapping back references: all of Snappy's kinds of copy.
    values = np.concatenate([np.arange(5000) % period for period in (1, 2, 3, 5, 300, 5000)]).astype(np.int64)
    pq.write_table(pa.table({"x": values}), path, compression="snappy", use_dictionary=False)
    assert (decode(path, "x")[0] == values).all()


@pytest.mark.parametrize("compression", ["snappy", "none", "zstd"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("nullable", ["both", "list", "item", "neither"])
def test_lists_agree_with_pyarrow(tmp_path, compression, dictionary, nullable):
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 6, ROWS)
    lengths[:3] = 0
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values = rng.integers(0, 50, offsets[-1])
    item = pa.field("element", pa.int64(), nullable=nullable in ("both", "item"))
    array = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values, pa.int64()), pa.list_(item))
    schema = pa.schema([pa.field("x", pa.list_(item), nullable=nullable in ("both", "list"))])
    path = str(tmp_path / "a.parquet")
    pq.write_table(
        pa.Table.from_arrays([array], schema=schema), path, row_group_size=1100, compression=compression,
        use_dictionary=dictionary, data_page_size=2000,
    )  # fmt: skip
    source, (partition,) = ParquetColumns(), Dataset(path).partitions
    chunks = source.chunks(partition, "x")
    out = Ragged(np.empty(sum(c.num_values for c in chunks), np.int64), np.zeros(ROWS + 1, np.int64))
    count = source.read_lists(chunks, source.open(path), path, Workspace(), out, 0, 0)
    assert count == len(values)
    np.testing.assert_array_equal(out.values[:count], values)
    np.testing.assert_array_equal(out.offsets, offsets)


def test_declines_what_it_does_not_know(tmp_path):
    path = str(tmp_path / "a.parquet")
    table = pa.table({"s": ["a", "b"], "l": [["a"], ["b", "c"]], "d": pa.array([1, 2], pa.int64()), "b": [True, False]})
    pq.write_table(table, path, use_dictionary=False, column_encoding={"d": "DELTA_BINARY_PACKED"})
    assert [decode(path, name) for name in table.column_names] == [None] * 4


@pytest.mark.parametrize("compression", ["snappy", "none"])
def test_damaged_bytes_never_crash(tmp_path, compression):
    path = str(tmp_path / "a.parquet")
    table = pa.table({k: v for k, v in columns(400).items() if k in ("few", "real", "holes", "runs")})
    pq.write_table(table, path, compression=compression, data_page_size=500)
    source = ParquetColumns()
    partition = Dataset(path).partitions[0]
    rng = np.random.default_rng(1)
    space = Workspace()
    noticed = 0
    for name in table.column_names:
        (chunk,) = source.chunks(partition, name)
        with open(path, "rb") as file:  # noqa: PTH123
            file.seek(chunk.offset)
            good = np.frombuffer(file.read(chunk.size), np.uint8)
        for _ in range(300):
            data = np.zeros(chunk.size + page_kernels.SLACK, np.uint8)
            data[: chunk.size] = good
            for _ in range(rng.integers(1, 4)):
                data[rng.integers(0, chunk.size)] = rng.integers(0, 256)
            noticed += _decode_bytes(data, chunk, space) < 0
    assert noticed > 100


def _decode_bytes(data, chunk, space) -> int:
    count = page_kernels.scan_pages(data, chunk.size, space.pages)
    if count < 0:
        return count
    pages = space.pages[:count]
    out = np.empty(chunk.num_rows, np.uint32)
    work, dictionary = np.empty(1 << 16, np.uint8), np.empty(1 << 12, np.uint32)
    levels = np.empty(chunk.num_rows, np.uint8)
    how = levels, chunk.optional, chunk.is_snappy
    found = kernels.decode_flat(data, pages, work, dictionary, *how, out, np.uint32(0))
    values, codes = np.empty(2 * kernels.MOST_CODES, np.uint32), np.empty(chunk.num_rows + GROUP, np.uint16)[:-GROUP]
    if kernels.may_stay_codes(pages):
        nulls, known = kernels.decode_flat_codes(data, pages, work, values, 0, *how, codes, np.uint32(0))
        assert nulls == found or min(nulls, found) < 0
        if nulls >= 0:
            np.testing.assert_array_equal(values[:known][codes], out)
    return found


def groups(kind):
    """Row groups whose dictionaries are alike as far as they go, lie apart, or are more than codes can stand for."""
    rng = np.random.default_rng(5)
    sizes = {"alike": [500, 900, 700], "apart": [500, 900, 700], "many": [40_000, 60_000, 1]}[kind]
    base = {"alike": [0, 0, 0], "apart": [0, 10**6, 5], "many": [0, 10**6, 0]}[kind]
    return [
        first + rng.permutation(np.resize(np.arange(size), 4 * size)) for size, first in zip(sizes, base, strict=True)
    ]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize(("kind", "known"), [("alike", 900), ("apart", 500 + 900 + 705), ("many", None)])
def test_dictionaries_that_count_are_one_where_they_begin_alike(tmp_path, dtype, holes, kind, known):
    path, rng = tmp_path / "a.parquet", np.random.default_rng(9)
    arrays = [pa.array(group.astype(dtype), mask=rng.random(len(group)) < 0.2 * holes) for group in groups(kind)]
    file = NumbersFile(path, pa.schema([("a", arrays[0].type)]))
    for array in arrays:
        file.write_table(pa.table({"a": array}), len(array))
    file.close()
    expected = pa.chunked_array(arrays).fill_null(-1).to_numpy()
    values, codes, nulls = decode_codes(str(path), "a")
    np.testing.assert_array_equal(values[codes] if len(codes) else values, expected)
    assert nulls == pa.chunked_array(arrays).null_count
    np.testing.assert_array_equal(decode(str(path), "a")[0], expected)
    if not holes:
        assert len(values) == (known or len(expected))


def test_snappy_refuses_nonsense():
    out = np.empty(200, np.uint8)
    for bad in (b"", b"\xff\xff\xff\xff\xff\xff", b"\x05\x01\x01", b"\x04\xf0", b"\x08\x00a\x01\x09", b"\x02\x00a"):
        source = np.zeros(len(bad) + page_kernels.SLACK, np.uint8)
        source[: len(bad)] = np.frombuffer(bad, np.uint8)
        assert page_kernels.snappy(source, 0, len(bad), out, 8, 9) == page_kernels.DAMAGED


def test_workspace_grows():
    space = Workspace()
    small = space.array("values", 10, np.dtype(np.int32))
    large = space.array("values", 10_000, np.dtype(np.int64))
    assert len(small) == 10
    assert len(large) == 10_000

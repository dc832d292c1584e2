"""Row groups that the kernel writes, read by pyarrow and polars: they see the rows that went in."""

import errno
import pickle
import resource

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.data.manifest import entry_of
from penstock.data.parquet_file import NumbersFile, NumbersLayout, can_write
from penstock.kernels import cpu_parquet_write as kernels

rng = np.random.default_rng(7)


def columns(rows):
    """Dictionaries and plain values, nulls here, everywhere and nowhere, runs, one value, as many as rows."""
    missing = rng.random(rows) < 0.3
    late = 900 + np.arange(rows) // 2  # few values in the first rows, more than a dictionary holds in all
    return pa.table(
        {
            "few": pa.array(rng.integers(-3, 3, rows), pa.int32()),
            "plain": pa.array(rng.random(rows)),
            "plain with nulls": pa.array(rng.integers(0, 2**40, rows), pa.int64(), mask=missing),
            "few with nulls": pa.array(rng.integers(0, 3, rows).astype(np.float32), mask=missing),
            "one": pa.array(np.zeros(rows, np.int32)),
            "none": pa.array(np.zeros(rows, np.int32), mask=np.ones(rows, bool)),
            "runs": pa.array(np.sort(rng.integers(0, 50, rows)), pa.int64()),
            "late": pa.array(np.minimum(rng.integers(0, 2**20, rows), late), pa.int32()),
            "odd": pa.array(np.resize([np.nan, -0.0, 0.0, np.inf], rows).astype(np.float32)),
        }
    )


def written(path, table, size):
    file = NumbersFile(path, table.schema)
    file.write_table(table, row_group_size=size)
    file.close()
    return path


@pytest.mark.parametrize("rows", [1, 7, 8, 65, 1_000, kernels.PAGE_ROWS, kernels.PAGE_ROWS + 9, 180_003])
def test_others_read_what_was_written(tmp_path, rows):
    table = columns(rows)
    path = written(tmp_path / "rows.parquet", table, 100_000)
    assert_same(pq.read_table(path, page_checksum_verification=True), table)
    assert_same(pl.read_parquet(path).to_arrow(), table)
    assert [pq.ParquetFile(path).metadata.row_group(0).num_rows] == [min(rows, 100_000)]


@pytest.mark.parametrize("size", [1, 9, 64, 777])
def test_groups_cut_across_pieces(tmp_path, size):
    """Pieces that begin within a byte of validity bits, groups of several pieces and of parts of one."""
    table = columns(1_500)
    pieces = pa.concat_tables([table.slice(3, 2), table.slice(5, 700), table.slice(705, 0), table.slice(705)])
    path = written(tmp_path / "rows.parquet", pieces, size)
    assert_same(pq.read_table(path), table.slice(3))


def test_dictionaries_are_for_columns_with_few_values(tmp_path):
    path = written(tmp_path / "rows.parquet", columns(180_003), 180_003)
    group = pq.ParquetFile(path).metadata.row_group(0)
    found = {group.column(i).path_in_schema: group.column(i).has_dictionary_page for i in range(group.num_columns)}
    assert {name for name, has in found.items() if has} == {"few", "few with nulls", "one", "runs", "odd"}
    runs = group.column(6)
    assert runs.total_compressed_size < 50 * 8 + 50 * 6 + 6 * kernels.HEADER, "a run is written as one"


def drawn(span, base, dtype, rows=40_000):
    """Whole numbers of `[base, base + span)`, both ends among them."""
    values = base + rng.integers(0, span, rows)
    values[0], values[-1] = base, base + span - 1
    return values.astype(dtype)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("base", [0, 3, 40_000, -17, -(2**31), 2**31 - 70_000])
@pytest.mark.parametrize("span", [1, 2, 1_500, kernels.MOST - 3, kernels.MOST, kernels.MOST + 1])
def test_numbers_that_lie_close_together(tmp_path, dtype, base, span):
    table = pa.table({"a": drawn(span, base, dtype)})
    path = written(tmp_path / "rows.parquet", table, 30_000)
    assert_same(pq.read_table(path, page_checksum_verification=True), table)
    assert_same(pl.read_parquet(path).to_arrow(), table)


def test_without_rows(tmp_path):
    table = columns(5).slice(0, 0)
    assert pq.read_table(written(tmp_path / "rows.parquet", table, 10)).equals(table)


@pytest.mark.parametrize("rows", [0, 1, 30_000])
def test_the_file_knows_what_its_manifest_says(tmp_path, rows):
    table = columns(30_000).slice(0, rows)
    file = NumbersFile(tmp_path / "rows.parquet", table.schema)
    file.write_table(table, row_group_size=7_000)
    file.close()
    assert file.entry == entry_of(tmp_path / "rows.parquet")


def test_files_share_a_layout(tmp_path):
    table = columns(500)
    layout = pickle.loads(pickle.dumps(NumbersLayout(table.schema)))
    for name in ("one", "two"):
        file = NumbersFile(tmp_path / name, layout)
        file.write_table(table, row_group_size=200)
        file.close()
    assert_same(pq.read_table(tmp_path / "one"), table)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_what_is_left_to_others():
    numbers = pa.schema([("a", pa.int32()), ("b", pa.float64())])
    assert can_write(numbers, "none")
    assert not can_write(numbers, "snappy")
    assert not can_write(numbers.append(pa.field("c", pa.string())), "none")
    assert not can_write(pa.schema([("a", pa.list_(pa.int32()))]), "none")


def test_a_full_disk_is_said(tmp_path):
    """Beyond a size that the system allows nothing is written: the error has the system's words."""
    import signal

    table = columns(50_000)
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    file = NumbersFile(tmp_path / "rows.parquet", table.schema)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        with pytest.raises(OSError) as caught:
            file.write_table(table, row_group_size=50_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
        file.abandon()
    assert caught.value.errno == errno.EFBIG
    assert (tmp_path / "rows.parquet").stat().st_size <= 100_000


def assert_same(found, wanted):
    """Bits and nulls; a NaN is one, and -0.0 is not 0.0."""
    assert found.column_names == wanted.column_names
    for name in wanted.column_names:
        left, right = (side[name].combine_chunks() for side in (found, wanted))
        assert left.type == right.type and left.is_valid().equals(right.is_valid()), name
        fill = pa.scalar(0, left.type)
        a, b = (side.fill_null(fill).to_numpy() for side in (left, right))
        assert a.tobytes() == b.tobytes(), name

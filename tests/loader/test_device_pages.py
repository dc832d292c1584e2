"""Parquet pages that a device decodes: by Triton's interpreter here, on the device itself in tests/gpu."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.data import Dataset
from penstock.kernels import parquet_runs_contract as contract
from penstock.kernels import reference_parquet_runs as oracle
from penstock.kernels.cpu_parquet_pages import SLACK
from penstock.loader.parquet import ParquetColumns, Workspace


def test_a_device_gives_the_batches_of_the_host(on_triton):
    assert "a kernel that fails is not needed" in on_triton(Path(__file__).parent / "page_cases.py", "cpu")


def written(path: Path, checksums: bool = False) -> pa.Table:
    rng = np.random.default_rng(2)
    few, long = rng.integers(0, 9, 120).astype(np.int32), np.repeat(np.arange(4, dtype=np.int32), 30)
    columns = {
        "few": few,
        "long": long,
        "real": rng.standard_normal(120).astype(np.float32),
        "wide": rng.integers(0, 99, 120),
    }
    table = pa.table(columns)
    pq.write_table(table, path, compression="none", data_page_size=200, write_page_checksum=checksums)
    return table


def by_runs(source: ParquetColumns, path: str, name: str) -> np.ndarray | None:
    """The column through its runs; None where they were refused or are suspicious."""
    chunks = source.chunks(Dataset(path).partitions[0], name)
    assert chunks is not None
    file = source.open(path)
    size = sum(chunk.size for chunk in chunks)
    raw = np.zeros(size + 2 * SLACK, np.uint8)
    found = source.find_runs([(chunk, file) for chunk in chunks], Workspace(), raw, 7)
    if found is None:
        return None
    runs, pages = found
    pages[:, contract.COLUMN] = 0
    words = chunks[0].dtype.itemsize // 4
    columns = np.array([[0, words, contract.UNCHECKED, 0, 0]])
    out, flags = oracle.decode_runs(raw[: 7 + size], runs, pages, columns, words * chunks[0].num_rows)
    return None if flags.any() else out.view(chunks[0].dtype)


def by_host(source: ParquetColumns, path: str, name: str) -> np.ndarray | None:
    chunks = source.chunks(Dataset(path).partitions[0], name)
    assert chunks is not None
    out = np.empty(sum(chunk.num_rows for chunk in chunks), chunks[0].dtype)
    nulls = source.read_at_once([(chunk, source.open(path)) for chunk in chunks], Workspace(), out, None)
    return None if nulls is None else out


def test_runs_hold_the_column(tmp_path):
    path = tmp_path / "a.parquet"
    table = written(path, checksums=True)
    for name in table.column_names:
        assert (by_runs(ParquetColumns(), str(path), name) == table[name].to_numpy()).all(), name


def test_changed_bytes_are_refused_or_read_as_the_host_reads_them(tmp_path):
    path = tmp_path / "a.parquet"
    table = written(path)
    good = path.read_bytes()
    chunks = [pq.ParquetFile(path).metadata.row_group(0).column(i) for i in range(table.num_columns)]
    rng, refused, equal = np.random.default_rng(4), 0, 0
    for _ in range(150):
        column = int(rng.integers(table.num_columns))
        first = chunks[column].dictionary_page_offset or chunks[column].data_page_offset
        changed = bytearray(good)
        for _ in range(rng.integers(1, 4)):
            changed[first + rng.integers(chunks[column].total_compressed_size)] = rng.integers(256)
        path.write_bytes(changed)
        name = table.column_names[column]
        mine, theirs = (read(ParquetColumns(), str(path), name) for read in (by_runs, by_host))
        if mine is None:  # the host decides
            refused += 1
            continue
        assert theirs is not None, name
        assert mine.tobytes() == theirs.tobytes(), name
        equal += 1
    assert refused > 20 and equal > 20

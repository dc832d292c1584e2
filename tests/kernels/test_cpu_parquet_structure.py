"""The inside of pages without checksums: whole pages of every writer add up, those that end early do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.data.formats.parquet_footer import Footer
from penstock.data.formats.parquet_pages import check_pages
from penstock.kernels.cpu_parquet_structure import STRANGE, check_codes, count_present
from penstock.kernels.cpu_thrift import DAMAGED

ROWS = 3_000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(0)
    holes, words = rng.random(ROWS) < 0.3, [f"user-{n}" for n in rng.integers(0, 500, ROWS)]
    return pa.table(
        {
            "few": pa.array(rng.integers(0, 7, ROWS), pa.int32(), mask=holes),
            "many": pa.array(rng.integers(0, 2**40, ROWS), pa.int64(), mask=holes),
            "real": pa.array(rng.standard_normal(ROWS)),
            "none": pa.nulls(ROWS, pa.float32()),
            "words": pa.array(words, mask=holes),
            "day": pa.array(rng.integers(0, 9_000, ROWS), pa.int32()).cast(pa.date32()),
        }
    )


def odd_columns(path: Path) -> list[str]:
    footer = Footer.read(str(path))
    return check_pages(str(path), footer, range(footer.metadata.num_row_groups), footer.schema.names)


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_what_arrow_writes_adds_up(table: pa.Table, tmp_path: Path, codec: str, version: str) -> None:
    for number, dictionaries in enumerate((True, False)):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(
            table, path, compression=codec, data_page_version=version, use_dictionary=dictionaries, data_page_size=2_000
        )
        assert odd_columns(path) == []


@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "zstd", "lz4"])
def test_what_polars_writes_adds_up(table: pa.Table, tmp_path: Path, codec: str) -> None:
    pl.DataFrame(pl.from_arrow(table)).write_parquet(tmp_path / "a.parquet", compression=codec, data_page_size=2_000)
    assert odd_columns(tmp_path / "a.parquet") == []


def bytes_of(*values: int) -> np.ndarray:
    return np.array([*values, *[255] * 64], np.uint8)


@pytest.mark.parametrize(
    ("levels", "count", "present"),
    [
        ((20, 1), 10, 10),  # ten times one
        ((20, 0), 10, 0),
        ((3, 0b10110101), 8, 5),  # eight bits
        ((3, 0b10110101), 4, 2),
        ((20, 1), 11, DAMAGED),
        ((20, 2), 10, DAMAGED),
        ((20,), 10, DAMAGED),
        ((5, 0b1), 10, DAMAGED),  # sixteen bits, of which eight are there
        ((), 1, DAMAGED),
        ((0, 1), 1, DAMAGED),
    ],
)
def test_levels_are_counted(levels: tuple[int, ...], count: int, present: int) -> None:
    assert count_present(bytes_of(*levels), 0, len(levels), count) == present


def test_levels_of_any_length_are_counted() -> None:
    bits = np.random.default_rng(0).random(1_000) < 0.4
    packed = np.packbits(bits, bitorder="little")
    data = bytes_of(0xFB, 0x01, *packed)  # 125 groups of eight
    for count in (1, 63, 64, 65, 127, 999, 1_000):
        assert count_present(data, 0, 2 + len(packed), count) == bits[:count].sum()


@pytest.mark.parametrize(
    ("codes", "count", "status"),
    [
        ((3, 20, 4), 10, 0),  # ten times code 4 of three bits
        ((3, 20, 5), 10, DAMAGED),  # of a dictionary of five
        ((3, 20, 4), 11, DAMAGED),
        ((3, 3, 1, 2, 3), 8, 0),
        ((3, 3, 1, 2), 8, DAMAGED),
        ((33, 20, 4), 10, DAMAGED),
        ((3, 20, 4, 20, 4), 10, STRANGE),
        ((3,), 0, 0),
        ((), 0, 0),
        ((3, 20, 4), 0, STRANGE),
    ],
)
def test_codes_are_counted(codes: tuple[int, ...], count: int, status: int) -> None:
    assert check_codes(bytes_of(*codes), 0, len(codes), 5, count) == status

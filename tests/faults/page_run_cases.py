"""One changed parquet file after the other through the runs that a device decodes, held against the host and pyarrow.

By hand: python page_run_cases.py sweep FIRST COUNT
"""

from __future__ import annotations

import io
import random
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path

import guarded
import numpy as np
import parquet_mutations
import pyarrow.parquet as pq
from parquet_cases import arrow_column, originals, same

from penstock.core.errors import PenstockError
from penstock.data import Dataset
from penstock.kernels import parquet_runs_contract as contract
from penstock.kernels import reference_parquet_runs as oracle
from penstock.kernels.cpu_parquet_pages import SLACK
from penstock.loader.parquet import ParquetColumns, Workspace

COLUMNS = ("few", "many", "holes", "real", "runs")
FIRST_BYTE = 7  # an odd place: nothing may count on a column beginning where a buffer does


@cache
def original(variant: int) -> bytes:
    """A valid file of pages that a device may decode: uncompressed, most in dictionaries."""
    options, out = random.Random(variant), io.BytesIO()
    pq.write_table(
        parquet_mutations.table(), out, row_group_size=parquet_mutations.ROWS, compression="none",
        data_page_size=options.choice([200, 600, 10_000]), data_page_version=options.choice(["1.0", "2.0"]),
        use_dictionary=options.random() < 0.8, write_statistics=False, write_page_checksum=False,
    )  # fmt: skip
    return out.getvalue()


def by_runs(source: ParquetColumns, partition: object, path: str, name: str) -> np.ndarray | None:
    """The column through its runs; None where the host has to look at it."""
    chunks = source.chunks(partition, name)  # type: ignore[arg-type]
    if not chunks or any(chunk.dtype.itemsize not in (4, 8) for chunk in chunks):
        return None
    size = sum(chunk.size for chunk in chunks)
    raw = np.zeros(size + 2 * SLACK, np.uint8)
    found = source.find_runs([(chunk, source.open(path)) for chunk in chunks], Workspace(), raw, FIRST_BYTE)
    if found is None:
        return None
    runs, pages = found
    require_inside(runs, pages, FIRST_BYTE + size, sum(chunk.num_rows for chunk in chunks))
    pages[:, contract.COLUMN] = 0
    words = chunks[0].dtype.itemsize // 4
    columns = np.array([[0, words, contract.UNCHECKED, 0, 0]])
    rows = sum(chunk.num_rows for chunk in chunks)
    out, flags = oracle.decode_runs(raw[: FIRST_BYTE + size], runs, pages, columns, words * rows)
    return None if flags.any() else out.view(chunks[0].dtype)


def require_inside(runs: np.ndarray, pages: np.ndarray, end: int, rows: int) -> None:
    """A device looks at no bound: no run may lie outside the rows, none may be read from outside the bytes."""
    at = 0
    for row, count, place, page in runs.tolist():
        length, (_, dictionary, entries, width) = abs(count), pages[page].tolist()
        assert row == at and 0 < length <= rows - row, "a run outside its rows"
        at += length
        assert dictionary < 0 or 0 <= dictionary < end, "a dictionary outside the bytes"
        if count > 0:
            assert place >= 0 and place + -(-length * width // 8) <= end, "a run outside the bytes"
        else:
            assert 0 <= place < entries, "a code beyond its dictionary"
    assert at == rows, "rows without a run"


def check(seed: int) -> str:
    """ "read" where a column came through its runs, "refused" where none did, else what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        data, way = parquet_mutations.mutate(seed, made=original)
        path.write_bytes(data)
        guarded.asking(guarded.OURS)
        try:
            found = columns_by_runs(str(path))
        except PenstockError:
            return "refused"
        except Exception as error:
            return f"{way}: raised {type(error).__name__}: {error}"
        return compared(str(path), way, found)


def columns_by_runs(path: str) -> dict[str, np.ndarray]:
    source, data = ParquetColumns(), Dataset(path)
    partitions, names = data.partitions, set(data.schema.names)
    if len(partitions) != 1:
        return {}
    found = {name: by_runs(source, partitions[0], path, name) for name in COLUMNS if name in names}
    return {name: values for name, values in found.items() if values is not None}


def compared(path: str, way: str, found: dict[str, np.ndarray]) -> str:
    guarded.asking(guarded.PEERS)
    for name, values in found.items():
        peer = arrow_column(path, name)
        if peer is not None and not same((values, None), peer):
            return f"{way}: column {name!r} is not what pyarrow reads"
        if peer is None and not (originals()[name] is not None and same((values, None), originals()[name])):
            return f"{way}: column {name!r} was read with other values, pyarrow refuses it"
    return "read" if found else "refused"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "sweep":
        guarded.main(__file__)
    else:
        guarded.serve(check)

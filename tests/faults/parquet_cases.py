"""One changed parquet file after the other through the loader, held against pyarrow.

By hand: python parquet_cases.py sweep FIRST COUNT
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path

import guarded
import numpy as np
import parquet_mutations
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.errors import PenstockError
from penstock.data import Dataset
from penstock.loader import Loader

FILL = 99
Column = tuple[np.ndarray, np.ndarray | None]  # values and, for lists, offsets


def loaded(path: str) -> dict[str, Column]:
    """All columns as the loader delivers them."""
    batches = list(Loader(path, 128, fill=FILL, num_threads=1))
    columns: dict[str, Column] = {}
    for name in batches[0][0] if batches else ():
        parts = [features[name] for features, _ in batches]
        if isinstance(parts[0], np.ndarray):
            columns[name] = np.concatenate(parts), None
        else:
            lengths = np.concatenate([part.lengths for part in parts])
            values = [part.values[part.offsets[0] : part.offsets[-1]] for part in parts]
            columns[name] = np.concatenate(values), np.concatenate([[0], np.cumsum(lengths)])
    return columns


def arrow_column(source: pa.BufferReader | str, name: str) -> Column | None:
    """A column as pyarrow reads it, or None where it does not."""
    try:
        with pq.ParquetFile(source, page_checksum_verification=True) as file:
            array = file.read(columns=[name]).column(name).combine_chunks()
    except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError):
        return None
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if not pa.types.is_list(array.type):
        return _numbers(array), None
    array = array.fill_null([]) if array.null_count else array
    return _numbers(array.flatten()), np.concatenate([[0], np.cumsum(array.value_lengths().to_numpy())])


def _numbers(array: pa.Array) -> np.ndarray:
    if pa.types.is_duration(array.type) and array.type.unit == "s":
        array = array.cast(pa.duration("ms"))  # the largest unit that polars has
    return (array.fill_null(FILL) if array.null_count else array).to_numpy(zero_copy_only=False)


def same(left: Column, right: Column) -> bool:
    """Whether two columns have the same values, whatever type holds them."""
    if (left[1] is None) != (right[1] is None) or len(left[0]) != len(right[0]):
        return False
    lists = left[1] is None or np.array_equal(left[1], right[1])
    floats = left[0].dtype.kind == "f" and right[0].dtype.kind == "f"
    return lists and bool(np.array_equal(left[0], right[0], equal_nan=floats))


@cache
def originals() -> dict[str, Column | None]:
    source = pa.py_buffer(parquet_mutations.original(0))
    return {name: arrow_column(pa.BufferReader(source), name) for name in parquet_mutations.table().column_names}


def check(seed: int) -> str:
    """ "read" or "refused" where all is well, else what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        data, way = parquet_mutations.mutate(seed)
        path.write_bytes(data)
        return check_file(str(path), way)


def check_file(path: str, way: str) -> str:
    """What the loader makes of a file, against what pyarrow does."""
    guarded.asking(guarded.OURS)
    try:
        columns = loaded(path)
        Dataset(path).schema  # noqa: B018
    except PenstockError:
        return "refused"
    except Exception as error:
        return f"{way}: raised {type(error).__name__}: {error}"
    guarded.asking(guarded.PEERS)
    for name, column in columns.items():
        peer = arrow_column(path, name)
        if peer is not None and not same(column, peer):
            return f"{way}: column {name!r} is not what pyarrow reads"
        if peer is None and not (name in originals() and same(column, originals()[name])):
            return f"{way}: column {name!r} was read with other values, pyarrow refuses it"
    return "read"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "sweep":
        guarded.main(__file__)
    else:
        guarded.serve(check)

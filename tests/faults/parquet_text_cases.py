"""One changed parquet file after the other through a data set's frames, held against pyarrow.

Files of text, bytes and dates; from seed `NUMBERS` on, those of numbers that `parquet_cases` takes through the loader.
By hand: python parquet_text_cases.py sweep FIRST COUNT
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import guarded
import parquet_mutations
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.errors import PenstockError
from penstock.data import Dataset

NUMBERS = 1_000_000


def arrow_column(source: Any, name: str) -> pl.Series | str:
    """A column as pyarrow reads it, or why it does not."""
    try:
        with pq.ParquetFile(source, page_checksum_verification=True) as file:
            array = file.read(columns=[name]).column(name)
        array.validate(full=True)
        return pl.Series(pl.from_arrow(array))
    except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError, pl.exceptions.PolarsError) as error:
        return str(error)
    except pl.exceptions.PanicException as error:
        return str(error)


@cache
def originals(made: Callable[[int], bytes]) -> dict[str, pl.Series | str]:
    source = pa.py_buffer(made(0))
    names = pq.ParquetFile(pa.BufferReader(source)).schema_arrow.names
    return {name: arrow_column(pa.BufferReader(source), name) for name in names}


def same(left: pl.Series, right: pl.Series | str | None) -> bool:
    """Whether two columns are equal, NaN being equal to itself."""
    return isinstance(right, pl.Series) and left.dtype == right.dtype and left.equals(right, null_equal=True)


def check(seed: int) -> str:
    """ "read" or "refused" where all is well, else what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        made = parquet_mutations.text_original if seed < NUMBERS else parquet_mutations.original
        data, way = parquet_mutations.mutate(seed, made=made)
        path.write_bytes(data)
        return check_file(str(path), way, originals(made))


def check_file(path: str, way: str, before: dict[str, pl.Series | str]) -> str:
    """What the frames of a data set make of a file, against what pyarrow does."""
    guarded.asking(guarded.OURS)
    try:
        frame = Dataset(path).to_polars()
    except PenstockError:
        return "refused"
    except Exception as error:
        return f"{way}: raised {type(error).__name__}: {error}"
    guarded.asking(guarded.PEERS)
    for column in frame:
        peer = arrow_column(path, column.name)
        if isinstance(peer, pl.Series) and not same(column, peer):
            return f"{way}: column {column.name!r} is not what pyarrow reads"
        if isinstance(peer, str) and not same(column, before.get(column.name)):
            return f"{way}: column {column.name!r} was read with other values, pyarrow refuses it: {peer}"
    return "read"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "sweep":
        guarded.main(__file__)
    else:
        guarded.serve(check)

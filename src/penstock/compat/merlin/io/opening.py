"""What NVTabular's `Dataset` was given, as Penstock's data set: paths with pandas' reader arguments, frames, Dask."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl

from penstock.compat import cpu, settings
from penstock.compat.merlin.io import _reading as reading
from penstock.compat.merlin.schema._tensorflow_metadata import schema_beside
from penstock.compat.missing import CompatFileNotFoundError, CompatRuntimeError
from penstock.core.dtypes import canonical, to_polars
from penstock.core.errors import ColumnNotFoundError, ParameterError, suggest
from penstock.core.params import Int, Real, check
from penstock.core.schema import Role, Schema
from penstock.data.dataset import Dataset
from penstock.data.described import merged
from penstock.data.files import is_remote, local_path
from penstock.data.finding import find
from penstock.data.formats import format_of_name
from penstock.data.part_size import LARGEST
from penstock.data.partition import Partition

ENGINES = ("parquet", "csv", "avro")
# Arguments of the readers below NVTabular that say how to read, not what; there is nothing to say here.
HOW = ("legacy", "batch_size", "gather_statistics", "split_row_groups",
       "index", "blocksize", "chunksize", "include_path_column", "assume_missing", "sample", "low_memory",
       "memory_map", "engine_kwargs", "cpu", "use_cpu", "calculate_divisions", "ignore_metadata_file")  # fmt: skip


def opened(
    source: Any,
    engine: str | None,
    npartitions: int | None,
    part_size: Any,
    part_mem_fraction: float | None,
    storage_options: dict[str, Any] | None,
    dtypes: Mapping[str, Any] | None,
    kwargs: Mapping[str, Any],
) -> Dataset:
    """The data set that a source means."""
    if isinstance(source, Dataset):
        return source
    if isinstance(source, (str, os.PathLike)) or _is_paths(source):
        size = _part_size(part_size, part_mem_fraction)
        return _files(source, engine, size, storage_options, dtypes, dict(kwargs))
    if said := [name for name in kwargs if name not in HOW]:
        raise ParameterError(f"{said[0]!r} says how files are read; the data is a {type(source).__name__}")
    if hasattr(source, "to_delayed") and hasattr(source, "npartitions"):
        data = _dask(source)
    else:
        data = Dataset(_frame(source), part_size=part_size or LARGEST)
    if dtypes:
        data = cast(data, dtypes)
    return data if npartitions is None else data.repartition(npartitions)


def require_gpu() -> None:
    """Refuse to go on where old code insists on a GPU, there is none, and nobody said that the CPU will do.

    Before 2023 `cpu=False` was a wish: without a GPU, the data was on the CPU.
    """
    if cpu.mapped() or settings.nvtabular() != "latest":
        return
    torch = sys.modules.get("torch") or (importlib.import_module("torch") if find_spec("torch") else None)
    if torch is None or not torch.cuda.is_available():
        raise CompatRuntimeError(
            "cpu=False asks for a GPU, and this machine shows none; leave cpu out, or run the program with penstock "
            "run --cpu (activate(cpu=True))"
        )


def _is_paths(source: Any) -> bool:
    listed = isinstance(source, (list, tuple, set)) and len(source) > 0
    return listed and all(isinstance(s, (str, os.PathLike)) for s in source)


def _part_size(part_size: Any, fraction: float | None) -> int | str:
    """`part_size` as given; a fraction of the memory is the most that partitions may have, never a reason to grow."""
    if part_size is not None:
        return part_size
    if fraction is None:
        return LARGEST
    check("part_mem_fraction", fraction, Real(min=0, max=1))
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 1 << 30
    return max(1 << 20, min(LARGEST, int(fraction * total)))


def _files(
    source: Any,
    engine: str | None,
    part_size: int | str,
    storage_options: dict[str, Any] | None,
    dtypes: Mapping[str, Any] | None,
    kwargs: dict[str, Any],
) -> Dataset:
    if engine is not None and engine not in ENGINES:
        raise ParameterError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    for path in map(os.fspath, [source] if isinstance(source, (str, os.PathLike)) else source):
        if not (is_remote(path) or any(c in path for c in "*?[") or Path(local_path(path)).exists()):
            raise CompatFileNotFoundError(f"{path} does not exist")
    paths = _ordered(source, storage_options, engine)
    dtypes = {**(kwargs.pop("dtype", None) or {}), **(dtypes or {})}
    options: dict[str, Any] = {}
    for name in ("sep", "delimiter"):
        if name in kwargs:
            options["separator"] = kwargs.pop(name)
    if "names" in kwargs:
        options["names"] = kwargs.pop("names")
        options["header"] = False
    if "header" in kwargs:
        options["header"] = kwargs.pop("header") is not None
    chosen = kwargs.pop("usecols", None) or kwargs.pop("columns", None)
    groups = kwargs.pop("row_groups_per_part", None)
    if groups is not None:
        check("row_groups_per_part", groups, Int(min=1))
        part_size = 1
    missing, dates, filters, together = (
        kwargs.pop(name, None) for name in ("na_values", "parse_dates", "filters", "aggregate_files")
    )
    for name in kwargs:
        if name not in HOW:
            known = ["sep", "names", "header", "dtype", "usecols", "na_values", "parse_dates", "filters"]
            raise ParameterError(f"Dataset has no argument {name!r}{suggest(name, known, 'reader arguments')}")
    wanted = {n: "hex32" if str(d) == "hex" else d for n, d in dtypes.items()}
    data = Dataset(
        paths, format=engine, part_size=part_size, dtypes=wanted or None, storage_options=storage_options, **options
    )
    if groups is not None and all(hasattr(part, "row_groups") for part in data.partitions):
        data = reading.by_row_groups(data, groups)
    data = _as_merlin_described(data)
    data = reading.signed(data, [name for name, dtype in dtypes.items() if str(dtype) == "hex"])
    data = reading.without_index(data)
    data = reading.with_missing(data, missing, wanted)
    data = reading.with_dates(data, dates)
    data = reading.filtered(reading.aggregated(data, together, part_size), filters)
    return data if chosen is None else data.select(list(chosen))


def _as_merlin_described(data: Dataset) -> Dataset:
    """Tags and domains that NVTabular wrote beside its data, where Penstock wrote none."""
    path = data.partitions[0].path
    if path is None or is_remote(path) or any(c.role is not Role.OTHER or c.tags for c in data.schema):
        return data
    described = schema_beside(path)
    return data if described is None else data.with_schema(merged(data.schema, described.to_native()))


def _ordered(source: Any, storage_options: dict[str, Any] | None, engine: str | None = None) -> Any:
    """Files in the order of their numbers; a tree of folders is left to Penstock, which knows what these name."""
    if not isinstance(source, (str, os.PathLike)):
        return naturally_sorted(source)
    folder = Path(source)
    if not is_remote(os.fspath(source)) and folder.is_dir():
        others = (".", "_", "schema.pbtxt")
        plain = [f for f in folder.iterdir() if f.is_file() and not f.name.startswith(others)]
        data = [f for f in plain if format_of_name(f.name) is not None]
        if engine is not None and plain and not data:  # `0.part`: Dask's names
            return naturally_sorted(plain)
        below = any(f.is_dir() and not f.name.startswith(".") for f in folder.iterdir())
        if data and below and (folder / "_metadata").is_file():  # footers of these files: what lies below is no data
            return naturally_sorted([f for f in data if f.suffix == ".parquet"] or data)
    files = find(source, storage_options)
    return naturally_sorted(files) if len({file.rpartition("/")[0] for file in files}) == 1 else os.fspath(source)


def naturally_sorted(paths: Sequence[Any]) -> list[str]:
    """Paths by name, numbers by size.

    >>> naturally_sorted(["part_10.parquet", "part_2.parquet"])
    ['part_2.parquet', 'part_10.parquet']
    """
    return sorted(map(os.fspath, paths), key=_by_number)


def _by_number(path: str) -> list[Any]:
    return [int(piece) if piece.isdigit() else piece for piece in re.split(r"(\d+)", path)]


def _frame(source: Any) -> Any:
    """A frame that Penstock opens; one of cuDF's comes through Arrow, floats of 16 bits in 32."""
    if type(source).__module__.split(".")[0] == "cudf":
        return source.to_arrow()
    dtypes = source.dtypes.items() if hasattr(source, "astype") and hasattr(source, "columns") else ()
    half = [name for name, dtype in dtypes if str(dtype) == "float16"]
    return source.astype(dict.fromkeys(half, "float32")) if half else source  # which holds the same numbers


@dataclass(frozen=True)
class DaskPartition(Partition):
    """One partition of a Dask frame, computed when it is read."""

    delayed: Any

    @property
    def path(self) -> None:  # type: ignore[override]
        return None

    @property
    def num_rows(self) -> None:  # type: ignore[override]
        return None

    @property
    def num_bytes(self) -> int:  # type: ignore[override]
        return 0

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        frame = _from_pandas(self.delayed.compute(scheduler="synchronous"))
        if columns is None:
            return frame
        for name in columns:
            if name not in frame.columns:
                raise ColumnNotFoundError(name, frame.columns, "the Dask frame")
        return frame.select(columns)


def _from_pandas(frame: Any) -> pl.DataFrame:
    frame = _frame(frame)
    return pl.DataFrame(pl.from_arrow(frame)) if hasattr(frame, "column_names") else pl.from_pandas(frame)


def _dask(source: Any) -> Dataset:
    parts = [DaskPartition(delayed) for delayed in source.to_delayed()]
    first = parts[0].read()
    return Dataset.from_partitions(parts, Schema.from_polars(first.schema))


@dataclass(frozen=True)
class Cast:
    """Columns in other dtypes, `"hex"` for the integers that hexadecimal text spells."""

    dtypes: Mapping[str, Any]

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(self._expression(n, d, frame.schema[n]) for n, d in self.dtypes.items())

    def _expression(self, name: str, dtype: Any, found: pl.DataType) -> pl.Expr:
        if str(dtype) in ("hex", "hex32", "hex64"):
            wide = pl.UInt64() if dtype == "hex64" else pl.UInt32()
            return pl.col(name).str.to_integer(base=16, dtype=wide) if found == pl.String else pl.col(name).cast(wide)
        return pl.col(name).cast(to_polars(canonical(dtype), isinstance(found, pl.List)))


def cast(data: Dataset, dtypes: Mapping[str, Any]) -> Dataset:
    """The data set with some columns in other dtypes."""
    for name in dtypes:
        data.schema[name]
    change: Callable[[pl.DataFrame], pl.DataFrame] = Cast(dict(dtypes))
    found = Schema.from_polars(change(pl.DataFrame(schema=data.schema.polars_schema)).schema)
    schema = Schema(data.schema[c.name].with_(dtype=c.dtype) for c in found)
    return data.map(change, schema)

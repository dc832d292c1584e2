"""NVTabular's `Dataset`: Penstock's data set, with pandas frames on the outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from penstock.compat.merlin.core._clients import chosen_client, num_workers
from penstock.compat.merlin.io import hugectr, writing
from penstock.compat.merlin.io._frames import (
    DataFrameIter,
    as_pandas,
    dask_frame,
    last_rows,
    merged,
    native_shuffle,
    write_array,
)
from penstock.compat.merlin.io.opening import cast, opened, require_gpu
from penstock.compat.merlin.schema import Schema, as_native
from penstock.compat.missing import CompatTypeError, MissingNameError
from penstock.core.errors import ParameterError
from penstock.core.params import OneOf, check
from penstock.core.schema import Schema as NativeSchema
from penstock.data import dataset as native

__all__ = ["Dataset"]


class Dataset:
    """Rows from parquet, CSV or Avro files, or from a pandas, polars, Arrow, cuDF or Dask frame.

    Partitions hold about 64 MB; `part_size` says otherwise, `part_mem_fraction` only bounds them. `base_dataset` tells
    the files that `to_parquet(preserve_files=True)` keeps. `client` and `cpu` are taken for the sake of old code: there
    is one kind of data set. Only `cpu=False` is refused, as ever, where there is no GPU and nobody said `--cpu`.

    >>> import pandas as pd
    >>> data = Dataset(pd.DataFrame({"user": [1, 2, 3], "click": [0, 1, 0]}))
    >>> data.num_rows, data.schema.column_names, data.compute()["click"].tolist()
    (3, ['user', 'click'], [0, 1, 0])
    """

    _source: native.Dataset  # with all its columns
    _native: native.Dataset  # those that the schema names, as it describes them
    _schema: Schema | None  # as it was given or handed out, perhaps edited since
    _known: list[Any]  # what of it `_native` has

    def __init__(
        self,
        path_or_source: Any,
        engine: str | None = None,
        npartitions: int | None = None,
        part_size: int | str | None = None,
        part_mem_fraction: float | None = None,
        storage_options: dict[str, Any] | None = None,
        dtypes: Mapping[str, Any] | None = None,
        client: Any = "auto",
        cpu: bool | None = None,
        base_dataset: Dataset | None = None,
        schema: Schema | None = None,
        **kwargs: Any,
    ) -> None:
        if schema is not None and not isinstance(schema, (Schema, NativeSchema)):
            raise CompatTypeError(
                f"unsupported schema type for merlin.io.Dataset: {type(schema).__name__}; it must be a "
                f"merlin.schema.Schema"
            )
        if cpu is False:
            require_gpu()
        source = path_or_source.native if isinstance(path_or_source, Dataset) else path_or_source
        data = opened(source, engine, npartitions, part_size, part_mem_fraction, storage_options, dtypes, kwargs)
        self.native = data
        if schema is not None:
            self.schema = schema
        self.client = None if client == "auto" else client
        self.cpu, self.dtypes, self.base_dataset = True if cpu is None else cpu, dtypes, base_dataset or self

    @property
    def engine(self) -> Any:
        """The reader of this data set's format: `to_ddf`, `num_rows` and the like, of the same rows."""
        from penstock.compat.merlin.io._engines import engine_of

        return engine_of(self)

    def _like(self, data: native.Dataset) -> Dataset:
        return Dataset(data, client=self.client or "auto", cpu=self.cpu, base_dataset=self.base_dataset)

    @property
    def _all(self) -> native.Dataset:
        """Every column, also one that `schema` does not name: what frames are made of."""
        described, columns = self.native, self._source.schema
        if described.schema.names == columns.names:
            return described
        return self._source.with_schema(NativeSchema(described.schema.get(c.name) or c for c in columns))

    @property
    def native(self) -> native.Dataset:
        """Penstock's data set: the columns that `schema` names, with what has been written into it since."""
        if self._schema is not None and _as_written(self._schema) != self._known:
            self.schema = self._schema
        return self._native

    @native.setter
    def native(self, data: native.Dataset) -> None:
        self._source, self._native, self._schema = data, data, None

    # Looking at it.

    @property
    def schema(self) -> Schema:
        """The columns. It can be edited in place: `data.schema["y"] = data.schema["y"].with_tags(Tags.TARGET)`.

        A schema that does not name all columns hides the others from workflows and loaders; frames still have them.
        """
        if self._schema is None:
            self._schema = Schema.from_native(self._native.schema)
            self._known = _as_written(self._schema)
        return self._schema

    @schema.setter
    def schema(self, schema: Schema) -> None:
        self._native = _described(self._source, schema)
        self._schema = schema if isinstance(schema, Schema) else Schema.from_native(schema)
        self._known = _as_written(self._schema)

    @property
    def num_rows(self) -> int:
        return self.native.num_rows

    @property
    def npartitions(self) -> int:
        return self.native.num_partitions

    @property
    def partition_lens(self) -> list[int]:
        return self.native._row_counts()

    @property
    def file_partition_map(self) -> dict[str, list[int]]:
        """`{file name: its partitions}`."""
        found: dict[str, list[int]] = {}
        for number, part in enumerate(self.native.partitions):
            if part.path is None:
                raise MissingNameError("file_partition_map is for data that came from files; this came from memory")
            found.setdefault(Path(part.path).name, []).append(number)
        return found

    def infer_schema(self, n: int = 1) -> Schema:
        """The schema of the data; it is always known here."""
        return self.schema

    def sample_dtypes(self, n: int = 1, annotate_lists: bool = False) -> Any:
        if annotate_lists:
            return {c.name: {"dtype": c.dtype.to_numpy, "is_list": c.is_list} for c in self.schema}
        return self.head(n).dtypes

    # As pandas.

    def compute(self, **kwargs: Any) -> Any:
        """All rows as a pandas frame."""
        return as_pandas(self._all.to_polars())

    def head(self, n: int = 5, **kwargs: Any) -> Any:
        return as_pandas(self._all.head(n))

    def tail(self, n: int = 5, **kwargs: Any) -> Any:
        """The last rows."""
        return last_rows(self._all, n)

    def persist(self, **kwargs: Any) -> Any:
        """A Dask frame whose partitions are in memory."""
        return self.to_ddf().persist(**kwargs)

    def to_ddf(self, columns: Any = None, shuffle: bool = False, seed: int | None = None) -> Any:
        """A Dask frame of pandas partitions; `shuffle` orders these at random."""
        data = self._all
        names = [columns] if isinstance(columns, str) else list(columns or data.schema.names)
        parts = data.partitions
        if shuffle:
            parts = [parts[i] for i in np.random.default_rng(seed).permutation(len(parts))]
        return dask_frame(parts, data.schema.select(names))

    def to_iter(
        self,
        columns: Any = None,
        indices: Sequence[int] | None = None,
        shuffle: bool = False,
        seed: int | None = None,
        use_file_metadata: bool | None = None,
        epochs: int = 1,
    ) -> DataFrameIter:
        """Partitions one by one, as pandas frames."""
        columns = [columns] if isinstance(columns, str) else columns
        data = self._all
        if shuffle:
            order = np.random.default_rng(seed).permutation(data.num_partitions)
            data = native.Dataset.from_partitions([data.partitions[i] for i in order], data.schema)
        return DataFrameIter(data, columns, indices, epochs=epochs)

    # Other data sets.

    def shuffle_by_keys(self, keys: Any, hive_data: bool | None = None, npartitions: int | None = None) -> Dataset:
        """Equal keys in one partition."""
        keys = [keys] if isinstance(keys, str) else list(keys)
        return self._like(self.native.shuffle_by_keys(keys, npartitions, engine=self.client or chosen_client()))

    def repartition(self, npartitions: int | None = None, partition_size: int | str | None = None) -> Dataset:
        if partition_size is not None:
            return self._like(self.native.repartition(part_size=partition_size))
        return self._like(self.native.repartition(npartitions))

    @classmethod
    def merge(cls, left: Dataset, right: Any, **kwargs: Any) -> Dataset:
        """Join two data sets; `on`, `how` and `suffixes` as pandas takes them."""
        other = right if isinstance(right, Dataset) else Dataset(right)
        return left._like(merged(left.native, other.native, left.client or chosen_client(), kwargs))

    def to_cpu(self) -> None:
        """Data is in host memory always."""
        self.cpu = True

    def to_gpu(self) -> None:
        """Data is in host memory always; a loader moves batches to its device."""
        self.cpu = False

    # Writing.

    def to_parquet(
        self,
        output_path: Any,
        shuffle: Any = None,
        preserve_files: bool = False,
        output_files: Any = None,
        out_files_per_proc: int | None = None,
        row_group_size: int = 250_000,
        num_threads: int = 0,
        dtypes: Mapping[str, Any] | None = None,
        cats: Sequence[str] | None = None,
        conts: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        suffix: str | None = ".parquet",
        partition_on: Any = None,
        method: str = "subgraph",
        write_hugectr_keyset: bool = False,
    ) -> None:
        """Write parquet files and the schema; what an earlier run wrote to the same folder is replaced.

        `output_files` is a number or a list of names, `out_files_per_proc` a number for every worker of a Dask cluster;
        `cats`, `conts` and `labels` say what columns are to a model.
        `write_hugectr_keyset` adds `_hugectr.keyset`, the ids of the columns that Categorify encoded.
        """
        if preserve_files and (output_files or partition_on):
            raise ParameterError("preserve_files excludes output_files and partition_on")
        if output_files and partition_on:
            raise ParameterError("output_files excludes partition_on, which gives every value a folder of its own")
        if isinstance(output_files, (list, tuple, Mapping)) and out_files_per_proc:
            raise ParameterError("output_files names the files, so out_files_per_proc has nothing to say; give one")
        if output_files and not isinstance(output_files, (int, list, tuple, Mapping)):
            raise CompatTypeError(f"output_files must be a number, names or {{name: partitions}}, got {output_files!r}")
        check("method", method, OneOf(("subgraph", "worker")))
        data = self.native if not dtypes else cast(self.native, dtypes)
        roles = {"categorical": cats, "continuous": conts, "label": labels}
        data = data.with_roles(**{role: names for role, names in roles.items() if names})
        names = [str(name) for name in output_files] if isinstance(output_files, (list, tuple, Mapping)) else None
        if isinstance(output_files, Mapping):
            data = writing.by_place(data, list(output_files.values()))
        each = out_files_per_proc * num_workers(self.client) if out_files_per_proc else None
        number = output_files if isinstance(output_files, int) and output_files else each
        if preserve_files:
            data, names = writing.by_file(data, self.base_dataset.native, suffix)
        writing.write(
            data,
            output_path,
            native_shuffle(shuffle),
            names,
            number,
            row_group_size,
            partition_on,
            suffix,
            self.client or chosen_client(),
        )
        if write_hugectr_keyset:
            hugectr.write_keys(data, output_path)

    def to_hugectr(
        self,
        output_path: Any,
        cats: Sequence[str],
        conts: Sequence[str],
        labels: Sequence[str],
        shuffle: Any = None,
        file_partition_map: Any = None,
        out_files_per_proc: int | None = None,
        num_threads: int = 0,
        dtypes: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the rows in HugeCTR's binary format: float32 labels and numbers, an id of 32 bits for each slot."""
        data = self.native if not dtypes else cast(self.native, dtypes)
        if native_shuffle(shuffle) is not None:
            data = data.shuffle()
        hugectr.write(data, output_path, list(cats), list(conts), list(labels), out_files_per_proc or 1)

    def to_npy(self, output_file: Any, append: bool = False) -> None:
        """All rows as one `.npy` array, a column of it for each column (and each element of a list)."""
        write_array(self.native, output_file, append)

    def validate_dataset(
        self,
        add_metadata_file: bool = False,
        require_metadata_file: bool = True,
        row_group_max_size: int | str | None = None,
        file_min_size: int | str | None = None,
    ) -> bool:
        """Whether the files are parquet, with `_metadata` beside them, row groups and files of a good size.

        Sizes are bytes; row groups may have 500 MB, files any size, unless said otherwise. `add_metadata_file` writes
        the file that is missing.
        """
        limits = (row_group_max_size or "500MB", file_min_size or 0)
        return writing.well_laid_out(self.native, add_metadata_file, require_metadata_file, *limits)

    def regenerate_dataset(
        self,
        output_path: Any,
        columns: Sequence[str] | None = None,
        output_format: str = "parquet",
        compute: bool = True,
        **kwargs: Any,
    ) -> None:
        """Write the data anew, in row groups and files of a good size, in its order."""
        data = self.native if columns is None else self.native.select(columns)
        writing.write(data, output_path, None, None, None, 250_000, None, ".parquet", self.client or chosen_client())

    def __repr__(self) -> str:
        return repr(self.native)


def _as_written(schema: Schema) -> list[Any]:
    """All that a schema says, so that an edit shows; columns compare as equal where a shape is unknown."""
    return [
        (name, c.name, c.tags, deepcopy(c.properties), c.dtype, c.shape.dims)
        for name, c in schema.column_schemas.items()
    ]


def _described(data: native.Dataset, schema: Any) -> native.Dataset:
    """The columns that a schema names, as it describes them."""
    described = as_native(schema)
    if described is None or not hasattr(described, "names"):
        raise CompatTypeError(f"schema must be a merlin.schema.Schema, got {type(schema).__name__}")
    chosen = data if described.names == data.schema.names else data.select(described.names)
    return chosen.with_schema(described)

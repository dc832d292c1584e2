"""Categories as codes, laid out as the release that is followed laid them out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from penstock.compat import settings
from penstock.compat.merlin.dag.node import Node
from penstock.compat.nvtabular.ops import Placed
from penstock.core.artefact import replacing
from penstock.core.errors import ParameterError
from penstock.core.extras import require
from penstock.core.file_names import file_name
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.data.files import parse_bytes
from penstock.etl import ops as native
from penstock.etl.graph import Node as NativeNode
from penstock.etl.graph import ancestors
from penstock.etl.operator import Columns
from penstock.etl.ops.embedding_sizes import default_dimension

__all__ = ["NULL_OFFSET", "OOV_OFFSET", "PAD_OFFSET", "Categorify", "get_embedding_sizes"]

PAD_OFFSET, NULL_OFFSET, OOV_OFFSET = 0, 1, 2  # the codes that come before values in the last release
NO_VOCABULARY = 1 << 62  # a frequency that no value reaches: all values go to the hash buckets


class Categorify(Placed, native.Categorify):
    """Encode categories by falling frequency.

    Up to 1.x (the setting `"0.5"` or `"1.0"`, or where `start_index` is given) 0 stands for null and unknown values and
    the vocabulary begins with 1, both moved by `start_index`; `num_buckets` without a threshold or `max_size` hashes
    all values. In `"latest"`, codes are 0 padding, 1 null, then the buckets of unknown values, then the vocabulary.
    Codes are int64 unless `dtype` says otherwise.

    `out_path` (the working directory by default) gets `categories/unique.<column>.parquet` with the values under the
    column's name, indexed by code; a saved workflow holds these files as well. `tree_width`, `split_every`,
    `cat_cache`, `on_host` and `search_sorted` are taken and mean nothing here.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> frame = pd.DataFrame({"city": ["Rome", "Oslo", "Rome", None]})
    >>> Workflow(["city"] >> Categorify()).fit_transform(frame)["city"].tolist()
    [3, 4, 3, 1]
    """

    def __init__(
        self,
        freq_threshold: int | Mapping[str, int] | None = 0,
        out_path: Any = None,
        tree_width: Any = None,
        na_sentinel: int | None = None,
        cat_cache: Any = "host",
        dtype: Any = None,
        on_host: bool = True,
        encode_type: str = "joint",
        name_sep: str = "_",
        search_sorted: bool = False,
        num_buckets: int | Mapping[str, int] | None = None,
        vocabs: Any = None,
        max_size: int | Mapping[str, int] | None = 0,
        start_index: int | None = None,
        single_table: bool = False,
        cardinality_memory_limit: int | str | None = None,
        split_out: int | Mapping[str, int] | None = 1,
        split_every: Any = 8,
    ) -> None:
        if start_index is not None:  # taken from 0.7 to 1.x, refused since
            settings.saw_call("1.0", "Categorify(start_index=…)")
        if tree_width is not None and settings.nvtabular() == "latest":
            warnings.warn("Categorify's tree_width was replaced by split_out; neither does anything here",
                          FutureWarning, stacklevel=2)  # fmt: skip
        if settings.nvtabular() != "latest" and start_index is None:
            start_index = 0
        if na_sentinel not in (None, 0, start_index):
            raise ParameterError(
                f"Categorify(na_sentinel={na_sentinel}) is not here: nulls have the first code; move all codes with "
                f"start_index"
            )
        if num_buckets and start_index is not None and not freq_threshold and not max_size:
            freq_threshold = NO_VOCABULARY
        super().__init__(
            freq_threshold=freq_threshold or 0, max_size=max_size or 0, num_buckets=num_buckets,
            vocabs=None if vocabs is None else _vocabularies(vocabs), encode_type=encode_type, name_sep=name_sep,
            dtype="int64" if dtype is None else dtype, out_path=out_path, single_table=single_table,
            start_index=start_index, cardinality_memory_limit=cardinality_memory_limit, split_out=split_out or 1,
        )  # fmt: skip

    def finish(self, state: Any, columns: Columns) -> None:
        super().finish(state, columns)
        limit = self.cardinality_memory_limit
        if limit is None:
            return
        sizes = {name: int(vocabulary.values.estimated_size()) for name, vocabulary in self.vocabularies_.items()}
        for name, size in sizes.items():
            if size > parse_bytes(limit):
                warnings.warn(
                    f"the categories of {name!r} take {size:,} bytes, more than cardinality_memory_limit={limit!r}; "
                    f"raise freq_threshold or set max_size to keep fewer",
                    UserWarning,
                    stacklevel=2,
                )

    def inference_initialize(self, col_selector: Any, model_config: Any) -> Categorify:
        """The operator for single requests: this one, whose `transform` takes arrays by name as well."""
        return self

    @property
    def categories(self) -> dict[str, str]:
        """`{vocabulary: file}` once fitted."""
        folder = self._folder()
        return (
            {name: str(folder / f"unique.{file_name(name)}.parquet") for name in self.vocabularies_}
            if self.is_fitted
            else {}
        )

    def _folder(self) -> Path:
        return Path("." if self.out_path is None else self.out_path) / "categories"

    def write_where_old_code_reads(self) -> None:
        """Write the vocabularies to `./categories`, where `out_path` names no other place and they are written yet."""
        if self.out_path is not None:
            return
        try:
            self.write_categories(self._folder())
        except OSError as error:
            warnings.warn(
                f"vocabularies are not written to {self._folder().absolute()} ({error}); give Categorify an out_path, "
                f"or read them with workflow.save",
                stacklevel=3,
            )

    def get_embedding_sizes(self, columns: Any) -> dict[str, tuple[int, int]]:
        """`{column: (rows, dimension)}` once fitted."""
        self.check_fitted()
        sizes = {name: self._cardinality(name) for name in columns}
        return {name: (size, default_dimension(size)) for name, size in sizes.items()}

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        """With how codes were made among the properties, as old code reads it there."""
        made = super().output_schema(inputs, columns)
        paths = self.categories
        names = {output: name for output, name, _ in self._outputs(columns)}
        told = {c.name: self._told(names[c.name], paths) | _old_domain(c, names[c.name]) for c in made}
        return Schema(c.with_(properties={**c.properties, **told[c.name]}) for c in made)

    def _told(self, name: str, paths: Mapping[str, str]) -> dict[str, Any]:
        threshold = 0 if self.freq_threshold == NO_VOCABULARY else self.freq_threshold
        made = {"num_buckets": self.num_buckets, "freq_threshold": threshold, "max_size": self.max_size}
        told = {key: value.get(name) if isinstance(value, Mapping) else value for key, value in made.items()}
        return {**told, "cat_path": paths[name]} if name in paths else told

    def write_categories(self, folder: Path) -> None:
        super().write_categories(folder)
        pandas = require("pandas", "pandas")
        for name, vocabulary in self.vocabularies_.items():
            codes = self.codes(name).shifted(self.shifts_[name])
            values, counts = vocabulary.values.to_pandas().astype(object), list(vocabulary.counts)
            frame = pandas.DataFrame({name: values.to_numpy(), f"{name}_size": counts})
            frame.index = pandas.RangeIndex(codes.first, codes.first + len(frame))
            if self.start_index is not None:  # one row for nulls first, so that rows count as codes do
                missing = pandas.DataFrame({name: [None], f"{name}_size": [self._nulls(name)]}, index=[codes.null])
                frame = pandas.concat([missing, frame]) if len(frame) else missing
            if vocabulary.values.dtype != pl.String:  # text is left as objects, as pandas had it
                frame[name] = frame[name].convert_dtypes() if frame[name].hasnans else frame[name].infer_objects()
            with replacing(folder / f"unique.{file_name(name)}.parquet") as partial:
                frame.to_parquet(partial)

    def _nulls(self, name: str) -> int:
        counts = self.state_.get(name)
        return 0 if counts is None else counts.num_null

    def save_state(self, folder: Path) -> None:
        super().save_state(folder)
        self.write_categories(folder.parents[1] / "categories")


def _old_domain(column: ColumnSchema, vocabulary: str) -> dict[str, Any]:
    """Up to 1.x the domain ended one behind the largest code, at the cardinality."""
    size = column.cardinality
    if size is None or settings.nvtabular() == "latest":
        return {}
    sizes = {"cardinality": size, "dimension": default_dimension(size)}
    return {"domain": {"min": 0, "max": size, "name": vocabulary}, "embedding_sizes": sizes}


def get_embedding_sizes(source: Any, output_dtypes: Any = None) -> Any:
    """`{column: (rows, dimension)}` of a fitted workflow or node; with list columns, `(single-hot, multi-hot)`.

    Under the setting `"0.5"` columns are sorted by name: the order of the loader's tensors.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> workflow = Workflow(["b", "a"] >> Categorify()).fit(pd.DataFrame({"a": [1, 2], "b": [3, 3]}))
    >>> get_embedding_sizes(workflow)
    {'b': (4, 16), 'a': (5, 16)}
    """
    schema, nodes = _fitted_schema(source)
    flags = {
        f"{name}_filled"
        for node in nodes
        if isinstance(node.operator, (native.FillMissing, native.FillMedian)) and node.operator.add_binary_cols
        for name in schema.names
    }
    chosen = [c for c in schema.select(roles=Role.CATEGORICAL) if c.name not in flags and c.cardinality is not None]
    if settings.nvtabular() == "0.5":
        chosen.sort(key=lambda column: column.name)
    return native.get_embedding_sizes(Schema(chosen))


def _fitted_schema(source: Any) -> tuple[Schema, list[NativeNode]]:
    if isinstance(source, Node):
        plan, number = source._fitted()
        return plan.schemas[number], ancestors([source])
    workflow = getattr(source, "native", source)
    return workflow.output_schema, ancestors([workflow.output])


def _vocabularies(vocabs: Any) -> dict[str, Any]:
    """Series, lists or paths by column; a frame is a column each."""
    items = vocabs.items() if hasattr(vocabs, "items") else None
    if items is None:
        raise ParameterError(f"vocabs must be {{column: values or path}}, got {type(vocabs).__name__}")
    return {str(name): _values(values) for name, values in items}


def _values(values: Any) -> Any:
    if hasattr(values, "columns"):  # a frame: its first column, as a file of categories has it
        values = values.iloc[:, 0]
    return values.dropna().tolist() if hasattr(values, "dropna") else values

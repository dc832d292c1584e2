"""One function for each operator in NVTabular's saved form: arguments and statistics to a fitted operator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.compat.merlin.dag.observed import spelled
from penstock.compat.merlin.dtypes.base import dtype_of
from penstock.compat.merlin.dtypes.base import to_native as dtype_to_native
from penstock.compat.nvtabular.ops.add_metadata import AddMetadata
from penstock.compat.nvtabular.ops.filter import Filter
from penstock.compat.nvtabular.ops.lambdaop import LambdaOp
from penstock.compat.nvtabular.workflow import loaded_ops
from penstock.core.errors import ArtefactError
from penstock.etl import ops as native
from penstock.etl.operator import Columns, Operator
from penstock.etl.ops.categorify import _combined
from penstock.etl.ops.grouped_sums import GroupedSums, totals
from penstock.etl.ops.target import FOLD
from penstock.etl.references import resolve_reference
from penstock.etl.vocabulary import VALUE, ValueCounts, Vocabulary

Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Saved:
    """A node as it was saved."""

    record: Mapping[str, Any]
    folder: Path  # its artefacts
    file: Path  # the graph, for messages

    @property
    def params(self) -> Mapping[str, Any]:
        return self.record.get("op_params") or {}

    @property
    def state(self) -> Mapping[str, Any]:
        return self.record.get("op_state") or {}

    @property
    def input_names(self) -> list[str]:
        return [column["name"] for column in self.record.get("input_schema") or ()]

    def artefact(self, path: str) -> Path:
        """A file of the node's, which must lie inside its folder."""
        found = self.folder / path
        if not found.resolve().is_relative_to(self.folder.resolve()):
            raise ArtefactError(f"{self.file} names {path!r}, which lies outside {self.folder}")
        if not found.exists():
            raise ArtefactError(f"{found} is missing; the saved workflow is incomplete, copy it again")
        return found


@dataclass
class Restored:
    """An operator, how its columns are grouped, and what it learned, which is put in place once the graph stands."""

    op: Operator
    groups: Groups = ()
    finish: Callable[[Any, Columns], None] | None = None
    dtypes: dict[str, str] = field(default_factory=dict)  # of its raw columns, as the values learned show them


def _dtype(value: Any, default: str) -> str:
    name = value.get("name") if isinstance(value, Mapping) else value
    return default if name is None else np.dtype(name).name


def _function(value: Mapping[str, str] | None) -> Any:
    return None if value is None else resolve_reference(f"{value['module']}:{value['qualname']}")


def _fill_missing(saved: Saved) -> Restored:
    params = saved.params
    return Restored(native.FillMissing(params.get("fill_val", 0), bool(params.get("add_binary_cols", False))))


def _statistics(op: Operator, state: Any) -> Restored:
    return Restored(op, finish=lambda fitted, columns: fitted.finish(state, columns))


def _fill_median(saved: Saved) -> Restored:
    op = loaded_ops.LoadedFillMedian(bool(saved.params.get("add_binary_cols", False)))
    return _statistics(op, {name: float(value) for name, value in saved.state["medians"].items()})


def _normalize(saved: Saved) -> Restored:
    means, stds = saved.state["means"], saved.state["stds"]
    op = loaded_ops.LoadedNormalize(_dtype(saved.params.get("out_dtype"), "float64"))
    return _statistics(op, {name: [float(means[name]), float(stds[name])] for name in means})


def _normalize_min_max(saved: Saved) -> Restored:
    lows, highs = saved.state["mins"], saved.state["maxs"]
    op = loaded_ops.LoadedNormalizeMinMax(_dtype(saved.params.get("out_dtype"), "float64"))
    return _statistics(op, {name: [float(lows[name]), float(highs[name]) - float(lows[name])] for name in lows})


def _plain(make: Callable[..., Operator]) -> Callable[[Saved], Restored]:
    """An operator whose arguments are the saved ones."""
    return lambda saved: Restored(make(**saved.params))


def _rename(saved: Saved) -> Restored:
    params = saved.params
    return Restored(native.Rename(_function(params.get("f")), params.get("postfix"), params.get("name")))


def _add_metadata(saved: Saved) -> Restored:
    return Restored(AddMetadata(saved.params.get("tags"), saved.params.get("properties")))


def _lambda(saved: Saved) -> Restored:
    params = saved.params
    outputs = {}
    for column in saved.record.get("output_schema") or ():
        name = (column.get("dtype") or {}).get("name")
        if name not in (None, "unknown", "object"):
            inner = dtype_to_native(dtype_of(name))
            outputs[column["name"]] = f"list[{inner}]" if column.get("is_list") else inner
    dtype = (params.get("dtype") or {}).get("name")
    whole = len(outputs) == len(saved.record.get("output_schema") or ())
    return Restored(
        LambdaOp(
            _function(params.get("f")), params.get("dependency") or None, None,
            None if dtype in (None, "unknown", "object") else dtype, params.get("tags"), params.get("properties"),
            outputs if outputs and whole else None,
        )
    )  # fmt: skip


def _filter(saved: Saved) -> Restored:
    return Restored(Filter(_function(saved.params["f"])))


def _hash_bucket(saved: Saved) -> Restored:
    raise ArtefactError(
        f"{saved.file}: node {saved.record['id']} is a HashBucket, and NVTabular's hashes (one kind on CPUs, another "
        f"on GPUs) are not those of Penstock: the model would get other ids than it was trained on. Fit and train again"
    )


def _categorify(saved: Saved) -> Restored:
    params = saved.params
    op = native.Categorify(
        freq_threshold=params.get("freq_threshold") or 0, max_size=params.get("max_size") or 0,
        num_buckets=params.get("num_buckets"), encode_type=params.get("encode_type", "joint"),
        name_sep=params.get("name_sep", "_"), dtype=_dtype(params.get("dtype"), "int64"),
        single_table=bool(params.get("single_table", False)),
    )  # fmt: skip
    if (params.get("num_buckets") or 1) != 1:
        warnings.warn(
            f"{saved.file}: values out of vocabulary are spread over num_buckets={params['num_buckets']} codes by "
            f"Penstock's hash, which is not NVTabular's; values of the vocabulary keep their codes",
            stacklevel=2,
        )
    tables = {_key(item): _read(saved.artefact(item["path"])) for item in saved.state.get("categories", ())}
    groups = _groups(saved, op.name_sep, list(tables))
    dtypes: dict[str, str] = {}
    vocabularies: dict[str, Vocabulary] = {}
    codes: dict[str, np.ndarray] = {}
    for group in groups:
        name = op.vocabulary_name(group)
        if name not in tables:
            raise ArtefactError(f"{saved.file}: node {saved.record['id']} has no vocabulary of {name!r}")
        codes[name], frame = tables[name]
        combined = op.encode_type == "combo" and len(group) > 1
        column = group[0] if len(group) == 1 else name
        values = _combined(frame, group) if combined else frame[column if column in frame.columns else frame.columns[0]]
        codes[name], values, sizes = _known(codes[name], values, frame)
        vocabularies[name] = Vocabulary(values.alias(VALUE), sizes)
        for member in group:
            dtypes[member] = spelled(frame[member].dtype if combined else values.dtype)

    def finish(fitted: Any, columns: Columns) -> None:
        fitted.vocabularies_ = vocabularies
        fitted.state_ = {name: _counts(v) for name, v in vocabularies.items()}
        fitted._set_shifts(columns)
        for name in vocabularies:
            first = fitted.codes(name).shifted(fitted.shifts_[name]).first
            if not np.array_equal(codes[name], np.arange(first, first + len(codes[name]))):
                raise ArtefactError(
                    f"{saved.file}: the codes of {name!r} begin with {codes[name][:1].tolist()}, not with {first}: "
                    f"they are laid out in a way that is not known here; fit the workflow again"
                )

    return Restored(op, groups, finish, dtypes)


def _known(codes: np.ndarray, values: pl.Series, frame: pl.DataFrame) -> tuple[np.ndarray, pl.Series, np.ndarray]:
    """Codes, values and counts of the vocabulary, without a row for nulls."""
    present = values.is_not_null()
    size = next((c for c in frame.columns if c.endswith("_size")), None)
    sizes = frame[size].fill_null(0).to_numpy() if size is not None else np.zeros(len(values), np.int64)
    mask = present.to_numpy()
    return codes[mask], values.filter(present), sizes[mask].astype(np.int64)


def _counts(vocabulary: Vocabulary) -> ValueCounts:
    counts = ValueCounts(vocabulary.values.dtype)
    counts.add_counts(vocabulary.values, vocabulary.counts)
    counts.num_rows = int(vocabulary.counts.sum())
    return counts


def _key(item: Mapping[str, Any]) -> str:
    return "_".join(item["key"]) if isinstance(item["key"], list) else str(item["key"])


def _groups(saved: Saved, name_sep: str, names: list[str]) -> Groups:
    """Groups of columns: those that share a stored name, in the order of the inputs."""
    stored = dict(saved.state.get("storage_name") or {})
    members: dict[str, list[str]] = {}
    for column in saved.input_names or names:
        members.setdefault(stored.get(column, column), []).append(column)
    if not saved.input_names:
        return tuple((name,) for name in names)
    return tuple(tuple(columns) for columns in members.values())


def _read(path: Path) -> tuple[np.ndarray, pl.DataFrame]:
    """A parquet file (or folder of parts) as its pandas index and its columns."""
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise ArtefactError(f"{path} is damaged or truncated ({error})") from error
    described = (table.schema.pandas_metadata or {}).get("index_columns") or []
    index = np.arange(table.num_rows)
    if described and isinstance(described[0], Mapping):
        start, step = described[0].get("start") or 0, described[0].get("step") or 1
        index = start + step * index
    elif described and described[0] in table.column_names:
        index = table.column(described[0]).to_numpy()
        table = table.drop_columns([described[0]])
    return index, pl.DataFrame(pl.from_arrow(table))


def _target_encoding(saved: Saved) -> Restored:
    params = saved.params
    targets = list(params.get("target_cols") or ())
    learned = {name: float(value) for name, value in (saved.state.get("means") or {}).items()}
    op = native.TargetEncoding(
        targets, params.get("target_mean") or learned, params.get("kfold") or 3, params.get("fold_seed") or 0,
        params.get("p_smooth", 20), params.get("out_col"), _dtype(params.get("out_dtype"), "float32"),
        params.get("name_sep", "_"),
    )  # fmt: skip
    groups: list[tuple[str, ...]] = []
    sums: list[GroupedSums] = []
    dtypes: dict[str, str] = {}
    for item in saved.state.get("stats", ()):
        frame = _read(saved.artefact(item["path"]))[1]
        keys = frame.columns[: len(frame.columns) - 1 - len(targets)]
        if "__fold__" in keys:  # folds were for the rows that were fitted on
            continue
        groups.append(tuple(keys))
        dtypes |= {key: spelled(frame[key].dtype) for key in keys}
        sums.append(_totals(frame, keys, targets))

    def finish(fitted: Any, columns: Columns) -> None:
        order = [groups.index(group) for group in columns.groups]
        fitted.finish([sums[i] for i in order], columns)

    return Restored(op, tuple(groups), finish, dtypes)


def _totals(frame: pl.DataFrame, keys: list[str], targets: list[str]) -> GroupedSums:
    """Counts and sums as the operator keeps them; they follow the keys in the file."""
    counts = frame[frame.columns[len(keys)]].cast(pl.Int64)
    columns: dict[str, pl.Series] = {f"k{i}": frame[key] for i, key in enumerate(keys)}
    columns[FOLD] = pl.Series(np.zeros(frame.height, np.int16))
    for i, target in enumerate(targets):
        values = frame[frame.columns[len(keys) + 1 + i]].cast(pl.Float64).fill_null(0.0).to_numpy(writable=True)
        columns |= totals(target, values)
        columns[f"count:{target}"] = counts
    return GroupedSums([*(f"k{i}" for i in range(len(keys))), FOLD], [pl.DataFrame(columns)])


def _join_groupby(saved: Saved) -> Restored:
    params = saved.params
    op = loaded_ops.LoadedJoinGroupby(
        params.get("cont_cols"), params.get("stats") or ("count",), params.get("name_sep", "_")
    )
    tables = {_key(item): _read(saved.artefact(item["path"]))[1] for item in saved.state.get("categories", ())}
    groups = _groups(saved, op.name_sep, list(tables))
    dtypes = {name: spelled(tables[op.name_sep.join(group)][name].dtype) for group in groups for name in group}

    def finish(fitted: Any, columns: Columns) -> None:
        state = []
        for group in columns.groups:
            table = tables[fitted.name_sep.join(group)]
            outputs = list(fitted.output_names(group))
            if missing := [name for name in outputs if name not in table.columns]:
                raise ArtefactError(f"{saved.file}: the statistics of {list(group)} lack {missing[0]!r}")
            state.append(
                table.select(
                    *(pl.col(name).alias(f"k{i}") for i, name in enumerate(group)),
                    *(pl.col(n).cast(pl.Int64 if n.endswith("count") else pl.Float64) for n in outputs),
                )
            )
        fitted.finish(state, columns)

    return Restored(op, groups, finish, dtypes)


BUILDERS: dict[str, Callable[[Saved], Restored]] = {
    "nvtabular.ops.fill.FillMissing": _fill_missing,
    "nvtabular.ops.fill.FillMedian": _fill_median,
    "nvtabular.ops.normalize.Normalize": _normalize,
    "nvtabular.ops.normalize.NormalizeMinMax": _normalize_min_max,
    "nvtabular.ops.clip.Clip": _plain(native.Clip),
    "nvtabular.ops.logop.LogOp": _plain(native.LogOp),
    "nvtabular.ops.hash_bucket.HashBucket": _hash_bucket,
    "nvtabular.ops.bucketize.Bucketize": _plain(native.Bucketize),
    "nvtabular.ops.list_slice.ListSlice": _plain(native.ListSlice),
    "nvtabular.ops.dropna.Dropna": _plain(native.Dropna),
    "nvtabular.ops.add_metadata.AddMetadata": _add_metadata,
    "nvtabular.ops.rename.Rename": _rename,
    "nvtabular.ops.lambdaop.LambdaOp": _lambda,
    "merlin.dag.ops.udf.UDF": _lambda,
    "merlin.dag.ops.rename.Rename": _rename,
    "merlin.dag.ops.add_metadata.AddMetadata": _add_metadata,
    "nvtabular.ops.filter.Filter": _filter,
    "nvtabular.ops.categorify.Categorify": _categorify,
    "nvtabular.ops.target_encoding.TargetEncoding": _target_encoding,
    "nvtabular.ops.join_groupby.JoinGroupby": _join_groupby,
}

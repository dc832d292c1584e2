"""Operators that NVTabular saved with tables beside the graph: vocabularies and statistics by category."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.compat.merlin.dag.observed import spelled
from penstock.compat.nvtabular.workflow import loaded_ops
from penstock.compat.nvtabular.workflow.loaded_ops import Groups, Restored, Saved, numpy_name
from penstock.core.bounded import check_parquet
from penstock.core.errors import ArtefactError
from penstock.etl import ops as native
from penstock.etl.operator import Columns
from penstock.etl.ops.categorify_values import combined_values
from penstock.etl.ops.grouped_sums import GroupedSums, Terms, totals
from penstock.etl.ops.target import FOLD
from penstock.etl.vocabulary import VALUE, ValueCounts, Vocabulary


def categorify(saved: Saved) -> Restored:
    """Vocabularies in the order of their codes."""
    params = saved.params
    op = native.Categorify(
        freq_threshold=params.get("freq_threshold") or 0, max_size=params.get("max_size") or 0,
        num_buckets=params.get("num_buckets"), encode_type=params.get("encode_type", "joint"),
        name_sep=params.get("name_sep", "_"), dtype=numpy_name(params.get("dtype"), "int64"),
        single_table=bool(params.get("single_table", False)),
    )  # fmt: skip
    _refuse_other_hashes(saved, params)
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
        source = column if column in frame.columns else frame.columns[0]
        values = combined_values(frame, group) if combined else frame[source]
        codes[name], values, sizes = _known(codes[name], values, frame)
        vocabularies[name] = Vocabulary(values.alias(VALUE), sizes)
        for member in group:
            dtypes[member] = spelled(frame[member].dtype if combined else values.dtype)

    def finish(fitted: Any, columns: Columns) -> None:
        fitted.vocabularies_, fitted.later_ = vocabularies, {}
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


def _refuse_other_hashes(saved: Saved, params: Mapping[str, Any]) -> None:
    """Values out of vocabulary that were spread by a hash would get other ids than the model was trained on."""
    buckets = params.get("num_buckets") or 1
    if any(number != 1 for number in (buckets.values() if isinstance(buckets, Mapping) else [buckets])):
        raise ArtefactError(
            f"{saved.file}: node {saved.record['id']} is a Categorify with num_buckets={buckets}, and NVTabular's "
            f"hashes (one kind on CPUs, another on GPUs) are not those of Penstock: values out of vocabulary would "
            f"get other ids than the model was trained on. Fit and train again"
        )


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


def _groups(saved: Saved, name_sep: str, names: list[str], chosen: list[str] | None = None) -> Groups:
    """Groups of columns: those that share a stored name, in the order of the inputs."""
    stored = dict(saved.state.get("storage_name") or {})
    members: dict[str, list[str]] = {}
    for column in chosen or saved.input_names or names:
        members.setdefault(stored.get(column, column), []).append(column)
    if not saved.input_names:
        return tuple((name,) for name in names)
    return tuple(tuple(columns) for columns in members.values())


def _read(path: Path) -> tuple[np.ndarray, pl.DataFrame]:
    """A parquet file (or folder of parts) as its pandas index and its columns."""
    try:
        for part in path.rglob("*.parquet") if path.is_dir() else [path]:
            check_parquet(part)
        table = pq.read_table(path)
    except (pa.ArrowException, OSError, ArtefactError) as error:
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


def target_encoding(saved: Saved) -> Restored:
    """Counts and sums of the target by category; folds are left out."""
    params = saved.params
    targets = list(params.get("target_cols") or ())
    learned = {name: float(value) for name, value in (saved.state.get("means") or {}).items()}
    op = native.TargetEncoding(
        targets, params.get("target_mean") or learned, params.get("kfold") or 3, params.get("fold_seed") or 0,
        params.get("p_smooth", 20), params.get("out_col"), numpy_name(params.get("out_dtype"), "float32"),
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
        columns |= totals(target, Terms(values))
        columns[f"count:{target}"] = counts
    return GroupedSums([*(f"k{i}" for i in range(len(keys))), FOLD], [pl.DataFrame(columns)])


def join_groupby(saved: Saved) -> Restored:
    """Finished statistics by category."""
    params = saved.params
    conts = params.get("cont_cols")
    op = loaded_ops.LoadedJoinGroupby(
        list(conts.get("names") or ()) if isinstance(conts, Mapping) else conts,
        params.get("stats") or ("count",),
        params.get("name_sep", "_"),
    )
    tables = {_key(item): _read(saved.artefact(item["path"]))[1] for item in saved.state.get("categories", ())}
    stored = saved.state.get("storage_name") or {}  # what it computes from is among its inputs too, but is no category
    chosen = [name for name in saved.input_names if stored.get(name, name) in tables]
    groups = _groups(saved, op.name_sep, list(tables), chosen)
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

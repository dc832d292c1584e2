"""One function for each operator in NVTabular's saved form: arguments and statistics to a fitted operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.compat.merlin.dtypes import dtype_of
from penstock.compat.merlin.dtypes import to_native as dtype_to_native
from penstock.compat.nvtabular.ops._renamed import AddMetadata
from penstock.compat.nvtabular.ops.lambdaop import Filter, LambdaOp
from penstock.compat.nvtabular.workflow import loaded_ops, saved_tables
from penstock.compat.nvtabular.workflow.loaded_ops import Restored, Saved, numpy_name
from penstock.core.errors import ArtefactError
from penstock.etl import ops as native
from penstock.etl.operator import Operator
from penstock.etl.references import resolve_reference


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
    op = loaded_ops.LoadedNormalize(numpy_name(saved.params.get("out_dtype"), "float64"))
    return _statistics(op, {name: [float(means[name]), float(stds[name])] for name in means})


def _normalize_min_max(saved: Saved) -> Restored:
    lows, highs = saved.state["mins"], saved.state["maxs"]
    op = loaded_ops.LoadedNormalizeMinMax(numpy_name(saved.params.get("out_dtype"), "float64"))
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
    "nvtabular.ops.categorify.Categorify": saved_tables.categorify,
    "nvtabular.ops.target_encoding.TargetEncoding": saved_tables.target_encoding,
    "nvtabular.ops.join_groupby.JoinGroupby": saved_tables.join_groupby,
}

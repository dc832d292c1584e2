"""`nvtabular.inference.triton`: a folder of models as Triton reads it, and rows in the forms it sends."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.compat.merlin.core._dispatch_data import df_from_dict, dict_from_df
from penstock.compat.merlin.dag import group_values_offsets
from penstock.compat.merlin.dag.declaring import Supports
from penstock.compat.merlin.schema._proto import Word, write
from penstock.compat.merlin.schema.columns import ColumnSchema
from penstock.compat.missing import CompatError
from penstock.core.artefact import replacing
from penstock.core.errors import NotFittedError, SchemaError
from penstock.core.params import NONE, STR, Int, check

# Rows as a frame or as arrays by name.


def convert_format(tensors: Any, kind: Supports, target_kind: Supports) -> tuple[Any, Supports]:
    """The rows in another form, and which form that is; lists are pairs of values and offsets among arrays.

    >>> import pandas as pd
    >>> rows, kind = convert_format(pd.DataFrame({"a": [1]}), Supports.CPU_DATAFRAME, Supports.CPU_DICT_ARRAY)
    >>> rows["a"].tolist(), kind.name
    ([1], 'CPU_DICT_ARRAY')
    """
    if kind & target_kind:
        return tensors, kind
    if target_kind & Supports.CPU_DICT_ARRAY:
        return group_values_offsets(dict_from_df(tensors)), Supports.CPU_DICT_ARRAY
    if target_kind & Supports.CPU_DATAFRAME:
        return df_from_dict(tensors), Supports.CPU_DATAFRAME
    raise CompatError(f"rows are in host memory here, and cannot become {target_kind}")


# A fitted workflow as a folder of Triton's model repository.

_KINDS = {"str": "TYPE_STRING", "bool": "TYPE_BOOL", "float16": "TYPE_FP16", "float32": "TYPE_FP32",
          "float64": "TYPE_FP64"}  # fmt: skip


def generate_nvtabular_model(
    workflow: Any,
    name: str,
    output_path: Any,
    version: int = 1,
    output_model: str | None = None,
    max_batch_size: int | None = None,
    sparse_max: Mapping[str, int] | None = None,
    backend: str = "nvtabular",
    cats: Sequence[str] | None = None,
    conts: Sequence[str] | None = None,
) -> Any:
    """Write `config.pbtxt`, with the columns in and out, and the workflow itself under `<version>/workflow`.

    Triton needs a backend of the name that is given to run it; Penstock has none.

    Args:
        workflow: a fitted one.
        name: of the model.
        output_path: the model's folder.
        version: of the model.
        output_model: taken for the sake of old code, as are `cats` and `conts`.
        max_batch_size: the largest number of rows in a request.
        sparse_max: how long the lists of some outputs are made: these are dense.
        backend: what runs the model in Triton.

    Returns:
        The workflow.

    Raises:
        NotFittedError: the workflow has learned nothing yet.
    """
    check("name", name, STR)
    check("version", version, Int(min=1))
    check("max_batch_size", max_batch_size, Int(min=1) | NONE)
    if workflow.input_schema is None or workflow.output_schema is None:
        raise NotFittedError("the workflow has no schema yet; fit it first")
    folder = Path(output_path)
    place = folder / str(version) / "workflow"
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        shutil.rmtree(place)
    workflow.save(place)
    message = {
        "name": [name],
        "backend": [backend],
        **({} if max_batch_size is None else {"max_batch_size": [max_batch_size]}),
        "input": _tensors(workflow.input_schema, {}),
        "output": _tensors(workflow.output_schema, sparse_max or {}),
    }
    with replacing(folder / "config.pbtxt") as partial:
        partial.write_text(write(message))
    return workflow


def _tensors(schema: Iterable[ColumnSchema], dense: Mapping[str, int]) -> list[dict[str, Any]]:
    """One tensor a column; lists are two, of values and of how many each row has."""
    found: list[dict[str, Any]] = []
    for column in schema:
        kind = Word(_kind(column))
        if column.name in dense:
            found.append({"name": column.name, "data_type": kind, "dims": [-1, dense[column.name]]})
        elif column.is_list:
            found.append({"name": f"{column.name}__values", "data_type": kind, "dims": [-1]})
            found.append({"name": f"{column.name}__nnzs", "data_type": Word("TYPE_INT64"), "dims": [-1]})
        else:
            found.append({"name": column.name, "data_type": kind, "dims": [-1, 1]})
    return found


def _kind(column: ColumnSchema) -> str:
    if column.dtype.is_integer:
        return f"TYPE_{column.dtype.name.upper()}"
    if column.dtype.name not in _KINDS:
        raise SchemaError(f"column {column.name!r} is {column.dtype.name}, which Triton's tensors do not hold")
    return _KINDS[column.dtype.name]

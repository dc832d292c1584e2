"""A fitted workflow and the columns of a schema, as plain data that JSON can hold."""

from __future__ import annotations

from typing import Any

from penstock.core.schema import Role, Schema
from penstock.etl import Workflow
from penstock.etl.ops import get_embedding_sizes


def profile_workflow(workflow: Workflow, path: str = "") -> dict[str, Any]:
    """A fitted workflow: its recipe, the columns it reads and the columns it writes, with embedding sizes."""
    return {
        "kind": "workflow",
        "path": path,
        "recipe": workflow.to_recipe(),
        "inputs": profile_schema(workflow.input_schema),
        "outputs": profile_schema(workflow.output_schema),
    }


def profile_schema(schema: Schema) -> list[dict[str, Any]]:
    """The columns of a schema; those with a cardinality get the size of their embedding table.

    >>> from penstock.core.schema import ColumnSchema
    >>> profile_schema(Schema([ColumnSchema("C1", "int32", role="categorical", cardinality=1000)]))[0]["embedding"]
    [1000, 77]
    """
    sized = Schema(c for c in schema if c.role is Role.CATEGORICAL and c.cardinality is not None)
    sizes = get_embedding_sizes(sized)
    flat = sizes if isinstance(sizes, dict) else {**sizes[0], **sizes[1]}
    return [
        {
            "name": column.name,
            "dtype": f"list[{column.dtype}]" if column.is_list else column.dtype,
            "role": str(column.role),
            "tags": sorted(column.tags),
            "cardinality": column.cardinality,
            "embedding": list(flat[column.name]) if column.name in flat else None,
        }
        for column in schema
    ]

"""Tables on a device as others take them: frozen in a saved model, or plain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from penstock.core.errors import ParameterError, SchemaError
from penstock.core.schema import Schema
from penstock.embedding.dims import plain_dim
from penstock.embedding.parameter_tables import EmbeddingTables

if TYPE_CHECKING:
    from penstock.embedding.fused.table_module import TableModule


def frozen(tables: TableModule, schema: Schema) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description of `FrozenEmbeddings` with the weights of tables, and these in host memory.

    Args:
        tables: of known sizes.
        schema: names the columns of the tables, in their order.

    Raises:
        ParameterError: the columns are not those of the tables.

    Returns:
        Both.
    """
    names, sizes = schema.names, tables.sizes.values()
    if len(names) != len(sizes) or (tables.named and names != tables.names):
        raise ParameterError(
            f"the model reads embeddings of {names}, and the tables are {tables.names}; they must agree, in order"
        )
    sized = Schema([schema[name].with_(cardinality=size) for name, size in zip(names, sizes, strict=True)])
    dtype = str(tables.groups[0].weight.dtype).removeprefix("torch.")
    dims = dict(zip(names, tables._dims.values(), strict=True))
    arguments: dict[str, Any] = {"dim": plain_dim(dims), "pooling": tables.pooling, "dtype": dtype}
    if tables.schema is not None and any(owner != name for name, owner in tables.owners.items()):
        arguments["share"], sized = True, tables.schema  # which says what is shared
    description = {"class": "FrozenEmbeddings", "schema": sized.to_dict(), "arguments": arguments}
    state, kept = tables.state_dict(), [group.key("weight") for group in tables.groups]
    return description, {name: state[name].detach().cpu().contiguous() for name in kept}


def plain(tables: TableModule, rows: Tensor) -> EmbeddingTables:
    """Plain tables in host memory.

    Args:
        tables: of one dim, made from a schema.
        rows: all rows of the tables.

    Raises:
        ParameterError: the tables have several dims.
        SchemaError: there is no schema.

    Returns:
        Tables in which rows that columns share come for each of them.
    """
    if tables.schema is None:
        raise SchemaError("plain tables need a schema: build FusedEmbeddings from one")
    if not isinstance(tables.dim, int):
        raise ParameterError(f"plain tables have one dim, and these have {tables.dims}; save_model takes them as is")
    made, starts = EmbeddingTables(tables.schema, tables.dim, pooling=tables.pooling), tables.groups[0].starts
    with torch.no_grad():
        parts = [rows[starts[name] : starts[name] + size] for name, size in tables.sizes.items()]
        made.weight.copy_(torch.cat(parts))
    return made

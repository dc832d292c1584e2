"""A graph bound to the columns it will get: which of two columns of one name counts, what `-` leaves, what a user's
function gives. Penstock's graphs say all this in advance; Merlin's are settled when a schema is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.compat.merlin.dag.declaring import as_selector
from penstock.compat.merlin.dag.node import Node, promoted
from penstock.compat.merlin.dag.observed import FirstRows, look_at
from penstock.compat.merlin.dag.selector import ColumnSelector, DroppedColumns, NamedSelector
from penstock.compat.merlin.schema import Schema
from penstock.core.errors import ColumnNotFoundError
from penstock.core.schema import Schema as NativeSchema
from penstock.data.dataset import Dataset
from penstock.etl import graph as native
from penstock.etl.graph import ancestors
from penstock.etl.plan import Plan


def bind(output: native.Node, schema: NativeSchema, data: Dataset | None = None) -> None:
    """Settle every node that leads to an output, in the order of the graph; `data` lets functions see first rows."""
    first = None if data is None else FirstRows(data)
    for node in _in_order(output):
        if node._branches is not None:
            _settle_join(node, schema)
        elif node._removed is not None:
            _settle_subtraction(node, schema, data)
        elif node._groups is not None:
            _settle_groups(node, lambda other: _names(other, schema))
        else:
            op: Any = node.operator
            if hasattr(op, "take_names"):
                op.take_names(lambda other: _names(other, schema))
            if first is not None:
                look_at(node, first)


def _in_order(output: native.Node) -> list[Node]:
    """Nodes, parents first. A join's own branches count: its feeds may be what an earlier binding made of them."""
    for node in ancestors([output]):
        promoted(node)
        if isinstance(node, Node) and node._branches is not None:
            node.feeds = list(node._branches)
    return [promoted(node) for node in ancestors([output])]


def _names(node: native.Node, schema: NativeSchema) -> list[str]:
    return Plan(node, schema).schemas[-1].names


def _settle_join(node: Node, schema: NativeSchema) -> None:
    branches = node._branches or ()
    names = [_names(branch, schema) for branch in branches]
    kept: list[native.Node] = []
    for i, branch in enumerate(branches):
        later = {name for other in names[i + 1 :] for name in other}
        again = [name for name in names[i] if name in later]
        if not again:
            kept.append(branch)
        elif len(again) < len(names[i]):
            kept.append(promoted(native.Node("drop", [branch], selector=DroppedColumns(again))))
    node.feeds = kept


def _settle_groups(node: Node, names_of: Callable[[native.Node], list[str]]) -> None:
    alone, groups = node._groups or ((), ())
    single = list(dict.fromkeys(name for branch in alone for name in names_of(branch)))
    node.selector = NamedSelector([*single, *(names_of(branch) for branch in groups)])


def _settle_subtraction(node: Node, schema: NativeSchema, data: Dataset | None) -> None:
    known = Plan(node.feeds[0], schema).schemas[-1]
    gone: dict[str, None] = {}
    for item in node._removed or ():
        if isinstance(item, native.Node):
            bind(item, schema, data)
            gone |= dict.fromkeys(_names(item, schema))
        else:
            chosen = DroppedColumns(item.groups, tags=item.tags, roles=item.roles, everything=item.everything)
            gone |= dict.fromkeys(chosen.resolve(known).names)
    left = [name for name in gone if name in known]
    node.kind = "drop" if left else "pick"
    node.selector = DroppedColumns(left) if left else NamedSelector(known.names)


# Schemas alone, where dtypes are not known.


def declare(output: native.Node, root: Schema) -> None:
    """Give every node its schemas by what operators declare, for a schema that does not say all dtypes."""
    for node in _in_order(output):
        parents = sum((promoted(p).output_schema for p in node.feeds), Schema())
        further = sum((promoted(d).output_schema for d in node.extras), Schema())
        inputs = root if node.kind == "source" else parents
        node._schemas = (inputs + further, _declared(node, inputs, further, root))
        if node.kind == "source":
            node._schemas = (node._schemas[1], node._schemas[1])


def _declared(node: Node, inputs: Schema, further: Schema, root: Schema) -> Schema:
    if node._removed is not None:
        gone = ColumnSelector([])
        for item in node._removed:
            if isinstance(item, native.Node):
                declare(item, root)
                gone = gone + promoted(item).output_columns
            else:
                gone = gone + _merlin(item)
        return inputs.excluding(gone)
    if node._groups is not None:
        _settle_groups(node, lambda other: promoted(other).output_schema.column_names)
    if node.kind == "source" and node.optional:
        return inputs.select_by_name(_merlin(node.selector).names)
    if node.kind in ("source", "pick"):
        chosen = _merlin(node.selector)
        for name in chosen.names:
            if name not in inputs:
                raise ColumnNotFoundError(name, inputs.column_names, "the schema")
        return inputs.select(chosen)
    if node.kind == "drop":
        return inputs.excluding(_merlin(node.selector))
    if node.kind == "join":
        return inputs
    op: Any = node.op
    if hasattr(op, "take_names"):
        op.take_names(lambda other: promoted(other).output_schema.column_names)
    groups = node.columns(Schema([c.with_dtype("int64") for c in inputs]).to_native()).groups
    chosen = ColumnSelector([group[0] if len(group) == 1 else list(group) for group in groups])
    whole = inputs + Schema([c for c in further if c.name not in inputs])
    return op.compute_output_schema(whole, as_selector(chosen))


def _merlin(selector: Any) -> ColumnSelector:
    """Merlin's selector for one of Penstock's; roles are tags there."""
    if selector.everything:
        return ColumnSelector("*")
    names = [group[0] if len(group) == 1 else list(group) for group in selector.groups]
    roles = {"label": "target"}
    tags = [*selector.tags, *(roles.get(str(role), str(role)) for role in selector.roles)]
    return ColumnSelector(names, tags=list(dict.fromkeys(tags)))

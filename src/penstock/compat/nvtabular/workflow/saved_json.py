"""Workflows that NVTabular saved as JSON, made into fitted workflows of Penstock.

Such a folder holds `metadata.json` (versions), `graph.json` (nodes with their operators, arguments, small statistics
and schemas) and `artifacts/node_<id>/` (vocabularies and statistics as parquet).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.compat.merlin.schema.tags import role_of
from penstock.compat.nvtabular.workflow.loaded_ops import Restored, Saved
from penstock.compat.nvtabular.workflow.saved_ops import BUILDERS
from penstock.core.artefact import explaining
from penstock.core.bounded import check_fields, read_json
from penstock.core.errors import ArtefactError
from penstock.core.params import Instance, Int
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.etl import workflow as native
from penstock.etl.graph import ColumnSelector, Node
from penstock.etl.plan import Plan

GRAPH = "graph.json"
FORMAT = 1
_SELECTION = "merlin.dag.ops.selection.SelectionOp"
_JOIN = "merlin.dag.ops.concat_columns.ConcatColumns"
_SUBGRAPH = "merlin.dag.ops.subgraph.Subgraph"


def load(folder: Path, client: Any = None) -> native.Workflow:
    """The fitted workflow that a folder holds."""
    file = folder / GRAPH
    with explaining(file, "workflow that NVTabular saved"):
        content = read_json(file, {"nodes": Instance(list, "a list of nodes"), "output_node_id": Int()})
        if (version := content.get("format_version", FORMAT)) != FORMAT:
            raise ArtefactError(f"{file} has format_version {version!r}; format {FORMAT} is read here")
        builder = _Builder(file, [])
        try:
            output = builder.build(content["nodes"], content["output_node_id"], folder, None)
        except (LookupError, TypeError, AttributeError) as error:
            raise ArtefactError(f"{file} is damaged: a node lacks or mistakes {error}") from error
        workflow = native.Workflow(output, engine=client)
        workflow._plan = _fitted(workflow, _input_schema(content["nodes"], file, builder.restored), builder.restored)
        return workflow


@dataclass
class _Builder:
    """Makes nodes of records; what operators learned is kept in `restored` until the graph is whole."""

    file: Path
    restored: list[tuple[Any, Restored]]

    def build(self, records: list[Mapping[str, Any]], last: int, folder: Path, inputs: Node | None) -> Node:
        nodes: dict[int, Node] = {}
        for record in records:  # the number becomes a folder's name
            check_fields(record, {"id": Int()}, f"{self.file}, a node")
        for record in sorted(records, key=lambda r: r["id"]):
            nodes[record["id"]] = self._node(record, nodes, folder / "artifacts" / f"node_{record['id']}", inputs)
        if last not in nodes:
            raise ArtefactError(f"{self.file} names the output node {last}, which it does not hold")
        return nodes[last]

    def _node(self, record: Mapping[str, Any], nodes: dict[int, Node], folder: Path, inputs: Node | None) -> Node:
        kind = record.get("op_class")
        parents = [nodes[i] for i in record.get("parent_ids", ())]
        further = [nodes[i] for i in record.get("dependency_ids", ())]
        params = record.get("op_params") or {}
        names = _selected(params.get("selector")) or _selected(record.get("selector"))
        if kind in (None, _SELECTION):
            return _selection(names, parents or ([inputs] if inputs is not None else []), record)
        if kind == _JOIN:
            return _joined([*parents, *further])
        if kind == _SUBGRAPH:
            inner = params["inner_graph"]
            whole = _joined(parents) if parents else inputs
            return self.build(inner["nodes"], inner["output_node_id"], folder, whole).named(params["name"])
        return self._operator(record, kind, _joined(parents), further, folder)

    def _operator(self, record: Mapping[str, Any], kind: str, parent: Node, further: list[Node], folder: Path) -> Node:
        build: Callable[[Saved], Restored] | None = BUILDERS.get(kind)
        if build is None:
            raise ArtefactError(
                f"{self.file}: node {record['id']} is a {kind}, which is not known here; build this workflow with "
                f"penstock.ops and fit it again"
            )
        found = build(Saved(record, folder, self.file))
        if any(len(group) > 1 for group in found.groups):
            parent = parent[[list(g) if len(g) > 1 else g[0] for g in found.groups]]
        node = parent >> found.op
        if further and not node.extras and not found.op.fit_only_dependencies:
            node = Node("apply", node.feeds, operator=node.operator, extras=further)
        self.restored.append((node.operator, found))
        return node


def _selected(selector: Any) -> list[str]:
    return list((selector or {}).get("names") or ())


def _selection(names: list[str], parents: list[Node], record: Mapping[str, Any]) -> Node:
    names = names or [column["name"] for column in record.get("output_schema") or ()]
    if not parents:
        return Node.source(ColumnSelector(names))
    return _joined(parents)[names]


def _joined(nodes: list[Node]) -> Node:
    return nodes[0] if len(nodes) == 1 else Node("join", nodes)


def _input_schema(records: list[Mapping[str, Any]], file: Path, restored: list[tuple[Any, Restored]]) -> Schema:
    """The raw columns with the dtypes that were saved; where one was not, that of the values learned."""
    learned = {name: dtype for _, found in restored for name, dtype in found.dtypes.items()}
    columns: dict[str, ColumnSchema] = {}
    for record in records:
        if record.get("parent_ids") or record.get("op_class") not in (None, _SELECTION):
            continue
        for saved in record.get("output_schema") or record.get("input_schema") or ():
            columns.setdefault(saved["name"], _column(saved, learned, file))
    return Schema(columns.values())


def _column(saved: Mapping[str, Any], learned: Mapping[str, str], file: Path) -> ColumnSchema:
    from penstock.compat.merlin.dtypes import dtype_of, to_native

    name, dtype = saved["name"], saved.get("dtype")
    text = dtype.get("name") if isinstance(dtype, Mapping) else dtype
    # NVTabular calls text "object" or "str"; what a vocabulary holds is surer than that.
    known = None if text in (None, "", "unknown") else to_native(dtype_of(text))
    chosen = learned.get(name) if known in (None, "string") else known
    chosen = chosen or known
    if chosen is None:
        raise ArtefactError(f"{file} does not say of which dtype column {name!r} is")
    role = role_of(saved.get("tags") or ()) or Role.OTHER
    return ColumnSchema(name, chosen, role, bool(saved.get("is_list")))


def _fitted(workflow: native.Workflow, schema: Schema, restored: list[tuple[Any, Restored]]) -> Plan:
    plan = Plan(workflow.output, schema)
    for i, node in enumerate(plan.nodes):
        for op, found in restored:
            if node.operator is op and found.finish is not None:
                found.finish(node.operator, plan.columns[i])
                plan.refresh()
    return plan

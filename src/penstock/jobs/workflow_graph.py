"""A fitted workflow's graph as plain data: boxes and arrows, for a drawing."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.core.schema import Schema
from penstock.etl import Workflow
from penstock.etl.plan import Plan
from penstock.report.words import folded, plural

_ORDER = ("label", "continuous", "categorical", "other")


def workflow_graph(workflow: Workflow) -> dict[str, Any]:
    """Nodes (`source`, `operator`, `choice`, `join`, `output`) and edges with the number of columns they carry.

    >>> from penstock import ops
    >>> workflow = Workflow(["user"] >> ops.Categorify())
    >>> _ = workflow.fit({"user": ["a", "b", "a"]})
    >>> graph = workflow_graph(workflow)
    >>> [(node["kind"], node["title"]) for node in graph["nodes"]]
    [('source', 'user'), ('operator', 'Categorify'), ('output', 'features')]
    >>> graph["edges"][0]
    {'from': 0, 'to': 1, 'columns': 1, 'kind': 'data'}
    """
    plan = Plan(workflow.output, workflow.input_schema)
    last = plan.nodes[plan.output]
    ends_in_join = last.kind == "join"
    shown = [i for i in range(len(plan.nodes)) if not (ends_in_join and i == plan.output)]
    number = {i: k for k, i in enumerate(shown)}
    nodes = [_node(plan, i) for i in shown]
    edges = []
    for i in shown:
        edges += [_edge(plan, number[p], number[i], p, "data") for p in plan.parents[i]]
        edges += [_edge(plan, number[d], number[i], d, "dependency") for d in plan.dependencies[i]]
    before = plan.parents[plan.output] if ends_in_join else (plan.output,)
    edges += [_edge(plan, number[p], len(nodes), p, "data") for p in before]
    schema = plan.schemas[plan.output]
    nodes.append(_box("output", "features", _roles(schema), schema.names, ""))
    return {"nodes": nodes, "edges": edges}


def _node(plan: Plan, i: int) -> dict[str, Any]:
    node, schema = plan.nodes[i], plan.schemas[i]
    names = list(plan.columns[i].names)
    if node.kind == "source":
        roles = {str(column.role) for column in schema}
        kind = roles.pop() if len(roles) == 1 else ""
        return _box("source", folded(names), plural(len(names), f"{kind} column".strip()), names, "")
    if node.operator is not None:
        arguments = repr(node.operator).partition("(")[2][:-1]
        new = Schema(c for c in schema if all(c != old for p in plan.parents[i] for old in plan.schemas[p]))
        return _box("operator", type(node.operator).__name__, _codes(new) or arguments, schema.names, arguments)
    if node.kind == "join":
        return _box("join", "join", plural(len(schema), "column"), schema.names, "")
    verb = "keep" if node.kind == "pick" else "drop"
    return _box("choice", f"{verb} {folded(names)}", plural(len(schema), "column"), schema.names, "")


def _box(kind: str, title: str, detail: str, columns: list[str], arguments: str) -> dict[str, Any]:
    return {"kind": kind, "title": title, "detail": detail, "columns": columns, "arguments": arguments}


def _edge(plan: Plan, source: int, target: int, carries: int, kind: str) -> dict[str, Any]:
    return {"from": source, "to": target, "columns": len(plan.schemas[carries]), "kind": kind}


def _codes(schema: Schema) -> str:
    """How many codes an operator has given, where it made categories."""
    sizes = [column.cardinality for column in schema if column.cardinality is not None]
    return f"{sum(sizes):,} codes" if sizes else ""


def _roles(schema: Schema) -> str:
    counts = Counter(str(column.role) for column in schema)
    return ", ".join(f"{counts[role]} {role}" for role in _ORDER if counts[role])

"""Recipes: an unfitted workflow as plain data, readable and writable as YAML, and the form that `save` stores.

    recipe: 1
    nodes:
      cats:  {columns: [C1, C2], ops: [{Categorify: {freq_threshold: 6}}]}
      conts: {columns: [I1, I2], ops: [FillMissing, {Clip: {min_value: 0}}, LogOp, Normalize]}
      label: {columns: [label]}
    output: [cats, conts, label]

A node takes `columns` of the raw data or comes `from` other nodes; `pick` and `drop` choose among the columns that
come in, `depends` names nodes whose columns an operator reads besides, and `ops` is a chain of operators.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from penstock.core.errors import GraphError, ParameterError, suggest
from penstock.core.yaml_files import read_yaml
from penstock.etl.arguments import parameter_names
from penstock.etl.graph import ColumnSelector, Node, ancestors, as_node
from penstock.etl.operator import Operator

RECIPE_VERSION = 1
_ATTACHED = "attached:"
_KEYS = ("recipe", "input", "nodes", "output")
_NODE_KEYS = ("columns", "from", "pick", "drop", "depends", "ops")


def to_recipe(output: Node, attached: dict[str, pl.DataFrame] | None = None) -> dict[str, Any]:
    """The graph as plain data. Tables that operators hold go into `attached`, and the recipe names them."""
    names = node_names(output)
    nodes: dict[str, Any] = {}
    for node in ancestors([output]):
        if names[id(node)] in nodes:  # the inside of a chain: its last node carries the name
            continue
        nodes[names[id(node)]] = None
    chains: dict[str, list[Node]] = {}
    for node in ancestors([output]):
        chains.setdefault(names[id(node)], []).append(node)
    for name, chain in chains.items():
        nodes[name] = _entry(chain, names, attached)
    last = ancestors([output])[-1]
    if last.kind == "join" and last.name is None and len(chains[names[id(last)]]) == 1:
        del nodes[names[id(last)]]
        return {"recipe": RECIPE_VERSION, "nodes": nodes, "output": [names[id(p)] for p in last.feeds]}
    return {"recipe": RECIPE_VERSION, "nodes": nodes, "output": [names[id(last)]]}


def _entry(chain: list[Node], names: dict[int, str], attached: dict[str, pl.DataFrame] | None) -> dict[str, Any]:
    head, ops = chain[0], [n for n in chain if n.operator is not None]
    entry: dict[str, Any] = {}
    if head.kind == "source":
        entry["columns"] = head.selector.to_recipe()  # type: ignore[union-attr]
    else:
        entry["from"] = [names[id(p)] for p in head.feeds]
        if head.kind in ("pick", "drop"):
            entry[head.kind] = head.selector.to_recipe()  # type: ignore[union-attr]
    depends = [names[id(d)] for n in ops for d in n.extras if not _is_raw(d, n.operator)]
    if depends:
        entry["depends"] = depends
    if ops:
        entry["ops"] = [_op_entry(n.operator, attached) for n in ops]  # type: ignore[arg-type]
    return entry


def _is_raw(dependency: Node, op: Operator | None) -> bool:
    """Whether the operator's own arguments name this dependency, so that the recipe need not."""
    return dependency.kind == "source" and any(isinstance(d, (str, list, ColumnSelector)) for d in op.dependencies())  # type: ignore[union-attr]


def _op_entry(op: Operator, attached: dict[str, pl.DataFrame] | None) -> Any:
    if attached is not None:
        for name, frame in op.frames().items():
            file = f"{len(attached)}.parquet"
            attached[file] = frame
            op = copy.copy(op)
            setattr(op, name, _ATTACHED + file)
    params = op.recipe_params()
    return {operator_name(op): params} if params else operator_name(op)


def with_attached(data: Any, read: Callable[[str], pl.DataFrame]) -> Any:
    """A recipe with the tables that it names in the place of their names.

    >>> with_attached({"JoinExternal": {"df_ext": "attached:0.parquet", "on": "k"}}, lambda file: f"<{file}>")
    {'JoinExternal': {'df_ext': '<0.parquet>', 'on': 'k'}}
    """
    if isinstance(data, Mapping):
        return {key: with_attached(value, read) for key, value in data.items()}
    if isinstance(data, list):
        return [with_attached(value, read) for value in data]
    is_name = isinstance(data, str) and data.startswith(_ATTACHED)
    return read(data.removeprefix(_ATTACHED)) if is_name else data


def node_names(output: Node) -> dict[int, str]:
    """A name for each node; a chain of operators with one reader each shares the name of its last node."""
    order = ancestors([output])
    readers: dict[int, list[Node]] = {}
    for node in order:
        for parent in (*node.feeds, *node.extras):
            readers.setdefault(id(parent), []).append(node)
    names: dict[int, str] = {}
    used = {n.name for n in order if n.name}
    for node in reversed(order):
        reader = readers.get(id(node), [])
        follows = len(reader) == 1 and reader[0].kind == "apply" and node in reader[0].feeds and node.name is None
        if follows and (node.kind == "source" or node.kind in ("apply", "pick", "drop", "join")):
            names[id(node)] = names[id(reader[0])]
        else:
            names[id(node)] = node.name or _fresh(node, used)
    return names


def _fresh(node: Node, used: set[str]) -> str:
    base = (
        operator_name(node.operator).lower().replace(".", "_").replace(":", "_")
        if node.operator is not None
        else node.kind
    )
    name, number = base, 1
    while name in used:
        number += 1
        name = f"{base}_{number}"
    used.add(name)
    return name


def from_recipe(data: Mapping[str, Any]) -> Node:
    """The graph that plain data describes."""
    if not isinstance(data, Mapping) or data.get("recipe") != RECIPE_VERSION:
        found = data.get("recipe") if isinstance(data, Mapping) else type(data).__name__
        raise ParameterError(f"a recipe starts with 'recipe: {RECIPE_VERSION}', got {found!r}")
    for key in data:
        if key not in _KEYS:
            raise ParameterError(f"unknown key {key!r} in the recipe{suggest(str(key), _KEYS, 'keys')}")
    entries = data.get("nodes")
    if not isinstance(entries, Mapping) or not entries:
        raise ParameterError("a recipe needs nodes: {name: {columns: […], ops: […]}}")
    built: dict[str, Node] = {}
    for name in entries:
        _build(str(name), entries, built, ())
    output = data.get("output") or list(entries)
    wanted = [output] if isinstance(output, str) else list(output)
    for name in wanted:
        if name not in built:
            raise ParameterError(f"output {name!r} is not a node{suggest(str(name), built, 'nodes')}")
    return built[wanted[0]] if len(wanted) == 1 else Node("join", [built[n] for n in wanted])


def _build(name: str, entries: Mapping[str, Any], built: dict[str, Node], path: tuple[str, ...]) -> Node:
    if name in built:
        return built[name]
    if name not in entries:
        raise ParameterError(f"node {path[-1] if path else '?'!r} comes from {name!r}{suggest(name, entries, 'nodes')}")
    if name in path:
        raise GraphError(f"the recipe's nodes go in a circle: {' → '.join((*path, name))}")
    entry = entries[name]
    if not isinstance(entry, Mapping):
        raise ParameterError(f"node {name!r} must be a mapping with columns or from, got {entry!r}")
    for key in entry:
        if key not in _NODE_KEYS:
            raise ParameterError(f"unknown key {key!r} in node {name!r}{suggest(str(key), _NODE_KEYS, 'keys')}")
    if ("columns" in entry) == ("from" in entry):
        both = " and not both; columns of what it comes from are chosen by pick" if "from" in entry else ""
        raise ParameterError(f"node {name!r} needs either columns or from{both}")
    if "columns" in entry:
        node = as_node(ColumnSelector.from_recipe(entry["columns"]))
    else:
        origins = [entry["from"]] if isinstance(entry["from"], str) else entry["from"]
        parents = [_build(str(p), entries, built, (*path, name)) for p in origins]
        node = parents[0] if len(parents) == 1 else Node("join", parents)
    if "pick" in entry:
        node = node[ColumnSelector.from_recipe(entry["pick"])]
    if "drop" in entry:
        node = node - ColumnSelector.from_recipe(entry["drop"])
    extra = [_build(str(d), entries, built, (*path, name)) for d in entry.get("depends", ())]
    for item in entry.get("ops", ()):
        node = node >> _operator(item, name)
        if extra:
            node = Node("apply", node.feeds, operator=node.operator, extras=[*node.extras, *extra])
    if node.name is None:
        node.name = name
    built[name] = node
    return node


def _operator(item: Any, node: str) -> Operator:
    params: Mapping[str, Any] = {}
    if isinstance(item, str):
        name = item
    elif isinstance(item, Mapping) and len(item) == 1:
        name, params = next(iter(item.items()))
        params = {} if params is None else params
    else:
        raise ParameterError(f"an operator of node {node!r} must be a name or {{name: arguments}}, got {item!r}")
    kind = operator_class(str(name))
    if not isinstance(params, Mapping):  # `Split: "|"` gives the first argument
        arguments = parameter_names(kind)
        if not arguments:
            raise ParameterError(f"{name} in node {node!r} takes no arguments, got {params!r}")
        params = {arguments[0]: params}
    return kind.from_recipe(params)


def operator_name(op: Operator) -> str:
    """`Categorify` for our own, `package.module:Class` for a user's."""
    cls = op.recipe_class()
    from penstock.etl import ops

    if getattr(ops, cls.__name__, None) is cls:
        return str(cls.__name__)
    return f"{cls.__module__}:{cls.__qualname__}"


def operator_class(name: str) -> type[Operator]:
    """The class that a recipe names; a user's class must be importable."""
    from penstock.etl import ops
    from penstock.etl.references import resolve_reference

    if ":" in name:
        cls = resolve_reference(name, Operator)
    else:
        cls = getattr(ops, name, None) if name in ops.__all__ else None
        if cls is None:
            known = [n for n in ops.__all__ if isinstance(getattr(ops, n), type)]
            raise ParameterError(f"unknown operator {name!r}{suggest(name, known, 'operators')}")
    if not (isinstance(cls, type) and issubclass(cls, Operator)):
        raise ParameterError(f"{name!r} is not an operator class")
    return cls


def read_recipe(path: str | Path) -> dict[str, Any]:
    """A recipe from a YAML file."""
    return read_yaml(path, "write a recipe with workflow.to_yaml(path)")

"""The graph a workflow runs: `["a", "b"] >> Op() >> Op()`, `+` joins branches, `-` and `[…]` choose columns."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.core.errors import GraphError, ParameterError
from penstock.core.schema import ColumnSchema, Role, Schema  # noqa: F401 (the doctest's)
from penstock.etl.fitted_operator import FittedOperator
from penstock.etl.operator import Columns, Operator


class ColumnSelector:
    """Columns by name (nested lists make groups), by tag, by role, or all of them.

    Args:
        names: columns, or groups of them.
        tags: columns with one of these.
        roles: columns with one of these.
        everything: all columns.

    >>> schema = Schema(ColumnSchema(name, "int8") for name in "abc")
    >>> ColumnSelector(["a", ["b", "c"]]).resolve(schema).groups
    (('a',), ('b', 'c'))
    """

    def __init__(
        self,
        names: str | Sequence[Any] = (),
        *,
        tags: str | Iterable[str] | None = None,
        roles: Role | str | Iterable[Role | str] | None = None,
        everything: bool = False,
    ) -> None:
        self.groups = tuple(_group(n) for n in ([names] if isinstance(names, str) else names))
        self.tags = _listed(tags)
        self.roles = _listed(roles)
        self.everything = everything
        if not (self.groups or self.tags or self.roles or everything):
            raise ParameterError("a ColumnSelector needs names, tags, roles or everything=True")

    def resolve(self, schema: Schema) -> Columns:
        """The columns meant, once the schema is known.

        Args:
            schema: of the data.

        Returns:
            The columns, in groups.

        Raises:
            ColumnNotFoundError: a name is not in the schema.
        """
        groups = list(self.groups)
        taken = {schema[name].name for group in groups for name in group}
        if self.everything:
            matched = schema.names
        else:
            matched = []
            if self.tags:
                matched += schema.select(tags=self.tags).names
            if self.roles:
                matched += schema.select(roles=self.roles).names
        groups += [(name,) for name in dict.fromkeys(matched) if name not in taken]
        return Columns(tuple(groups))

    def __rshift__(self, op: Any) -> Node:
        node: Node = Node.source(self) >> op
        return node

    def __add__(self, other: Any) -> Node:
        node: Node = Node.source(self) + other
        return node

    def __radd__(self, other: Any) -> Node:
        return as_node(other) + self

    def __sub__(self, names: Any) -> Node:
        node: Node = Node.source(self) - names
        return node

    def to_recipe(self) -> Any:
        """The short form (a list) where only names are given.

        Returns:
            A list, or a mapping of what is selected by.
        """
        names = [group[0] if len(group) == 1 else list(group) for group in self.groups]
        if not (self.tags or self.roles or self.everything):
            return names
        out: dict[str, Any] = {}
        if names:
            out["names"] = names
        if self.tags:
            out["tags"] = list(self.tags)
        if self.roles:
            out["roles"] = list(self.roles)
        if self.everything:
            out["everything"] = True
        return out

    @classmethod
    def from_recipe(cls, data: str | Sequence[str] | Mapping[str, Any]) -> ColumnSelector:
        """A selector from plain data.

        Args:
            data: what `to_recipe` gave.

        Returns:
            The selector.
        """
        if isinstance(data, Mapping):
            return cls(**data)
        return cls(data)

    def __repr__(self) -> str:
        return f"ColumnSelector({self.to_recipe()!r})"


class Node:
    """One step of the graph; made by the operators `>>`, `+`, `-` and `[…]`, not by hand.

    `kind` is `source` (columns of the raw data), `apply` (an operator), `join` (branches side by side), `pick` or
    `drop` (a choice of the columns that come in). `feeds` are the nodes whose columns come in, `extras` those whose
    columns the operator reads besides.
    """

    def __init__(
        self,
        kind: str,
        feeds: Sequence[Node] = (),
        *,
        operator: Operator | None = None,
        selector: ColumnSelector | None = None,
        extras: Sequence[Node] = (),
        name: str | None = None,
        optional: bool = False,
    ) -> None:
        self.optional = optional  # a source that may be absent: the reader's other inputs may hold the column
        self.kind, self.feeds, self.operator, self.selector = kind, list(feeds), operator, selector
        self.extras = tuple(extras)
        self.name = name
        self.domain = self._row_domain()

    def _row_domain(self) -> Any:
        """Which rows this node's columns have: nodes of different domains cannot stand side by side."""
        if self.operator is not None and self.operator.changes_rows:
            self._same_rows()
            return self
        return self._same_rows()

    def _same_rows(self) -> Any:
        domains = {id(p.domain): p.domain for p in (*self.feeds, *self.extras)}
        if len(domains) > 1:
            changing = [d for d in domains.values() if isinstance(d, Node)]
            names = " and ".join(repr(d.operator) for d in changing)
            raise GraphError(
                f"{names} changes the rows, so its columns cannot be joined with columns from before it; "
                f"put every column that is needed later through it: (all_columns >> {names})[...]"
            )
        return next(iter(domains.values()), None)

    @staticmethod
    def source(selector: ColumnSelector) -> Node:
        return Node("source", selector=selector)

    @property
    def fitted_op(self) -> FittedOperator | None:
        return self.operator if isinstance(self.operator, FittedOperator) else None

    # Building.

    def __rshift__(self, op: Any) -> Node:
        if isinstance(op, type) and issubclass(op, Operator):
            op = op()
        if not isinstance(op, Operator):
            if not callable(op):
                raise GraphError(f"the right side of >> must be an operator or a function, got {op!r}")
            from penstock.etl.ops.custom import LambdaOp

            op = LambdaOp(op)
        if getattr(op, "_in_graph", False):
            op = copy.copy(op)  # one operator in two places learns two things
        op._in_graph = True
        # Where rows were filtered or grouped before, raw columns no longer line up: the inputs must hold what is named.
        named = [d for d in op.dependencies() if self.domain is None or not isinstance(d, str)]
        return Node("apply", [self], operator=op, extras=[_dependency(d) for d in named])

    def __add__(self, other: Any) -> Node:
        mine = self.feeds if self.kind == "join" and self.name is None else (self,)
        other = as_node(other)
        theirs = other.feeds if other.kind == "join" and other.name is None else (other,)
        return Node("join", [*mine, *theirs])

    def __radd__(self, other: Any) -> Node:
        return as_node(other) + self

    def __sub__(self, names: Any) -> Node:
        return Node("drop", [self], selector=_selector(names))

    def __getitem__(self, names: Any) -> Node:
        return Node("pick", [self], selector=_selector(list(names) if isinstance(names, tuple) else names))

    def named(self, name: str) -> Node:
        """Give this node a name, for recipes and `workflow.get_subworkflow(name)`."""
        self.name = name
        return self

    # What it will deliver.

    def columns(self, inputs: Schema) -> Columns:
        """The columns that the operator, choice or source of this node works on; `inputs` is the parents' schema."""
        if self.kind in ("source", "pick", "drop"):
            assert self.selector is not None
            if self.optional and not all(name in inputs for group in self.selector.groups for name in group):
                return Columns(())
            return self.selector.resolve(inputs)
        return Columns(_groups_of(self, inputs))

    def schema_of(self, inputs: Schema, dependencies: Schema) -> Schema:
        """The schema of this node's columns."""
        columns = self.columns(inputs)
        if self.kind in ("source", "pick"):
            return inputs.select(columns.names)
        if self.kind == "drop":
            return inputs.without(columns.names)
        if self.kind == "join":
            return inputs
        assert self.operator is not None
        extra = [c for c in dependencies if c.name not in inputs]
        made = self.operator.output_schema(inputs + Schema(extra), columns)
        return _labels_kept(made, inputs, self.operator.origins(columns))

    def __repr__(self) -> str:
        label = f" {self.name!r}" if self.name else ""
        return f"<Node{label} {self.operator if self.operator is not None else self.kind}>"


def _labels_kept(made: Schema, inputs: Schema, origins: Mapping[str, str]) -> Schema:
    """A label stays one, whatever an operator makes of its values: else a model would read what it is to predict."""
    labels = set(inputs.select(roles=Role.LABEL).names)
    if not labels:
        return made
    return Schema(
        column.with_(role=Role.LABEL, cardinality=None)
        if column.role is not Role.LABEL and origins.get(column.name, column.name) in labels
        else column
        for column in made
    )


def _groups_of(node: Node, inputs: Schema) -> tuple[tuple[str, ...], ...]:
    """Groups survive operators that keep names, so `[["a", "b"]] >> FillMissing() >> Categorify()` works."""
    if len(node.feeds) == 1 and node.feeds[0].kind == "source":
        return node.feeds[0].columns(inputs).groups  # exactly as written
    groups: dict[tuple[str, ...], None] = {}
    alone: set[str] = set()
    pending = list(node.feeds)
    while pending:
        parent = pending.pop(0)
        if parent.selector is not None and parent.kind != "drop":
            found = [g for g in parent.selector.groups if len(g) > 1 and all(n in inputs for n in g)]
            groups |= dict.fromkeys(found)
            # A name that stands alone beside a group with it is meant twice: `["a", ["a", "b"]]`.
            alone |= {g[0] for g in parent.selector.groups if len(g) == 1 and any(g[0] in other for other in found)}
        pending += parent.feeds
    grouped = {name for group in groups for name in group}
    out: list[tuple[str, ...]] = []
    for name in inputs.names:
        if name in alone or name not in grouped:
            out.append((name,))
        out += [group for group in groups if group[0] == name]
    return tuple(out)


def as_node(value: Any) -> Node:
    """A node from whatever may stand in a graph: a node, a selector, a name, or a list of names, nodes and groups."""
    if isinstance(value, Node):
        return value
    if isinstance(value, ColumnSelector):
        return Node.source(value)
    if isinstance(value, str):
        return Node.source(ColumnSelector([value]))
    if isinstance(value, (list, tuple)):
        if any(isinstance(v, (Node, ColumnSelector)) for v in value):
            nodes = [as_node(v) for v in value]
            return nodes[0] if len(nodes) == 1 else Node("join", nodes)
        if value:
            return Node.source(ColumnSelector(value))
    raise GraphError(f"expected column names, a ColumnSelector or a node, got {value!r}")


def _dependency(value: Any) -> Node:
    """A dependency given by name may also come from the inputs, so the raw data need not have it."""
    if isinstance(value, str):
        return Node("source", selector=ColumnSelector([value]), optional=True)
    return as_node(value)


def ancestors(outputs: Sequence[Node]) -> list[Node]:
    """Every node that `outputs` need, parents first, each once."""
    order: list[Node] = []
    seen: set[int] = set()

    def visit(node: Node) -> Iterator[Node]:
        stack: list[tuple[Node, bool]] = [(node, False)]
        while stack:
            current, ready = stack.pop()
            if ready:
                yield current
            elif id(current) not in seen:
                seen.add(id(current))
                stack.append((current, True))
                stack.extend((p, False) for p in reversed((*current.feeds, *current.extras)))

    for output in outputs:
        order.extend(visit(output))
    return order


def rebuilt(output: Node, change: Callable[[Node, list[Node], list[Node]], Node | None]) -> Node | None:
    """A copy of the graph in which `change(node, parents, dependencies)` gives each node anew; None removes it."""
    done: dict[int, Node | None] = {}
    for node in ancestors([output]):
        parents = [done[id(p)] for p in node.feeds]
        dependencies = [done[id(d)] for d in node.extras]
        kept = [p for p in parents if p is not None]
        lost = len(kept) < len(parents) if node.kind != "join" else not kept
        needed = node.operator is None or not node.operator.fit_only_dependencies
        if lost or (needed and None in dependencies):
            done[id(node)] = None
        else:
            done[id(node)] = change(node, kept, [d for d in dependencies if d is not None])
    return done[id(output)]


def without_inputs(output: Node, schema: Schema, names: Sequence[str]) -> Node | None:
    """A copy of the graph without some raw columns and all that depends on them; None where nothing is left."""
    gone = set(names)

    def change(node: Node, parents: list[Node], dependencies: list[Node]) -> Node | None:
        if node.kind == "source":
            left = [list(g) if len(g) > 1 else g[0] for g in node.columns(schema).groups if not gone & set(g)]
            return as_node(left) if left else None
        return Node(
            node.kind,
            parents,
            operator=node.operator,
            selector=node.selector,
            extras=dependencies,
            name=node.name,
        )

    return rebuilt(output, change)


def _selector(names: Any) -> ColumnSelector:
    return names if isinstance(names, ColumnSelector) else ColumnSelector(names)


def _group(item: Any) -> tuple[str, ...]:
    if isinstance(item, str):
        return (item,)
    if isinstance(item, (list, tuple)) and item and all(isinstance(n, str) for n in item):
        return tuple(item)
    hint = ""
    if isinstance(item, (bool, int, float)):
        hint = "; YAML reads on, off, yes and no as true and false, and digits as numbers: put such a name in quotes"
    raise ParameterError(f"column names must be strings or lists of strings, got {item!r}{hint}")


def _listed(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return (str(value),) if isinstance(value, str) else tuple(str(v) for v in value)

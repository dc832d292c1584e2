"""ColumnSelector, as Merlin wrote it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.compat.merlin.schema import Schema
from penstock.compat.merlin.schema.tags import Tags, listed, roles_and_tags
from penstock.compat.missing import CompatTypeError
from penstock.core.errors import ParameterError
from penstock.core.schema import Schema as NativeSchema
from penstock.etl import graph as native
from penstock.etl.operator import Columns

if TYPE_CHECKING:
    from penstock.compat.merlin.dag.node import Node

__all__ = ["ColumnSelector"]


class ColumnSelector:
    """Columns by name (nested lists make groups), by tag, or all of them (`"*"`).

    >>> selector = ColumnSelector(["a", ["b", "c"]])
    >>> selector.names, selector.grouped_names
    (['a', 'b', 'c'], ['a', ('b', 'c')])
    >>> (ColumnSelector("a") + "d").names
    ['a', 'd']
    """

    def __init__(self, names: Any = None, subgroups: Any = None, tags: Any = None) -> None:
        self.all = isinstance(names, str) and names == "*"
        self._names: list[str] = []
        self.subgroups: list[ColumnSelector] = [] if self.all else _listed_groups(subgroups)
        self.tags: list[Tags | str] = [] if self.all else list(dict.fromkeys(listed(tags)))
        if isinstance(names, native.Node):
            raise CompatTypeError("a ColumnSelector takes names, not a Node; join nodes with +")
        for name in [] if self.all or names is None else [names] if isinstance(names, str) else names:
            if isinstance(name, str):
                self._names.append(name)
            elif isinstance(name, ColumnSelector):
                self.subgroups.append(name)
            elif isinstance(name, (list, tuple)):
                self.subgroups.append(ColumnSelector(name))
            elif isinstance(name, native.Node):
                raise ParameterError("a ColumnSelector takes names, not a Node; join nodes with +")
            else:
                raise CompatTypeError(f"a ColumnSelector takes names and lists of names, got {name!r}")
        if any(group.subgroups for group in self.subgroups):
            raise NestedGroupsError("Too many levels of groups: a group of columns cannot hold further groups")

    @property
    def names(self) -> list[str]:
        """All names, each once."""
        return list(dict.fromkeys([*self._names, *(n for group in self.subgroups for n in group.names)]))

    @property
    def grouped_names(self) -> list[str | tuple[str, ...]]:
        """Names that stand alone, and groups as tuples."""
        return list(dict.fromkeys([*self._names, *(tuple(group.names) for group in self.subgroups)]))

    def resolve(self, schema: Schema) -> ColumnSelector:
        """The same columns by name, once a schema is known."""
        if self.all:
            return ColumnSelector(schema.column_names)
        found = schema.select(ColumnSelector(self._names, tags=self.tags)).column_names
        return ColumnSelector(found, [group.resolve(schema) for group in self.subgroups])

    def filter_columns(self, other_selector: ColumnSelector) -> ColumnSelector:
        """What is left without another selector's columns."""
        if self.all:
            return other_selector
        gone = set(other_selector.names)
        groups = [group for group in self.subgroups if not gone & set(group.names)]
        return ColumnSelector([n for n in self._names if n not in gone], groups)

    def to_native(self) -> native.ColumnSelector:
        """Penstock's selector: tags that stand for a role select by it."""
        if not self:
            raise ParameterError("the ColumnSelector is empty; name columns or tags")
        roles, tags = roles_and_tags(self.tags)
        names = [n if isinstance(n, str) else list(n) for n in self.grouped_names]
        return NamedSelector(names, tags=tags or None, roles=roles or None, everything=self.all)

    def _node(self) -> Node:
        from penstock.compat.merlin.dag.node import as_node

        return as_node(self)

    def __rshift__(self, operator: Any) -> Node:
        return self._node() >> operator

    def __add__(self, other: Any) -> Any:
        if other is None or (self.all and not isinstance(other, native.Node)):
            return self
        if isinstance(other, native.Node):
            return other + self
        if isinstance(other, Tags):
            return ColumnSelector(self._names, self.subgroups, [*self.tags, other])
        other = other if isinstance(other, ColumnSelector) else ColumnSelector(other)
        if other.all:
            return other
        return ColumnSelector(
            [*self._names, *other._names], [*self.subgroups, *other.subgroups], [*self.tags, *other.tags]
        )

    def __radd__(self, other: Any) -> Any:
        return self + other

    def __sub__(self, other: Any) -> Node:
        return self._node() - other

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ColumnSelector):
            return False
        return (self.all and other.all) or (self._names, self.subgroups) == (other._names, other.subgroups)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self.all or self._names or self.subgroups or self.tags)

    def __repr__(self) -> str:
        return f"ColumnSelector({'*' if self.all else self.grouped_names!r})"


class NestedGroupsError(ParameterError, AttributeError):
    """Groups inside groups; Merlin raised an `AttributeError`."""


class NamedSelector(native.ColumnSelector):
    """Penstock's selector of a node, which also tells its names as Merlin's does.

    >>> NamedSelector(["a", ["b", "c"]]).names
    ['a', 'b', 'c']
    """

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(name for group in self.groups for name in group))

    @property
    def grouped_names(self) -> list[str | tuple[str, ...]]:
        return [group[0] if len(group) == 1 else group for group in self.groups]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ColumnSelector):
            other = other.to_native() if other else EmptySelector()
        return isinstance(other, native.ColumnSelector) and self.to_recipe() == other.to_recipe()

    __hash__ = None  # type: ignore[assignment]


class EmptySelector(NamedSelector):
    """No columns: what a node selects that was made of an empty list.

    >>> EmptySelector() == ColumnSelector([]), EmptySelector().names
    (True, [])
    """

    def __init__(self) -> None:
        self.groups, self.tags, self.roles, self.everything = (), (), (), False

    def __bool__(self) -> bool:
        return False


class FoundNames(EmptySelector):
    """The columns of a step that selects none itself: looked for when somebody asks, nothing to whoever plans it.

    >>> FoundNames(lambda: ["a"]).names, FoundNames(lambda: ["a"]) == ColumnSelector("a"), FoundNames(list).groups
    (['a'], True, ())
    """

    def __init__(self, find: Callable[[], list[str]]) -> None:
        super().__init__()
        self._find = find

    @property
    def names(self) -> list[str]:
        return self._find()

    @property
    def grouped_names(self) -> list[str | tuple[str, ...]]:
        return list(self._find())

    def __eq__(self, other: object) -> bool:
        return list(getattr(other, "names", ())) == self.names

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self.names)

    def __reduce__(self) -> Any:
        return EmptySelector, ()  # what a worker needs of it


class DroppedColumns(NamedSelector):
    """Columns that are left out; one that is not there need not be.

    >>> from penstock import ColumnSchema, Schema
    >>> DroppedColumns(["a", "b"]).resolve(Schema([ColumnSchema("a", "int8")])).names
    ('a',)
    """

    def resolve(self, schema: NativeSchema) -> Columns:
        present = [tuple(n for n in group if n in schema) for group in self.groups]
        tagged = schema.select(tags=self.tags).names if self.tags else []
        tagged += schema.select(roles=self.roles).names if self.roles else []
        tagged += schema.names if self.everything else []
        return Columns(tuple(group for group in [*present, *((n,) for n in tagged)] if group))


class ColumnNames(list):
    """What a user's operator is told of its columns: a list of names, as releases up to 0.6 gave it, and a selector.

    >>> columns = ColumnNames(["a", ("b", "c")])
    >>> list(columns), columns.names, columns.grouped_names
    (['a', 'b', 'c'], ['a', 'b', 'c'], ['a', ('b', 'c')])
    """

    def __init__(self, groups: Sequence[Any]) -> None:
        self.selector = ColumnSelector([g if isinstance(g, str) else list(g) for g in groups])
        super().__init__(self.selector.names)

    @property
    def names(self) -> list[str]:
        return self.selector.names

    @property
    def grouped_names(self) -> list:
        return self.selector.grouped_names

    @property
    def subgroups(self) -> list[ColumnSelector]:
        return self.selector.subgroups


def _listed_groups(subgroups: Any) -> list[ColumnSelector]:
    groups = [subgroups] if isinstance(subgroups, ColumnSelector) else list(subgroups or [])
    return [group if isinstance(group, ColumnSelector) else ColumnSelector(group) for group in groups]

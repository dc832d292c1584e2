"""Operators that rename columns or say something of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from penstock.compat.merlin.schema.tags import ROLE_TAGS, as_tag, listed, role_of, text_of
from penstock.compat.missing import CompatRuntimeError
from penstock.compat.nvtabular.ops import Placed
from penstock.core.errors import ParameterError
from penstock.core.params import NONE, Instance, check
from penstock.etl import ops as native
from penstock.etl.operator import Columns, Operator

# Other names for columns; a workflow saves the names that a function gave, and not the function.


class Rename(Placed, native.Rename):
    """Rename columns by one of: a function of the name, a postfix, a name for a single column, or names by column.

    >>> import pandas as pd
    >>> from penstock.compat.nvtabular import Workflow
    >>> Workflow(["a1"] >> Rename(f=lambda name: name[1:])).transform(pd.DataFrame({"a1": [7]}))["1"].tolist()
    [7]
    """

    names: dict[str, str] | None = None
    _given: Mapping[str, str] = MappingProxyType({})  # what the function gave

    def __init__(
        self,
        f: Callable[[str], str] | None = None,
        postfix: str | None = None,
        name: str | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.names = None if names is None else dict(names)
        super().__init__(f, postfix, name)

    def check_params(self) -> None:
        check("Rename.names", self.names, Instance(dict, "a mapping of names") | NONE)
        if self.names is None:
            super().check_params()
        elif any(given is not None for given in (self.f, self.postfix, self.name)):
            raise ParameterError("Rename takes exactly one of f, postfix, name and names")

    @classmethod
    def recipe_class(cls) -> type[Operator]:
        return cls

    def _names(self, columns: Columns) -> dict[str, str]:
        if self.names is not None:
            return {name: self.names.get(name, name) for name in columns.names}
        if self.name is not None and len(columns.names) != 1:
            raise CompatRuntimeError(f"Rename(name={self.name!r}) renames one column, got {list(columns.names)}")
        given = super()._names(columns)
        self._given = {**self._given, **given}
        return given

    def recipe_params(self) -> dict[str, Any]:
        if self.f is not None and self._given:
            return {"names": dict(self._given)}
        return super().recipe_params()


# Tags and properties; tags that stand for a role (categorical, continuous, target) give it.


class AddMetadata(Placed, native.AddMetadata):
    """Add tags (texts or `Tags`) and properties to the columns' schema.

    >>> from penstock.compat.merlin.schema import Tags
    >>> op = AddMetadata(tags=[Tags.TARGET, Tags.BINARY_CLASSIFICATION, "clicks"])
    >>> op.tags, op.role
    (['binary_classification', 'clicks'], <Role.LABEL: 'label'>)
    """

    def __init__(self, tags: Any = None, properties: Mapping[str, Any] | None = None) -> None:
        given = listed(tags)
        plain = [text_of(tag) for tag in given if as_tag(tag) not in ROLE_TAGS.values()]
        super().__init__(plain, dict(properties or {}), role_of(given))


class AddTags(AddMetadata):
    """Add tags.

    >>> AddTags("user").tags
    ['user']
    """

    def __init__(self, tags: Any = None) -> None:
        super().__init__(tags=tags)


class AddProperties(AddMetadata):
    """Add properties.

    >>> AddProperties({"unit": "EUR"}).properties
    {'unit': 'EUR'}
    """

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        super().__init__(properties=properties)

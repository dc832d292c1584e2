"""Other names for columns; a workflow saves the names that a function gave, and not the function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from penstock.compat.nvtabular.ops.placed import Placed
from penstock.core.errors import ParameterError
from penstock.core.params import NONE, Instance, check
from penstock.etl import ops as native
from penstock.etl.operator import Columns, Operator


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
        given = super()._names(columns)
        self._given = {**self._given, **given}
        return given

    def recipe_params(self) -> dict[str, Any]:
        if self.f is not None and self._given:
            return {"names": dict(self._given)}
        return super().recipe_params()

"""Code that a workflow cannot save: old scripts save workflows with lambdas in them, by pickle.

Here the rest of such a workflow is saved: its graph, schemas, vocabularies and statistics, which is what training asks
for. Only transforming rows needs the function, and says so. A program that loads what it saved itself gets its own
functions back: the file holds a number under which this process, and no other, knows them.
"""

from __future__ import annotations

import copy
import uuid
import warnings
from collections.abc import Mapping
from typing import Any, NoReturn

from penstock.compat.merlin.dag.base_operator import BaseOperator
from penstock.compat.missing import CompatError
from penstock.core.errors import ParameterError
from penstock.etl.references import reference_to
from penstock.etl.trust import harmless

_WHY = "a saved workflow holds data, never code"
_HOW = "define it with def in a module that can be imported, and fit and save the workflow again"


@harmless
def unsaved(*_: Any) -> NoReturn:
    """Stands where a function was."""
    raise CompatError(f"this workflow was saved without the function of one of its operators: {_WHY}; {_HOW}")


class UnsavedOperator(BaseOperator):
    """Stands where a user's operator was."""

    def transform(self, col_selector: Any, df: Any) -> NoReturn:
        unsaved()


class KeepsFunction:
    """Mixin of operators with a function `f`: one that cannot be named is left out of what is saved, with a warning."""

    f: Any

    @classmethod
    def recipe_class(cls) -> type:
        return cls  # the function is one of pandas, which the native operator would give polars

    def recipe_params(self) -> dict[str, Any]:
        saved = copy.copy(self)
        saved.f = nameable(self.f, unsaved)
        return {**super(KeepsFunction, saved).recipe_params(), KEPT: keep(self.f)}  # type: ignore[misc]

    @classmethod
    def from_recipe(cls, params: Mapping[str, Any]) -> Any:
        known = dict(params)
        function = kept(known.pop(KEPT, None))
        if function is None:
            return super().from_recipe(known)  # type: ignore[misc]
        made = super().from_recipe({**known, "f": _NAMEABLE})  # type: ignore[misc]
        made.f = function
        return made


_NAMEABLE = f"{__name__}:unsaved"
KEPT = "kept"
_kept: dict[str, Any] = {}


def keep(code: Any) -> str:
    """A number under which this process finds its own function or operator again."""
    number = uuid.uuid4().hex
    _kept[number] = code
    return number


def kept(number: Any) -> Any:
    """What this process kept under a number; None where another process wrote it.

    >>> kept(keep(len)) is len, kept("elsewhere") is None
    (True, True)
    """
    return _kept.get(number) if isinstance(number, str) else None


def nameable(code: Any, stand_in: Any) -> Any:
    """`code` where a saved workflow can name it, else the stand-in.

    >>> nameable(len, unsaved) is len
    True
    """
    try:
        reference_to(code)
    except ParameterError as error:
        place = getattr(code, "__code__", None)
        where = f" ({place.co_filename}:{place.co_firstlineno})" if place is not None else ""
        warnings.warn(
            f"{error}{where}; the workflow is saved without it: other processes can load schemas, vocabularies and "
            f"statistics, but they cannot transform rows then",
            UserWarning,
            stacklevel=2,
        )
        return stand_in
    return code

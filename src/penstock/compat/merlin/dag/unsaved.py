"""Code that a workflow cannot save: old scripts save workflows with lambdas in them, by pickle.

Here the rest of such a workflow is saved: its graph, schemas, vocabularies and statistics, which is what training asks
for. Only transforming rows needs the function, and says so.
"""

from __future__ import annotations

import copy
import warnings
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
        kept = copy.copy(self)
        kept.f = nameable(self.f, unsaved)
        return super(KeepsFunction, kept).recipe_params()  # type: ignore[misc]


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
            f"{error}{where}; the workflow is saved without it: schemas, vocabularies and statistics can be loaded, "
            f"but it cannot transform rows then",
            UserWarning,
            stacklevel=2,
        )
        return stand_in
    return code

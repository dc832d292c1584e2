"""Functions and classes saved by reference (`package.module:name`), never as code."""

from __future__ import annotations

import importlib
import io
import json
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from penstock.core.errors import ParameterError
from penstock.etl.trust import check_found, check_module, is_loading


def reference_to(function: Callable[..., Any]) -> str:
    """`"module:name"` of something importable, or an error that says why it is not.

    >>> reference_to(len)
    'builtins:len'
    >>> reference_to(lambda x: x)
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: a lambda cannot be saved: ... define it with def in an importable module
    """
    owner = getattr(function, "__objclass__", function)  # methods of built-in types know their class only
    module, name = getattr(owner, "__module__", None), getattr(function, "__qualname__", "")
    if "<lambda>" in name:
        raise ParameterError(
            "a lambda cannot be saved: it has no name to import; define it with def in an importable module"
        )
    if not module or not name or "<locals>" in name:
        raise ParameterError(f"{function!r} cannot be saved: it is not importable by name; define it at module level")
    if module == "__main__":
        raise ParameterError(
            f"{name} cannot be saved: it lives in the script itself (__main__); move it to an importable module"
        )
    reference = f"{module}:{name}"
    check_module(reference)
    if resolve_reference(reference, named_by="the workflow") is not function:
        raise ParameterError(f"{function!r} cannot be saved: {reference} is something else")
    return reference


def resolve_reference(reference: str, own_kind: type | None = None, named_by: str | None = None) -> Any:
    """What a reference names.

    Args:
        reference: `"module:name"`.
        own_kind: the base of the classes of Penstock's own that a saved workflow may name here.
        named_by: the setting that names it, for the error; by default the recipe or the saved workflow being read.

    Returns:
        The function or class.

    Raises:
        ParameterError: there is no such thing.
        ArtefactError: a saved workflow names it, and it is not trusted (see `penstock.etl.trust`).
    """
    check_module(reference)
    module, colon, name = reference.partition(":")
    named_by = named_by or ("the saved workflow" if is_loading() else "the recipe")
    if not (module and colon and name):
        raise ParameterError(f"{named_by} names {reference!r}; write package.module:name")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ParameterError(f"cannot find {reference!r}, which {named_by} refers to: {error}") from error
    check_found(reference, found, own_kind)
    return found


# What a polars expression must not contain to be written or read: Python code (stored as pickle) and native plugins.
_CODE = ("anonymous", "python", "plugin", "subplan")


def expression_to_recipe(expression: pl.Expr) -> dict[str, Any]:
    """A polars expression as plain data.

    >>> restored = expression_from_recipe(expression_to_recipe(pl.col("x") + 1))
    >>> restored.meta.eq(pl.col("x") + 1)
    True
    """
    with warnings.catch_warnings():  # polars warns that other releases of it may not read this form
        warnings.simplefilter("ignore")
        data = json.loads(expression.meta.serialize(format="json"))
    if _holds_code(data):
        raise ParameterError(
            f"the expression {expression} cannot be saved: it calls Python code; use native polars expressions, "
            f"or ops.LambdaOp with a function that is importable by name"
        )
    return {"expression": data}


def expression_from_recipe(data: Any) -> pl.Expr:
    """The expression that `expression_to_recipe` wrote; anything that carries code is refused."""
    if not isinstance(data, Mapping) or set(data) != {"expression"}:
        raise ParameterError(f"an expression in a recipe is {{expression: …}}, got {data!r}")
    if _holds_code(data["expression"]):
        raise ParameterError("an expression in the recipe carries Python code or a plugin; that is never loaded")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return pl.Expr.deserialize(io.StringIO(json.dumps(data["expression"])), format="json")
        except (pl.exceptions.PolarsError, ValueError) as error:
            raise ParameterError(
                f"an expression in the recipe cannot be read by polars {pl.__version__}: {error}"
            ) from error


# A query inside an expression would read other tables, files among them.
_QUERY = re.compile(r"\b(select|from\s+read_\w+)\b", re.IGNORECASE)
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_USER = re.compile(rf"{_QUOTED.pattern}|\b(user)\b(?!\s*\()", re.IGNORECASE)


def expression_from_text(text: str, where: str) -> pl.Expr:
    """The polars expression that text in the words of SQL means.

    Args:
        text: such as `rating >= 4`.
        where: the operator, for the error.

    Returns:
        The expression.

    Raises:
        ParameterError: it is none, or holds a query.

    >>> expression_from_text("rating >= 4", "Expr").meta.root_names()
    ['rating']
    """
    if _QUERY.search(_QUOTED.sub("''", text)):
        raise ParameterError(f"{where}: {text!r} holds a query; an expression computes a value of one row")
    try:
        # A column that many logs have, and to SQL a function, which polars lacks.
        return pl.sql_expr(_USER.sub(lambda found: f'"{found[1]}"' if found[1] else found[0], text))
    except (pl.exceptions.PolarsError, ValueError) as error:
        if "OVER clause" in str(error):
            raise _looks_at_others(text, str(error), where) from error
        raise ParameterError(
            f"{where}: {text!r} is no expression in the words of SQL ({str(error).splitlines()[0]}); such are "
            f'"rating >= 4", "hour % 100", "color = \'red\'", "CASE WHEN a > b THEN 1 ELSE 0 END"; a column whose name '
            f'is a word of SQL stands in double quotes ("order")'
        ) from error


def check_row_wise(expression: pl.Expr, shown: str, where: str) -> None:
    """Refuse an expression whose value for a row depends on other rows: partitions would each give their own.

    Args:
        expression: of polars.
        shown: as it was given.
        where: the operator, for the error.

    Raises:
        ParameterError: it looks at other rows.
    """
    pending = [expression]
    while pending:
        part = pending.pop()
        if part.meta.is_literal():
            continue
        try:
            alone = part.meta.is_row_separable() and (part.meta.is_length_preserving() or not part.meta.root_names())
        except pl.exceptions.PolarsError:  # polars cannot tell before it knows the dtypes; its inputs are looked at
            alone = True
        if not alone:
            raise _looks_at_others(shown, str(part), where)
        pending += part.meta.pop()


def _looks_at_others(shown: str, part: str, where: str) -> ParameterError:
    return ParameterError(
        f"{where}: {shown!r} looks at other rows ({part}), and rows are seen a partition at a time; use Groupby, "
        f"JoinGroupby, DifferenceLag, TargetEncoding or Normalize"
    )


def _holds_code(data: Any) -> bool:
    if isinstance(data, Mapping):
        return any(_names_code(k) or _holds_code(v) for k, v in data.items())
    if isinstance(data, list):
        return any(_holds_code(v) for v in data if isinstance(v, (list, Mapping)))
    return False


def _names_code(key: Any) -> bool:
    return any(word in str(key).lower() for word in _CODE)

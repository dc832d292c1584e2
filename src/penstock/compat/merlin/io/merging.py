"""`Dataset.merge`: two data sets joined on keys, with the arguments of pandas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from penstock.core.errors import ParameterError
from penstock.data.dataset import Dataset

_JOINS = {"inner": "inner", "left": "left", "outer": "full", "full": "full"}


def merged(left: Dataset, right: Dataset, engine: Any, arguments: Mapping[str, Any]) -> Dataset:
    """The rows of both where the keys are equal; `on`, `left_on`, `right_on`, `how` and `suffixes` as in pandas."""
    said = dict(arguments)
    how = said.pop("how", "inner")
    if how not in _JOINS:
        raise ParameterError(f"how must be one of {', '.join(_JOINS)}, got {how!r}")
    on = said.pop("on", None)
    left_on, right_on = said.pop("left_on", on), said.pop("right_on", on)
    suffixes = said.pop("suffixes", ("_x", "_y"))
    if said or left_on is None or right_on is None:
        raise ParameterError(f"merge takes on (or left_on and right_on), how and suffixes, got {sorted(said)}")
    keys, theirs = ([k] if isinstance(k, str) else list(k) for k in (left_on, right_on))
    both = [n for n in left.schema.names if n in right.schema and n not in keys]
    mine = _renamed(left, {n: f"{n}{suffixes[0]}" for n in both})
    names = {n: f"{n}{suffixes[1]}" for n in both} | dict(zip(theirs, keys, strict=True))
    return mine.merge(_renamed(right, names), keys, _JOINS[how], engine=engine)


class _Renames:
    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = dict(names)

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.rename(self.names, strict=False)


def _renamed(data: Dataset, names: Mapping[str, str]) -> Dataset:
    changed = {old: new for old, new in names.items() if old != new}
    if not changed:
        return data
    columns = [c.with_(name=changed.get(c.name, c.name)) for c in data.schema]
    return data.map(_Renames(changed), type(data.schema)(columns))

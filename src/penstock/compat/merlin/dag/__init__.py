"""`merlin.dag`: selectors, nodes and operators of a workflow's graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# List columns in a dict of arrays: as pairs under one name, or as two entries.

VALUES, OFFSETS = "__values", "__offsets"


def ungroup_values_offsets(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Each pair `(values, offsets)` as the entries `x__values` and `x__offsets`.

    >>> ungroup_values_offsets({"user": [1, 2], "items": ([3, 4, 5], [0, 1, 3])})
    {'user': [1, 2], 'items__values': [3, 4, 5], 'items__offsets': [0, 1, 3]}
    """
    out: dict[str, Any] = {}
    for name, value in arrays.items():
        if isinstance(value, tuple):
            out[name + VALUES], out[name + OFFSETS] = value
        else:
            out[name] = value
    return out


def group_values_offsets(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Entries `x__values` and `x__offsets` as one pair.

    >>> group_values_offsets({"items__values": [3, 4, 5], "items__offsets": [0, 1, 3]})
    {'items': ([3, 4, 5], [0, 1, 3])}
    """
    out: dict[str, Any] = {}
    for name, value in arrays.items():
        if name.endswith(VALUES):
            column = name.removesuffix(VALUES)
            out[column] = (value, arrays[column + OFFSETS])
        elif not name.endswith(OFFSETS):
            out[name] = value
    return out

"""Whatever a run hands over as plain data that JSON can hold: no NaN, no objects."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

_LONGEST = 10_000  # characters of a text; what is longer is cut


def plain(value: Any) -> Any:
    """Dicts, lists, text and finite numbers; nothing where a number is not finite; text for everything else.

    >>> plain({"loss": float("nan"), "path": PurePath("a"), "widths": (64, 32)})
    {'loss': None, 'path': 'a', 'widths': [64, 32]}
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str):
        return str(value) if len(value) <= _LONGEST else value[:_LONGEST] + "…"
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray, PurePath)):
        return [plain(item) for item in value]
    item = getattr(value, "item", None)  # a scalar of NumPy or torch
    if callable(item):
        try:
            return plain(item())
        except (TypeError, ValueError, RuntimeError):
            pass
    return plain(str(value))

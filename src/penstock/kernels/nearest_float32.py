"""The float32 nearest to a decimal text: what the kernel of numbers leaves to Python."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np


def nearest_float32(digits: str) -> np.float32:
    """The float32 nearest to a decimal text, ties to even; float64 in between would round twice.

    `float` is right, and fast for any text. Rounding its result again goes wrong only from the middle of two float32,
    and there the one question is on which side of the middle the text lies: comparing decimals tells without powers.
    """
    double = float(digits)
    with np.errstate(over="ignore", under="ignore"):
        near = np.float32(double)
    if not np.isfinite(double) or float(near) == double:
        return near
    with np.errstate(over="ignore"):  # the neighbour of the largest is infinite
        other = np.nextafter(near, np.float32(np.inf if double > float(near) else -np.inf))
    if _middle(near, other) != double:
        return near
    exact = Decimal(digits)  # what it says, in any number of digits
    middle = Decimal(double)
    if exact == middle:
        return near
    return max(near, other) if exact > middle else min(near, other)


def _middle(left: np.float32, right: np.float32) -> float:
    """Between two neighbours, exactly; infinity stands for the power of two after the greatest float32."""
    values = [float(v) if np.isfinite(v) else math.copysign(2.0**128, float(v)) for v in (left, right)]
    return (values[0] + values[1]) / 2

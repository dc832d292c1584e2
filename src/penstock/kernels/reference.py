"""The slow oracle: what every kernel must compute, in plain Python and NumPy, written to be read."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

MASK64 = 2**64 - 1


def bytes_list(keys: tuple[np.ndarray, np.ndarray]) -> list[bytes]:
    """`(data, offsets)` as a list of byte strings."""
    data, offsets = keys
    whole = np.asarray(data, np.uint8).tobytes()
    return [whole[start:stop] for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]


def count_values(
    keys: Sequence[Any], valid: Sequence[Any] | None = None, weights: Sequence[int] | None = None
) -> dict[Any, int]:
    """`{value: count}` in order of first sight; null rows are left out."""
    counts: dict[Any, int] = {}
    for row, key in enumerate(keys):
        if valid is None or valid[row]:
            counts[key] = counts.get(key, 0) + (1 if weights is None else int(weights[row]))
    return counts


def encode(
    keys: Sequence[Any],
    table: dict[Any, int],
    valid: Sequence[Any] | None,
    null_code: int,
    oov_code: int,
    num_buckets: int = 1,
) -> list[int]:
    """The code of every row by dictionary look-up."""
    out = []
    for row, key in enumerate(keys):
        if valid is not None and not valid[row]:
            out.append(null_code)
        else:
            out.append(table[key] if key in table else oov_code + (hash64(key) % num_buckets if num_buckets > 1 else 0))
    return out


def hash64(key: int | bytes) -> int:
    """SplitMix64's output function for integers, XXH64 with seed 0 for bytes."""
    return _splitmix64(key) if isinstance(key, int) else _xxh64(key)


def combine_hashes(*hashes: int) -> int:
    """`combine(a, b) = splitmix64(a * C + b)`, from left to right."""
    combined = hashes[0]
    for hashed in hashes[1:]:
        combined = _splitmix64((combined * 0x9FB21C651E98DF25 + hashed) & MASK64)
    return combined


def _splitmix64(key: int) -> int:
    mixed = (key + 0x9E3779B97F4A7C15) & MASK64
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & MASK64
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & MASK64
    return mixed ^ (mixed >> 31)


def _rotate(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & MASK64


def _xxh64(text: bytes) -> int:
    p1, p2, p3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
    p4, p5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

    def one_round(lane: int, value: int) -> int:
        return _rotate((lane + value * p2) & MASK64, 31) * p1 & MASK64

    position = 0
    if len(text) >= 32:
        lanes = [(p1 + p2) & MASK64, p2, 0, -p1 & MASK64]
        while position + 32 <= len(text):
            words = [int.from_bytes(text[position + 8 * i : position + 8 * i + 8], "little") for i in range(4)]
            lanes = [one_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
            position += 32
        result = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK64
        for lane in lanes:
            result = ((result ^ one_round(0, lane)) * p1 + p4) & MASK64
    else:
        result = p5
    result = (result + len(text)) & MASK64
    while position + 8 <= len(text):
        word = int.from_bytes(text[position : position + 8], "little")
        result = (_rotate(result ^ one_round(0, word), 27) * p1 + p4) & MASK64
        position += 8
    if position + 4 <= len(text):
        word = int.from_bytes(text[position : position + 4], "little")
        result = (_rotate(result ^ (word * p1 & MASK64), 23) * p2 + p3) & MASK64
        position += 4
    for byte in text[position:]:
        result = _rotate(result ^ (byte * p5 & MASK64), 11) * p1 & MASK64
    result = (result ^ (result >> 33)) * p2 & MASK64
    result = (result ^ (result >> 29)) * p3 & MASK64
    return result ^ (result >> 32)


def exact_moments(values: Sequence[Any], valid: Sequence[Any] | None = None) -> dict[str, Any]:
    """Counts, exact sums as `Fraction`, and the extremes of the finite values."""
    present = [value for row, value in enumerate(values) if valid is None or valid[row]]
    numbers = [value for value in present if not math.isnan(value)]
    finite = [Fraction(value) for value in numbers if math.isfinite(value)]
    return {
        "count": len(finite),
        "nan_count": len(present) - len(numbers),
        "positive_infinities": sum(value == math.inf for value in numbers),
        "negative_infinities": sum(value == -math.inf for value in numbers),
        "sum": sum(finite, Fraction(0)),
        "sum_of_squares": sum((value * value for value in finite), Fraction(0)),
        "minimum": min(finite, default=None),
        "maximum": max(finite, default=None),
    }


def log1p_float32(values: np.ndarray) -> np.ndarray:
    """`log(1 + x)` in float64, rounded once to float32."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.log1p(np.asarray(values).astype(np.float64)).astype(np.float32)


def digitize(values: np.ndarray, boundaries: np.ndarray) -> np.ndarray:
    """The number of boundaries that are not above the value; NaN is above all."""
    found: np.ndarray = np.digitize(values, boundaries).astype(np.int32)
    return found


def parse_field(text: bytes, kind: str) -> Any:
    """One field of delimited text: its number, None where empty; ValueError where it is malformed.

    Spaces and tabs around a decimal number are no part of it; hexadecimal ones stand alone.
    """
    text = text if kind in ("hex32", "hex64") else text.strip(b" \t")
    if not text:
        return None
    if kind in ("hex32", "hex64"):
        if not re.fullmatch(rb"[0-9a-fA-F]{1,%d}" % (int(kind[3:]) // 4), text):
            raise ValueError(text)
        return int(text, 16)
    if kind.startswith("float"):
        if not re.fullmatch(rb"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)", text, re.IGNORECASE):
            raise ValueError(text)
        return float(text) if kind == "float64" else nearest_float32(text.decode())
    if not re.fullmatch(rb"[+-]?\d+", text) or not np.iinfo(kind).min <= int(text) <= np.iinfo(kind).max:
        raise ValueError(text)
    return int(text)


def nearest_float32(text: str) -> float:
    """The float32 nearest to a decimal text, ties to even, found among all neighbours by exact arithmetic."""
    if not math.isfinite(float(text)):
        return float(text)
    exact = Fraction(text)
    with np.errstate(over="ignore", under="ignore"):
        near = np.float32(float(text))
        around = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    limit = Fraction(2) ** 128  # what infinity stands for when rounding

    def distance(value: np.float32) -> tuple[Fraction, int]:
        as_fraction = Fraction(float(value)) if np.isfinite(value) else limit * int(np.sign(value))
        return abs(as_fraction - exact), int(value.view(np.uint32)) & 1

    return float(min(around, key=distance))


def parse_text(text: bytes, kinds: Sequence[str], delimiter: bytes, on_error: str) -> tuple[list[list[Any]], list[int]]:
    """`(rows, numbers of the bad lines)`; with `on_error="null"` bad and missing fields are None."""
    lines = text.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    rows, bad_lines = [], []
    for number, line in enumerate(lines):
        fields = line.removesuffix(b"\r").split(delimiter)
        bad = len(fields) != len(kinds)
        row: list[Any] = []
        for column, kind in enumerate(kinds):
            try:
                row.append(parse_field(fields[column], kind) if column < len(fields) else None)
            except ValueError:
                row.append(None)
                bad = True
        if bad:
            bad_lines.append(number)
        if not bad or on_error == "null":
            rows.append(row)
    return rows, bad_lines

"""Figures in words: how reports write counts, bytes, seconds and shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

DASH = "–"  # where there is no figure


def short(number: float) -> str:
    """Four digits of a number, with thousands separated.

    >>> short(1234567.0), short(0.12345), short(3.0)
    ('1,234,567', '0.1235', '3')
    """
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def extremes(low: float, high: float, mean: float, between: str) -> str:
    """The range of a column and its mean; whole numbers may be ids, in which nobody wants commas or rounding.

    >>> extremes(1700000000, 1700035940, 1700017970.5, " to "), extremes(0.5, 2500.0, 1234.5, " … ")
    ('1700000000 to 1700035940, mean 1700017970', '0.5 … 2,500, mean 1,234')
    """
    is_whole = isinstance(low, int) and isinstance(high, int)
    ends = [str(end) if is_whole else short(end) for end in (low, high)]
    middle = f"{mean:.0f}" if is_whole and abs(mean) >= 1000 else short(mean)
    return f"{between.join(ends)}, mean {middle}"


def outcome(label: Any) -> str:
    """The label of a row as the data has it.

    >>> outcome(4.0), outcome("yes"), outcome(None)
    ('label 4', 'label yes', 'no label')
    """
    is_whole = isinstance(label, float) and label.is_integer()
    return "no label" if label is None else f"label {int(label) if is_whole else label}"


def data_size(number: float) -> str:
    """Bytes in a unit that fits, three digits of them.

    >>> data_size(999), data_size(1_234_567), data_size(65_300_000_000)
    ('999 B', '1.23 MB', '65.3 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.3g} TB"


def count(number: float | None) -> str:
    """A count that fits in a card or on an axis: three digits and a unit.

    >>> count(950), count(12_345), count(2_600_000), count(None)
    ('950', '12.3 k', '2.6 M', '–')
    """
    if number is None:
        return DASH
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= limit:
            value = number / {"G": 1e9, "M": 1e6, "k": 1e3}[unit]
            return f"{value:.3g} {unit}" if abs(value) < 1000 else f"{value:,.0f} {unit}"
    return f"{number:,.0f}" if float(number).is_integer() or abs(number) >= 100 else f"{number:.3g}"


def whole(number: float | None) -> str:
    """A count with every digit.

    >>> whole(1234567)
    '1,234,567'
    """
    return DASH if number is None else f"{number:,.0f}"


def duration(seconds: float | None) -> str:
    """Seconds as a person says them.

    >>> duration(0.0042), duration(3.21), duration(75), duration(3725)
    ('4.2 ms', '3.2 s', '1 min 15 s', '1 h 2 min')
    """
    if seconds is None:
        return DASH
    if seconds < 0.0995:
        return f"{seconds * 1000:.2g} ms" if seconds else "0 s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


# Units by the number from which they are taken, and what one is.
_TIME_UNITS = (("ms", 0.0, 1e-3), ("s", 1.0, 1.0), ("min", 600.0, 60.0))
_SIZE_UNITS = (("B", 0.0, 1.0), ("kB", 1e3, 1e3), ("MB", 1e6, 1e6), ("GB", 1e9, 1e9), ("TB", 1e12, 1e12))


def durations(seconds: Sequence[float | None]) -> list[str]:
    """Seconds for one column of a table: all in the unit that suits the longest.

    >>> durations([0.0042, 3.21, 0.0, None]), durations([0.0042, 0.12]), durations([2.0, 7200.0])
    (['< 0.01 s', '3.21 s', '0 s', '–'], ['4.2 ms', '120.0 ms'], ['< 0.1 min', '120.0 min'])
    """
    return _in_one_unit(seconds, _TIME_UNITS)


def data_sizes(sizes: Sequence[float | None]) -> list[str]:
    """Bytes for one column of a table: all in the unit that suits the largest.

    >>> data_sizes([999, 1_234_567, 0]), data_sizes([12, None])
    (['< 0.01 MB', '1.23 MB', '0 MB'], ['12 B', '–'])
    """
    return _in_one_unit(sizes, _SIZE_UNITS)


def _in_one_unit(numbers: Sequence[float | None], units: Sequence[tuple[str, float, float]]) -> list[str]:
    largest = max((number for number in numbers if number is not None), default=0.0)
    unit, _, size = [entry for entry in units if entry[1] <= largest][-1]
    places = 0 if unit == "B" else 2 if largest / size < 10 else 1
    smallest = 10.0**-places

    def written(number: float | None) -> str:
        if not number:
            return DASH if number is None else f"0 {unit}"
        scaled = number / size
        return f"< {smallest:g} {unit}" if scaled < smallest / 2 else f"{scaled:,.{places}f} {unit}"

    return [written(number) for number in numbers]


def share(part: float | None) -> str:
    """A share as a percentage.

    >>> share(0.256), share(0.9999), share(0.0004), share(0.0)
    ('25.6 %', '100 %', '< 0.1 %', '0 %')
    """
    if part is None:
        return DASH
    if 0 < part < 0.001:
        return "< 0.1 %"
    return f"{100 * part:.1f}".removesuffix(".0") + " %"


def plural(number: int, noun: str) -> str:
    """
    >>> plural(1, "column"), plural(26, "column")
    ('1 column', '26 columns')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def folded(names: list[str], most: int = 3) -> str:
    """A list of names in a few words.

    >>> folded(["C1", "C2"]), folded([f"C{i}" for i in range(1, 27)])
    ('C1, C2', 'C1 … C26')
    """
    return ", ".join(names) if len(names) <= most else f"{names[0]} … {names[-1]}"

"""Parameter checks as data: a class lists the constraints of its arguments, one function checks them.

>>> check("freq_threshold", -3, Int(min=0))
Traceback (most recent call last):
...
penstock.core.errors.ParameterError: freq_threshold must be an int ≥ 0, got -3
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.errors import ParameterError


class Constraint:
    """One condition on a value; `describe()` completes the sentence "x must be …"."""

    def accepts(self, value: Any) -> bool:
        raise TypeError(f"{type(self).__name__} does not say what it accepts")

    def describe(self) -> str:
        raise TypeError(f"{type(self).__name__} does not describe itself")

    def __or__(self, other: Constraint) -> Constraint:
        return AnyOf((self, other))


@dataclass(frozen=True)
class Int(Constraint):
    min: int | None = None
    max: int | None = None

    def accepts(self, value: Any) -> bool:
        if not isinstance(value, numbers.Integral) or isinstance(value, bool):
            return False
        return (self.min is None or int(value) >= self.min) and (self.max is None or int(value) <= self.max)

    def describe(self) -> str:
        return "an int" + _range(self.min, self.max)


@dataclass(frozen=True)
class Real(Constraint):
    min: float | None = None
    max: float | None = None
    finite: bool = True

    def accepts(self, value: Any) -> bool:
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            return False
        try:
            number = float(value)
        except OverflowError:  # an integer of hundreds of digits
            return False
        if self.finite and not math.isfinite(number):
            return False
        return (self.min is None or number >= self.min) and (self.max is None or number <= self.max)

    def describe(self) -> str:
        return "a finite number" * self.finite + "a number" * (not self.finite) + _range(self.min, self.max)


@dataclass(frozen=True)
class OneOf(Constraint):
    values: tuple[Any, ...]

    def accepts(self, value: Any) -> bool:
        return any(type(value) is type(v) and value == v for v in self.values)

    def describe(self) -> str:
        listed = ", ".join(repr(v) for v in self.values)
        return listed if len(self.values) == 1 else f"one of {listed}"


@dataclass(frozen=True)
class Instance(Constraint):
    types: type | tuple[type, ...]
    name: str = ""

    def accepts(self, value: Any) -> bool:
        return isinstance(value, self.types)

    def describe(self) -> str:
        types = self.types if isinstance(self.types, tuple) else (self.types,)
        return self.name or "a " + " or ".join(t.__name__ for t in types)


@dataclass(frozen=True)
class ListOf(Constraint):
    item: Constraint

    def accepts(self, value: Any) -> bool:
        return isinstance(value, (list, tuple)) and all(self.item.accepts(v) for v in value)

    def describe(self) -> str:
        return f"a list, each item {self.item.describe()}"


@dataclass(frozen=True)
class PerColumn(Constraint):
    """The value itself, or `{column: value}`."""

    item: Constraint

    def accepts(self, value: Any) -> bool:
        if isinstance(value, Mapping):
            return all(isinstance(k, str) and self.item.accepts(v) for k, v in value.items())
        return self.item.accepts(value)

    def describe(self) -> str:
        return f"{self.item.describe()}, or {{column: value}} of such"


@dataclass(frozen=True)
class AnyOf(Constraint):
    options: tuple[Constraint, ...]

    def accepts(self, value: Any) -> bool:
        return any(option.accepts(value) for option in self.options)

    def describe(self) -> str:
        options = sorted(self._flat(), key=lambda option: option == NONE)  # what can be asked for comes first
        return ", or ".join(option.describe() for option in options)

    def _flat(self) -> list[Constraint]:
        parts = (option._flat() if isinstance(option, AnyOf) else [option] for option in self.options)
        return [option for part in parts for option in part]


@dataclass(frozen=True)
class Satisfies(Constraint):
    """Anything a predicate accepts."""

    predicate: Callable[[Any], bool]
    text: str

    def accepts(self, value: Any) -> bool:
        return bool(self.predicate(value))

    def describe(self) -> str:
        return self.text


NONE = OneOf((None,))
BOOL = Instance(bool, "True or False")
STR = Instance(str, "a string")
CALLABLE = Satisfies(callable, "callable")


def check(name: str, value: Any, constraint: Constraint) -> None:
    """Raise `ParameterError` unless `value` meets `constraint`."""
    if not constraint.accepts(value):
        raise ParameterError(f"{name} must be {constraint.describe()}, got {value!r}")


def check_all(values: Mapping[str, Any], constraints: Mapping[str, Constraint], owner: str = "") -> None:
    """Check every constrained name in `values`; `owner` prefixes the message (`Categorify.freq_threshold`)."""
    for name, constraint in constraints.items():
        check(f"{owner}.{name}" if owner else name, values[name], constraint)


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low} to {high}"
    if low is not None:
        return f" ≥ {low}"
    return f" ≤ {high}" if high is not None else ""

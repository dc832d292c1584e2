"""What there is to know of one setting, kept beside its field: the command line is derived from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import GenericAlias
from typing import Any

from penstock.core.params import Constraint, Instance

_SECTION = Instance(Mapping, "a mapping")


@dataclass(frozen=True)
class Setting:
    """What there is to know of one setting: its check, and its option on the command line.

    Args:
        constraint: what the value must be.
        help: of the option; a setting without has none.
        kind: of the value that is given on the command line.
        default: what the default is called, where the value does not say it.
        choices: the values there are; with `is_open`, a reference `package.module:Class` besides.
        flags: other names of the option.
        is_changeable: whether a resumed run may change it; not where the state it goes on from depends on it.
    """

    constraint: Constraint = _SECTION
    help: str = ""
    kind: type | GenericAlias = int
    default: str = ""
    choices: tuple[str, ...] = ()
    is_open: bool = False
    flags: tuple[str, ...] = ()
    is_changeable: bool = False


def setting(value: Any, constraint: Constraint = _SECTION, /, **about: Any) -> Any:
    """A field of `TrainSettings` with its default and all that is known of it; a section is copied for each."""
    metadata = {"setting": Setting(constraint, **about)}
    if isinstance(value, dict):
        return field(default_factory=lambda: dict(value), metadata=metadata)
    return field(default=value, metadata=metadata)

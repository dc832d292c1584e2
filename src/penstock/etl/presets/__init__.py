"""Recipes that come with Penstock, known by name.

>>> names()
['criteo']
>>> load("criteo")["output"]
['label', 'categories', 'numbers']
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml

from penstock.core.errors import ParameterError, suggest


def names() -> list[str]:
    """The presets there are."""
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in resources.files(__name__).iterdir()
        if entry.name.endswith(".yaml") and not entry.name.startswith((".", "_"))
    )


def load(name: str) -> dict[str, Any]:
    """The recipe of a preset, as plain data: what `Workflow.from_recipe` and `input_section.open_input` take."""
    known = names()
    if name not in known:
        raise ParameterError(f"unknown preset {name!r}{suggest(name, known, 'presets')}")
    recipe: dict[str, Any] = yaml.safe_load((resources.files(__name__) / f"{name}.yaml").read_text())
    return recipe

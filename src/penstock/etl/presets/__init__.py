"""Recipes that come with Penstock, known by name.

>>> names()
['avazu', 'criteo', 'movielens']
>>> load("criteo")["output"]
['label', 'categories', 'numbers']
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from penstock.core.errors import ParameterError, suggest
from penstock.core.yaml_files import parse_yaml


def names() -> list[str]:
    """The presets there are."""
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in resources.files(__name__).iterdir()
        if entry.name.endswith(".yaml") and not entry.name.startswith((".", "_"))
    )


def load(name: str) -> dict[str, Any]:
    """The recipe of a preset, as plain data: what `Workflow.from_recipe` and `input_section.open_input` take."""
    return parse_yaml(text(name), f"the preset {name}")


def text(name: str) -> str:
    """The recipe of a preset as YAML, comments and all."""
    known = names()
    if name not in known:
        raise ParameterError(f"unknown preset {name!r}{suggest(name, known, 'presets')}")
    return (resources.files(__name__) / f"{name}.yaml").read_text()

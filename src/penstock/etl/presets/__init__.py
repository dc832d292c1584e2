"""Recipes that come with Penstock, known by name.

>>> names()
['avazu', 'criteo', 'movielens']
>>> load("criteo")["output"]
['label', 'categories', 'numbers']
"""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

from penstock.core.errors import ParameterError, suggest
from penstock.core.yaml_files import parse_yaml

_CATEGORIFY = re.compile(r"- Categorify\b(: *\{[^}]*\})?")


def names() -> list[str]:
    """The presets there are."""
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in resources.files(__name__).iterdir()
        if entry.name.endswith(".yaml") and not entry.name.startswith((".", "_"))
    )


def load(name: str, hashed: bool = False) -> dict[str, Any]:
    """The recipe of a preset, as plain data: what `Workflow.from_recipe` and `input_section.open_input` take.

    Args:
        name: of the preset.
        hashed: whether categories get ids without a vocabulary, as `tables: hashed` takes them.

    Returns:
        The recipe.

    Raises:
        ParameterError: there is no such preset.
    """
    return parse_yaml(text(name, hashed), f"the preset {name}")


def text(name: str, hashed: bool = False) -> str:
    """The recipe of a preset as YAML, comments and all."""
    known = names()
    if name not in known:
        raise ParameterError(f"unknown preset {name!r}{suggest(name, known, 'presets')}")
    found = (resources.files(__name__) / f"{name}.yaml").read_text()
    return without_vocabulary(found) if hashed else found


def without_vocabulary(text: str) -> str:
    """A preset's or a drafted recipe's text with `HashId` in the place of `Categorify`.

    >>> without_vocabulary("- Split: {separator: '|'}\\n- Categorify: {freq_threshold: 2}")
    "- Split: {separator: '|'}\\n- HashId"
    """
    return _CATEGORIFY.sub("- HashId", text)

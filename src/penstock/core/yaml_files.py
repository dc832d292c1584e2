"""YAML that people write, as plain data and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from penstock.core.errors import ParameterError


class _Loader(yaml.SafeLoader):
    """Plain data only, and `1e-3` is a number, as everybody means it; YAML 1.1 would have it a text."""


class _Dumper(yaml.SafeDumper):
    """Writes the text `1e-3` in quotes, so that it comes back as text."""


_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789"))


def read_yaml(path: str | Path, hint: str = "") -> dict[str, Any]:
    """The mapping in a YAML file.

    Args:
        path: of the file.
        hint: what to do when there is none, in a few words.

    Returns:
        Plain data.

    Raises:
        ParameterError: the file is not there, is no YAML, or holds something else.
    """
    file = Path(path)
    if not file.is_file():
        raise ParameterError(f"{file} does not exist{hint and '; '}{hint}")
    try:
        found = yaml.load(file.read_text(), Loader=_Loader)  # a safe loader
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ParameterError(f"{file} is not valid YAML: {error}") from error
    if not isinstance(found, Mapping):
        raise ParameterError(f"{file} must hold a mapping, got {type(found).__name__}")
    return dict(found)


def write_yaml(data: Mapping[str, Any]) -> str:
    """Plain data as YAML, its keys in their order.

    >>> write_yaml({"b": 1, "a": [1, 2]})
    'b: 1\\na: [1, 2]\\n'
    """
    return str(yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, width=120, default_flow_style=None))

"""YAML that people write, as plain data and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from penstock.core.errors import ParameterError

_BOOLEAN = "tag:yaml.org,2002:bool"


class _Loader(yaml.SafeLoader):
    """Plain data only, as everybody means it: `1e-3` is a number, and the key `on` is text, not true."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        for key, _ in node.value:
            if key.tag == _BOOLEAN and str(key.value).lower() not in ("true", "false"):
                key.tag = "tag:yaml.org,2002:str"
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


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
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ParameterError(f"{file} is not valid YAML: {error}") from error
    return parse_yaml(text, str(file))


def parse_yaml(text: str, where: str) -> dict[str, Any]:
    """The mapping in a YAML text.

    Args:
        text: the YAML.
        where: it comes from, for the error.

    Returns:
        Plain data.

    Raises:
        ParameterError: it is no YAML, or holds something else.

    >>> parse_yaml("on: [no, 1e-3]", "here")
    {'on': [False, 0.001]}
    """
    try:
        found = yaml.load(text, Loader=_Loader)  # a safe loader
    except yaml.YAMLError as error:
        raise ParameterError(f"{where} is not valid YAML: {error}") from error
    if not isinstance(found, Mapping):
        raise ParameterError(f"{where} must hold a mapping, got {type(found).__name__}")
    return dict(found)


def write_yaml(data: Mapping[str, Any]) -> str:
    """Plain data as YAML, its keys in their order.

    >>> write_yaml({"b": 1, "a": [1, 2]})
    'b: 1\\na: [1, 2]\\n'
    """
    return str(yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, width=120, default_flow_style=None))

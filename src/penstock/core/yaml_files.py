"""YAML that people write, as plain data and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from penstock.core.errors import ParameterError

_BOOLEAN, _MERGE = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:merge"
_MOST_BYTES, _MOST_UNFOLDED, _MOST_DEPTH = 4 << 20, 1 << 20, 256


class _Loader(yaml.SafeLoader):
    """Plain data only, as everybody means it: `1e-3` is a number, and the key `on` is text, not true."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        for key, _ in node.value:
            if key.tag == _BOOLEAN and str(key.value).lower() not in ("true", "false"):
                key.tag = "tag:yaml.org,2002:str"
        self._check_once(node)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found

    def _check_once(self, node: yaml.MappingNode) -> None:
        """Refuse a key that stands twice: the first would be passed over without a word."""
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            if (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} stands there twice", key.start_mark)
            seen.add((key.tag, key.value))


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
    return parse_yaml(yaml_text(path, hint), str(path))


def yaml_text(path: str | Path, hint: str = "") -> str:
    """The text of a YAML file.

    Args:
        path: of the file.
        hint: what to do when there is none, in a few words.

    Returns:
        Text, not longer than a person writes.

    Raises:
        ParameterError: the file is not there, cannot be read, is too long, or no UTF-8.
    """
    file = Path(path)
    if not file.is_file():
        raise ParameterError(f"{file} does not exist{hint and '; '}{hint}")
    if (size := file.stat().st_size) > _MOST_BYTES:
        raise ParameterError(f"{file} is {size:,} bytes long; YAML that a person writes has at most {_MOST_BYTES:,}")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ParameterError(f"{file} is not valid YAML: {error}") from error
    except OSError as error:
        raise ParameterError(f"cannot read {file}: {error.strerror}") from error


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
    if _bracket_depth(text) > _MOST_DEPTH:  # which the parser would take long to find out
        raise ParameterError(f"{where} is not valid YAML: it is nested too deeply")
    try:
        found = yaml.load(text, Loader=_Loader)  # a safe loader
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # ValueError: a date or a number that is none
        raise ParameterError(f"{where} is not valid YAML: {error}") from error
    except RecursionError:
        raise ParameterError(f"{where} is not valid YAML: it is nested too deeply") from None
    if not isinstance(found, Mapping):
        raise ParameterError(f"{where} must hold a mapping, got {type(found).__name__}")
    _check_unfolded(found, where)
    return dict(found)


def _bracket_depth(text: str) -> int:
    """How many brackets are open at once at most, wherever they stand."""
    depth = most = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth += 1 if bracket in "[{" else -1
        most = max(most, depth)
    return most


def _check_unfolded(found: Any, where: str) -> None:
    """Refuse what goes on for ever, or nearly so, once every alias stands for what it names."""
    sizes: dict[int, int] = {}  # of mappings and lists by their identity; -1 while inside
    waiting = [found]
    while waiting:
        item = waiting[-1]
        inner = [i for i in _items(item) if isinstance(i, (dict, list))]
        if id(item) not in sizes:
            sizes[id(item)] = -1
            if any(sizes.get(id(i)) == -1 for i in inner):
                raise ParameterError(f"{where} is not valid YAML: something in it holds itself")
            waiting += [i for i in inner if id(i) not in sizes]
            continue
        waiting.pop()
        if sizes[id(item)] == -1:
            sizes[id(item)] = 1 + len(_items(item)) + sum(sizes[id(i)] for i in inner)
            if sizes[id(item)] > _MOST_UNFOLDED:
                raise ParameterError(f"{where} unfolds by its aliases to more than {_MOST_UNFOLDED:,} values")


def _items(item: Any) -> list[Any]:
    return list(item.values()) if isinstance(item, dict) else item


def write_yaml(data: Mapping[str, Any]) -> str:
    """Plain data as YAML, its keys in their order.

    >>> write_yaml({"b": 1, "a": [1, 2]})
    'b: 1\\na: [1, 2]\\n'
    """
    return str(yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, width=120, default_flow_style=None))

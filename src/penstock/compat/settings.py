"""Conventions that changed from one release of an old library to the next: one setting for each library.

A setting lives in an environment variable, so that child processes follow it without being told.

>>> nvtabular()
'0.5'
>>> with using(nvtabular="latest"):
...     nvtabular()
'latest'
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.core.params import OneOf, check

NVTABULAR = "PENSTOCK_COMPAT_NVTABULAR"
NVTABULAR_AGES = ("0.5", "1.0", "latest")
_before: dict[str, str | None] = {}  # what the environment said before `use`


def nvtabular() -> str:
    """Whose batches the NVTabular loaders give.

    `"0.5"`: tuples of packed tensors, columns sorted by name. `"1.0"`: `({name: (B, 1)}, labels)`. `"latest"`:
    `({name: (B,)}, label)`.
    """
    age = os.environ.get(NVTABULAR, NVTABULAR_AGES[0])
    check(NVTABULAR, age, OneOf(NVTABULAR_AGES))
    return age


def use(*, nvtabular: str | None = None) -> None:
    """Choose conventions for this process and those it starts; None leaves a setting as it is."""
    if nvtabular is not None:
        check("nvtabular", nvtabular, OneOf(NVTABULAR_AGES))
        _before.setdefault(NVTABULAR, os.environ.get(NVTABULAR))
        os.environ[NVTABULAR] = nvtabular


def reset() -> None:
    """Undo `use`: what the environment said before counts again."""
    while _before:
        _restore(*_before.popitem())


@contextmanager
def using(*, nvtabular: str) -> Iterator[None]:
    """Choose conventions for the length of a block."""
    check("nvtabular", nvtabular, OneOf(NVTABULAR_AGES))
    before = os.environ.get(NVTABULAR)
    os.environ[NVTABULAR] = nvtabular
    try:
        yield
    finally:
        _restore(NVTABULAR, before)


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value

"""Conventions that changed from one release of an old library to the next: one setting for each library.

A setting lives in an environment variable, so that child processes follow it without being told. Where it says
nothing, what a program imports or calls tells its age, if that is clear; else it is the release whose version is
reported.

>>> with using(nvtabular="0.5"):
...     nvtabular()
'0.5'
"""

from __future__ import annotations

import os
import sys
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
    age = os.environ.get(NVTABULAR)
    if age is None:
        return _detected()
    check(NVTABULAR, age, OneOf(NVTABULAR_AGES))
    return age


# Modules of one age only: (age, modules that a program of that age imports, and no other).
_SIGNS = (
    ("latest", ("merlin.dtypes", "merlin.dataloader", "merlin.table", "merlin.core.compat")),
    ("0.5", ("nvtabular.column_group", "fastai")),
    ("1.0", ("nvtabular.columns", "nvtabular.graph", "nvtabular.dispatch", "merlin.loader")),
)
_called: list[tuple[str, str]] = []  # the age of what a program called and only that age had, and the call
_found: list[tuple[str, str]] = []  # the age that was detected, and why; said once and kept
_pairs: list[str] = []  # who takes lists as pairs, whatever the age


def _detected() -> str:
    """The age that imports and calls show; FastAI's tabular models take the batches of 0.5 and no others."""
    if not _found:
        imported = [(age, name) for age, modules in _SIGNS for name in modules if name in sys.modules]
        needs_loader = [sign for sign in imported if sign[1] != "fastai" or "nvtabular.loader.torch" in sys.modules]
        signs = [
            *((age, f"imports {name}") for age, name in needs_loader),
            *((age, f"calls {n}") for age, n in _called),
        ]
        if len({age for age, _ in signs}) == 1:
            age, what = signs[0]
            _found.append((age, f"the program {what}"))
        else:
            _found.append((NVTABULAR_AGES[-1], "that is the release whose version is reported"))
        age, why = _found[0]
        meant = f"NVTabular {age}" if age != "latest" else "the last release of NVTabular"
        print(
            f"penstock: conventions of {meant}: {why}; {NVTABULAR}=0.5, 1.0 or latest says otherwise", file=sys.stderr
        )
    return _found[0][0]


def saw_call(age: str, name: str) -> None:
    """A program that imports NVTabular calls what only one age had; that counts until an age is in force."""
    if "nvtabular" in sys.modules and (age, name) not in _called:
        _called.append((age, name))


def list_pairs() -> bool:
    """Whether a model of this program takes lists as `(values, row lengths)`, as those before the last releases did.

    Where an age was chosen, that counts and not the model.
    """
    return bool(_pairs) and os.environ.get(NVTABULAR) is None


def saw_list_pairs(where: str) -> None:
    """A model was built on pairs: so its loaders give them, also where nothing else tells the age."""
    if not _pairs:
        _pairs.append(where)
        if list_pairs() and nvtabular() == "latest":
            print(f"penstock: lists come to Keras as (values, row lengths): {where} takes them so", file=sys.stderr)


def use(*, nvtabular: str | None = None) -> None:
    """Choose conventions for this process and those it starts; None leaves a setting as it is."""
    if nvtabular is not None:
        check("nvtabular", nvtabular, OneOf(NVTABULAR_AGES))
        _before.setdefault(NVTABULAR, os.environ.get(NVTABULAR))
        os.environ[NVTABULAR] = nvtabular


def forget_the_program() -> None:
    """The next program's imports tell its age, whatever ran in this process before."""
    _found.clear()
    _pairs.clear()
    _called.clear()


def reset() -> None:
    """Undo `use`: what the environment said before counts again."""
    forget_the_program()
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

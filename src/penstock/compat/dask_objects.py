"""Dask's frames as they were: a column of Python objects stays one.

Dask now makes text of every such column, also of lists and arrays, which old code then finds in its batches.
"""

from __future__ import annotations

from types import ModuleType

from penstock.compat.after_import import AfterImport

_SETTING = "dataframe.convert-string"
_undo: list[ModuleType] = []
_waiting: list[AfterImport] = []


def keep_objects() -> None:
    """From Dask's import on, let objects be objects, unless the program or a file of settings says otherwise."""
    if not _waiting:
        _waiting.append(AfterImport("dask.config", _set))
        _waiting[0].start()


def undo() -> None:
    """Undo `keep_objects`."""
    while _waiting:
        _waiting.pop().stop()
    while _undo:
        _undo.pop().set({_SETTING: None})


def _set(config: ModuleType) -> None:
    if config.get(_SETTING, None) is None:
        config.set({_SETTING: False})
        _undo.append(config)

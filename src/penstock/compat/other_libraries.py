"""What other libraries did when old code was written: Keras saved folders, Dask left columns of objects alone."""

from __future__ import annotations

import functools
import logging
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.compat.modules import AfterImport
from penstock.core.errors import OutputExistsError

# Dask's frames as they were: a column of Python objects stays one.
#
# Dask now makes text of every such column, also of lists and arrays, which old code then finds in its batches.

_SETTING = "dataframe.convert-string"
_kept_objects: list[ModuleType] = []
_dask_waiting: list[AfterImport] = []


def keep_objects() -> None:
    """From Dask's import on, let objects be objects, unless the program or a file of settings says otherwise."""
    if not _dask_waiting:
        _dask_waiting.append(AfterImport("dask.config", _set))
        _dask_waiting[0].start()


def _let_dask_be() -> None:
    while _dask_waiting:
        _dask_waiting.pop().stop()
    while _kept_objects:
        _kept_objects.pop().set({_SETTING: None})


def _set(config: ModuleType) -> None:
    if config.get(_SETTING, None) is None:
        config.set({_SETTING: False})
        _kept_objects.append(config)


# `model.save("folder")` as TensorFlow 2's Keras did it: a SavedModel, where Keras 3 wants a suffix and refuses.
#
# The folder holds the SavedModel (`tf.saved_model.load`, TensorFlow Serving) and Keras's own files beside it, so that
# `keras.models.load_model` gives back the model itself, optimizer included.

_SINGLE_FILES = (".keras", ".h5", ".hdf5")
# Every module that hands out `save_model`; the first is the one that `Model.save` calls.
_PLACES = ("keras.src.saving.saving_api", "keras.saving", "keras.models", "keras._tf_keras.keras.saving",
           "keras._tf_keras.keras.models")  # fmt: skip
_OLD_ARGUMENTS = {"save_format", "include_optimizer"}
_undo: list[tuple[ModuleType, Any]] = []
_waiting: list[AfterImport] = []


def save_folders() -> None:
    """From Keras's import on, let `save` write a folder where the path has no suffix of a single file."""
    if not _waiting:
        _waiting.append(AfterImport("keras", _patch))
        _waiting[0].start()


def undo() -> None:
    """Undo `save_folders` and `keep_objects`."""
    _let_dask_be()
    while _waiting:
        _waiting.pop().stop()
    while _undo:
        module, before = _undo.pop()
        module.save_model = before  # type: ignore[attr-defined]


def _patch(_: ModuleType) -> None:
    api = sys.modules[_PLACES[0]]
    original = api.save_model
    save = _saver(original)
    for name in _PLACES:
        module = sys.modules.get(name)
        if module is not None and getattr(module, "save_model", None) is original:
            _undo.append((module, original))
            module.save_model = save  # type: ignore[attr-defined]


def _saver(original: Callable) -> Callable:
    @functools.wraps(original)
    def save_model(model: Any, filepath: Any, overwrite: bool = True, zipped: Any = None, **kwargs: Any) -> Any:
        path = str(filepath)
        is_folder = zipped is None and not path.endswith(_SINGLE_FILES) and "://" not in path
        understood = kwargs.get("save_format") in (None, False, "tf") and kwargs.keys() <= _OLD_ARGUMENTS
        if not (is_folder and understood):
            return original(model, filepath, overwrite, zipped, **kwargs)
        return save_folder(model, Path(path), overwrite, functools.partial(original, zipped=False))

    return save_model


def save_folder(model: Any, place: Path, overwrite: bool, keep: Callable[[Any, str], Any]) -> None:
    """Write `place` in one step; `keep(model, folder)` adds Keras's own files to the SavedModel."""
    from penstock.core.artefact import replace  # it loads polars, which most processes of old code do without

    if place.exists() and not (overwrite and _is_saved_model(place)):
        raise OutputExistsError(f"{place} is there already, and " + (
            "is no saved model; remove it, or choose another path" if overwrite else "overwrite is False"
        ))  # fmt: skip
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as staging:
        whole, own = Path(staging, "whole"), Path(staging, "own")
        keep(model, str(own))  # not into the same folder: both want to make `assets`
        with _quiet("tensorflow"):  # it would name the folder that is about to be renamed
            model.export(str(whole), verbose=False)
        shutil.copytree(own, whole, dirs_exist_ok=True)
        replace(whole, place)


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _is_saved_model(place: Path) -> bool:
    return place.is_dir() and ((place / "saved_model.pb").is_file() or not any(place.iterdir()))

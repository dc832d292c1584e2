"""What other libraries did when old code was written: NumPy's names, objects in frames, Keras's folders."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.compat.modules import AfterImport
from penstock.core.errors import OutputExistsError

_awaited: list[AfterImport] = []  # imports of NumPy, pandas and Dask
_put_back: list[Callable[[], Any]] = []  # what undoes each change that has been made to them


def as_they_were() -> None:
    """From their import on, let NumPy, pandas and Dask be to old code what they were."""
    if not _awaited:
        changes = {"numpy": _name_as_before, "pandas": _set_pandas, "dask.config": _set_dask}
        _awaited.extend(AfterImport(name, change) for name, change in changes.items())
        for waiting in _awaited:
            waiting.start()


# NumPy's names of 1.x for what Python and NumPy itself call otherwise. Old code is full of them (`np.float`, `np.NaN`),
# and stops at the first.

_NUMPY_NAMES: dict[str, Any] = {
    "float": float, "int": int, "object": object, "str": str, "complex": complex,
    "NaN": "nan", "NAN": "nan", "Inf": "inf", "Infinity": "inf", "infty": "inf", "PINF": "inf", "NINF": -float("inf"),
    "float_": "float64", "complex_": "complex128", "string_": "bytes_", "unicode_": "str_", "round_": "round",
    "product": "prod", "cumproduct": "cumprod", "sometrue": "any", "alltrue": "all", "row_stack": "vstack",
    "trapz": "trapezoid",
}  # fmt: skip


def _name_as_before(numpy: ModuleType) -> None:
    """Names that NumPy still has stay as they are."""
    for name, meant in _NUMPY_NAMES.items():
        if name not in vars(numpy):
            setattr(numpy, name, getattr(numpy, meant) if isinstance(meant, str) else meant)
            _put_back.append(functools.partial(delattr, numpy, name))


# Frames as they were: text is a column of Python objects with None for what is missing, and such a column stays one.
#
# pandas now makes a type of its own of text, whose missing values are nan: `dtype == object` and `None in values` no
# longer hold. Dask makes text of every column of objects, also of lists and arrays.

_DASK_SETTING, _PANDAS_SETTING = "dataframe.convert-string", "future.infer_string"


def _set_dask(config: ModuleType) -> None:
    if config.get(_DASK_SETTING, None) is None:
        config.set({_DASK_SETTING: False})
        _put_back.append(lambda: config.set({_DASK_SETTING: None}))


def _set_pandas(pandas: ModuleType) -> None:
    """Whoever imports pandas may hold a lock meanwhile, as pyarrow does: nothing is made or converted here."""
    if "PANDAS_FUTURE_INFER_STRING" in os.environ:
        return
    with suppress(KeyError):  # a pandas before or behind the releases that leave the choice
        if _pandas_setting(pandas.get_option):
            _pandas_setting(pandas.set_option, False)
            _put_back.append(lambda: _pandas_setting(pandas.set_option, True))


def _pandas_setting(ask_or_set: Callable[..., Any], *value: bool) -> Any:
    with warnings.catch_warnings():  # that the setting will go one day is no news for the program
        warnings.simplefilter("ignore")
        return ask_or_set(_PANDAS_SETTING, *value)


def text_is_objects(pandas: ModuleType) -> bool:
    """Whether pandas has text as Python objects now."""
    return bool(pandas.Series(["text"]).dtype == object)


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
    """Undo `as_they_were` and `save_folders`."""
    for waiting in (_awaited, _waiting):
        while waiting:
            waiting.pop().stop()
    while _put_back:
        _put_back.pop()()
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

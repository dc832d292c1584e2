"""`merlin.core`: helpers around pandas frames."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from functools import singledispatch, update_wrapper
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from penstock.compat.missing import CompatNotImplementedError, CompatTypeError
from penstock.core import progress
from penstock.core.artefact import replacing
from penstock.core.errors import ParameterError
from penstock.core.params import OneOf, check

__version__ = "23.08.00"


# Functions chosen by the type of their first argument, for types of libraries that may not be there yet.


class LazyDispatcher:
    """`functools.singledispatch` whose implementations for a library's types are registered when one first comes.

    The first argument may be a type itself. The plain function gives its name only, which may be all that is given; a
    type that nothing is registered for is a `NotImplementedError`.

    >>> @lazy_singledispatch
    ... def kind(value):
    ...     raise NotImplementedError
    >>> @kind.register
    ... def _(value: int):
    ...     return "a number"
    >>> @kind.register_lazy("numpy")
    ... def _():
    ...     import numpy as np
    ...     kind.register(np.ndarray, lambda value: "an array")
    >>> import numpy as np
    >>> kind(1), kind(np.zeros(2))
    ('a number', 'an array')
    """

    def __init__(self, func_or_name: Callable[..., Any] | str) -> None:
        if not callable(func_or_name) and not isinstance(func_or_name, str):
            raise CompatTypeError(f"lazy_singledispatch takes a function or its name, got {func_or_name!r}")
        self.func = func_or_name if callable(func_or_name) else _named(func_or_name)
        self.dispatcher = singledispatch(self.func)
        self._waiting: dict[str, Callable[[], Any]] = {}
        update_wrapper(self, self.func)

    def register(self, cls: Any, func: Callable[..., Any] | None = None) -> Any:
        """Name the function for a type, as `functools.singledispatch` takes it."""
        return self.dispatcher.register(cls, func)

    def register_lazy(self, module_name: str, func: Callable[[], Any] | None = None) -> Any:
        """Name the function that registers what a library's types need; it is called when the first of them comes."""
        if func is None:
            return lambda later: self.register_lazy(module_name, later)
        self._waiting[module_name] = func
        return func

    def dispatch(self, obj_or_type: Any) -> Callable[..., Any]:
        """The function for a value, or for a type."""
        kind = obj_or_type if isinstance(obj_or_type, type) else type(obj_or_type)
        if self.dispatcher.dispatch(kind) is self.func:
            waiting = self._waiting.pop(kind.__module__.split(".")[0], None)
            if waiting is None:
                raise self._unknown(obj_or_type, kind)
            waiting()
        return self.dispatcher.dispatch(kind)

    def _unknown(self, obj_or_type: Any, kind: type) -> NotImplementedError:
        name, of = getattr(self.func, "__name__", "the function"), f"{kind.__module__}.{kind.__qualname__}"
        return CompatNotImplementedError(f"{name} doesn't have a registered implementation for {obj_or_type!r} ({of})")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.dispatch(args[0])(*args, **kwargs)


def _named(name: str) -> Callable[..., Any]:
    def unknown(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(name)

    unknown.__name__ = name
    return unknown


def lazy_singledispatch(func_or_name: Callable[..., Any] | str) -> LazyDispatcher:
    """The function, chosen by the type of its first argument."""
    return LazyDispatcher(func_or_name)


lazysingledispatch = lazy_singledispatch


# `merlin.core.utils`: memory, downloads, and where work runs.


def device_mem_size(kind: str = "total", cpu: bool = False) -> int:
    """Bytes of memory, `"total"` or `"free"`: of the GPU where torch sees one, else of the host.

    >>> device_mem_size() >= device_mem_size("free", cpu=True) > 0
    True
    """
    check("kind", kind, OneOf(("total", "free")))
    if not cpu:
        from penstock.core.extras import require

        try:
            cuda = require("torch", "torch").cuda
            if cuda.is_available():
                return int(cuda.mem_get_info()[0 if kind == "free" else 1])
        except ImportError:
            pass
    pages = os.sysconf("SC_AVPHYS_PAGES" if kind == "free" else "SC_PHYS_PAGES")
    return pages * os.sysconf("SC_PAGE_SIZE")


def get_rmm_size(size: float) -> int:
    """A size rounded down to whole blocks of 256 bytes.

    >>> get_rmm_size(1000)
    768
    """
    return int(size) // 256 * 256


def download_file(url: str, local_filename: Any, unzip_files: bool = True, redownload: bool = True) -> None:
    """Fetch a file over HTTP, with a progress bar, and unpack `.zip`, `.tgz` and `.gz` beside it.

    >>> download_file("ftp://example.org/a.zip", "a.zip")
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: download_file takes http and https addresses, got 'ftp://example.org/a.zip'
    """
    if not url.startswith(("http://", "https://")):
        raise ParameterError(f"download_file takes http and https addresses, got {url!r}")
    file = Path(local_filename).absolute()
    file.parent.mkdir(parents=True, exist_ok=True)
    if redownload or not file.exists():
        _fetch(url, file)
    if unzip_files:
        _unpack(file)


def _fetch(url: str, file: Path) -> None:
    with urllib.request.urlopen(url) as answer:
        total = int(answer.headers.get("Content-Length") or 0)
        with (
            progress.bar(f"download {file.name}", total) as bar,
            replacing(file) as partial,
            partial.open("wb") as target,
        ):
            while chunk := answer.read(1 << 20):
                target.write(chunk)
                bar.advance(len(chunk))


def _unpack(file: Path) -> None:
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as packed:
            packed.extractall(file.parent)
    elif file.suffix == ".tgz" or file.name.endswith(".tar.gz"):
        with tarfile.open(file) as packed:
            packed.extractall(file.parent, filter="data")
    elif file.suffix == ".gz":
        with gzip.open(file, "rb") as source, replacing(file.with_suffix("")) as partial, partial.open("wb") as target:
            shutil.copyfileobj(source, target)


# `merlin.core.protocols`: what frames, columns and tables have in common.


@runtime_checkable
class DictLike(Protocol):
    """Columns by name.

    >>> isinstance({"a": [1]}, DictLike)
    True
    """

    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any) -> Any: ...
    def __setitem__(self, key: Any, value: Any) -> None: ...
    def keys(self) -> Any: ...
    def items(self) -> Any: ...
    def values(self) -> Any: ...


@runtime_checkable
class ArrayLike(Protocol):
    """Values with a shape.

    >>> import numpy
    >>> isinstance(numpy.zeros(2), ArrayLike), isinstance([0, 0], ArrayLike)
    (True, False)
    """

    def __len__(self) -> int: ...
    def __getitem__(self, key: Any) -> Any: ...
    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...


@runtime_checkable
class SeriesLike(ArrayLike, Protocol):
    """A column of a frame."""

    @property
    def values(self) -> Any: ...


@runtime_checkable
class Transformable(Protocol):
    """Columns that operators can transform.

    >>> import pandas
    >>> isinstance(pandas.DataFrame({"a": [1]}), Transformable)
    True
    """

    @property
    def columns(self) -> Any: ...
    def __getitem__(self, key: Any) -> Any: ...


@runtime_checkable
class DataFrameLike(Transformable, Protocol):
    """A frame."""

    def __len__(self) -> int: ...
    def merge(self, *args: Any, **kwargs: Any) -> Any: ...

"""Where files lie: local paths and fsspec URLs, and how large a thing is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fsspec
from fsspec.core import url_to_fs

from penstock.core.errors import DataError, ParameterError, PenstockError


def is_remote(path: str) -> bool:
    """Whether `path` is an fsspec URL of another file system than the local one."""
    return "://" in path and not path.startswith("file://")


def local_path(path: str | os.PathLike[str]) -> str:
    return os.fspath(path).removeprefix("file://")


def filesystem(path: str, storage_options: dict[str, Any] | None = None) -> fsspec.AbstractFileSystem:
    """The fsspec file system that `path` lives on."""
    try:
        return url_to_fs(path, **(storage_options or {}))[0]
    except (ImportError, ValueError) as error:  # fsspec says what to install, or that there is no such protocol
        raise ParameterError(f"{path} cannot be reached: {error}") from error


@contextmanager
def reaching(url: str) -> Iterator[None]:
    """A block in which whatever a remote file system raises is an error that names the URL: each has its classes."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:
        raise DataError(f"{url} cannot be reached: {type(error).__name__}: {error}") from error


def parse_bytes(size: int | str) -> int:
    """A byte count, or text such as `"64MB"`.

    >>> parse_bytes("64MB"), parse_bytes("1.5 GiB"), parse_bytes(10)
    (64000000, 1610612736, 10)
    """
    if isinstance(size, (int, float)) and not isinstance(size, bool) and size >= 1:
        return int(size)
    if isinstance(size, str):
        text = size.strip().upper().replace(" ", "")
        for suffix, factor in _UNITS:
            if text.endswith(suffix):
                try:
                    return max(1, int(float(text.removesuffix(suffix)) * factor))
                except ValueError:
                    break
    raise ParameterError(f"a size must be a number of bytes ≥ 1 or text such as '64MB' or '1GiB', got {size!r}")


_UNITS = (
    ("KIB", 2**10), ("MIB", 2**20), ("GIB", 2**30), ("TIB", 2**40),
    ("KB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12), ("B", 1), ("", 1),
)  # fmt: skip

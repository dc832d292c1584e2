"""`merlin.io.worker`: tables that a process keeps between tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.core.extras import require
from penstock.core.params import OneOf, check

__all__ = ["clean_worker_cache", "fetch_table_data", "get_worker_cache"]

_lock = threading.RLock()
_caches: dict[str, dict[Any, Any]] = {}


@contextmanager
def get_worker_cache(name: str) -> Iterator[dict[Any, Any]]:
    """A dict of this process under a name; nobody else changes it meanwhile.

    >>> with get_worker_cache("tables") as cache:
    ...     cache["a"] = 1
    >>> with get_worker_cache("tables") as cache:
    ...     cache
    {'a': 1}
    >>> clean_worker_cache("tables")
    """
    with _lock:
        yield _caches.setdefault(name, {})


def clean_worker_cache(name: str | None = None) -> None:
    """Let go of what is kept under a name, or of everything."""
    with _lock:
        for known in list(_caches) if name is None else [name]:
            _caches.pop(known, None)


def fetch_table_data(
    table_cache: dict[Any, Any],
    path: str,
    cache: str = "disk",
    cats_only: bool = False,
    reader: Callable[..., Any] | None = None,
    columns: Any = None,
    **kwargs: Any,
) -> Any:
    """The table of a parquet file as a pandas frame; kept in `table_cache` unless `cache` is `"disk"`.

    With `cats_only` the index, which holds the codes of categories, becomes the column `labels`.
    """
    check("cache", cache, OneOf(("disk", "host", "device")))
    kept = table_cache.get(path)
    if kept is None:
        read = reader or require("pandas", "pandas").read_parquet
        table = read(path, columns=columns, **kwargs)
        if cache != "disk":
            table_cache[path] = table.copy(deep=False)
    else:
        table = kept.copy(deep=False) if hasattr(kept, "iloc") else kept.to_pandas()  # frames, or Arrow's tables
    if cats_only:
        table.index.name = "labels"
        table = table.reset_index(drop=False)
    return table

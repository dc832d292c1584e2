"""The manifest of a data set on another file system: the same promises, with as few requests as they take."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from penstock.core.artefact import SCHEMA_FILE
from penstock.core.bounded import MOST_JSON_BYTES
from penstock.core.errors import DataError
from penstock.data.files import filesystem, is_remote
from penstock.data.manifest import MANIFEST_FILE, Entry, altered, check_complete, parse_manifest, truncated

_TAIL = 1 << 16  # bytes asked for at first of each file: most footers are smaller
_END = 8  # a parquet file ends with the length of its footer and four letters


def check_remote_files(source: Any, files: Iterable[str], storage_options: dict[str, Any] | None) -> dict[str, str]:
    """Refuse a remote data set that is not as it was written.

    Args:
        source: what the user named; of a folder all files must be there and none besides.
        files: the data files found.
        storage_options: passed to fsspec.

    Returns:
        The checksums of schemas that are known, by their paths without protocol.

    Raises:
        DataError: a file is missing, not listed, or other than the manifest says.
    """
    remote = [file for file in files if is_remote(file)]
    schemas: dict[str, str] = {}
    if not remote:
        return schemas
    whole = os.fspath(source).rstrip("/") if isinstance(source, (str, os.PathLike)) else None
    store = filesystem(remote[0], storage_options)
    bare = {file: str(store._strip_protocol(file)) for file in remote}
    root = None if whole is None else str(store._strip_protocol(whole))
    folders = {str(PurePosixPath(path).parent) for path in bare.values()} | ({root} if root else set())
    for folder in sorted(folders):
        manifest = f"{folder}/{MANIFEST_FILE}"
        if not store.exists(manifest):
            continue
        if int(store.size(manifest) or 0) > MOST_JSON_BYTES:
            raise DataError(f"{manifest} is longer than a manifest of a data set can be")
        known = parse_manifest(store.cat_file(manifest), manifest)
        entries = known.files
        if known.schema is not None:
            schemas[f"{folder}/{SCHEMA_FILE}"] = known.schema
        found = {path.removeprefix(f"{folder}/"): file for file, path in bare.items() if path.startswith(f"{folder}/")}
        if folder == root:
            check_complete(folder, entries, found)
        _check_files({name: (bare[found[name]], entries[name]) for name in entries.keys() & found.keys()}, store)
    return schemas


def _check_files(files: Mapping[str, tuple[str, Entry]], store: Any) -> None:
    """Sizes, then the ends of all files in one go."""
    known = sorted(files.values(), key=lambda item: item[0])
    for path, entry in known:
        if (size := int(store.size(path))) != entry["bytes"]:
            raise truncated(path, size, entry)
    starts = [max(0, entry["bytes"] - _TAIL) for _, entry in known]
    tails = store.cat_ranges([path for path, _ in known], starts, [entry["bytes"] for _, entry in known])
    for (path, entry), tail in zip(known, tails, strict=True):
        length = int.from_bytes(tail[-_END:-4], "little") + _END
        footer = tail[-length:] if length <= len(tail) else store.cat_file(path, start=-length)
        if hashlib.sha256(footer).hexdigest() != entry["footer"]:
            raise altered(path)

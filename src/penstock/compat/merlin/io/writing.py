"""`Dataset.to_parquet` under NVTabular's arguments."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.compat.merlin.io.opening import stem
from penstock.core.artefact import SCHEMA_FILE, check_free, staged
from penstock.core.errors import ParameterError
from penstock.data.dataset import Dataset
from penstock.data.files import is_remote, local_path
from penstock.data.formats import format_of_name
from penstock.data.manifest import MANIFEST_FILE, rename_files
from penstock.data.partition import SlicedPartition

_NUMBERED = re.compile(r"part[-_]\d+\.parquet")


def write(
    data: Dataset,
    output_path: str | os.PathLike,
    shuffle: str | None,
    names: Sequence[str] | None,
    num_files: int | None,
    row_group_size: int,
    partition_on: Any,
    suffix: str | None,
    engine: Any = None,
) -> None:
    """Write parquet files, over what an earlier run wrote to the same folder."""
    path = os.fspath(output_path)
    if names is not None:
        num_files = len(names)
    options: dict[str, Any] = {
        "shuffle": shuffle, "num_files": num_files, "row_group_size": row_group_size, "partition_by": partition_on,
        "engine": engine,
    }  # fmt: skip
    if is_remote(path):
        if names is not None:
            raise ParameterError("output_files as a list of names is written to a local folder only")
        data.to_parquet(path, overwrite=True, **options)
        return
    place = Path(local_path(path))
    if _holds_only_data(place):
        with staged(place, overwrite=True) as folder:
            _write_named(data, folder, names, suffix, options)
        return
    if not (place / SCHEMA_FILE).exists() and _data_files(place):
        check_free(place, overwrite=True)  # the data of others is not mixed with ours: says so
    # The folder holds other things too (the categories of a workflow, say): these stay, and the data is among them.
    folder = place / f".{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
        _write_named(data, folder, names, suffix, options)
        (folder / MANIFEST_FILE).unlink()  # the data is not alone here: what is there is what is read
        (place / MANIFEST_FILE).unlink(missing_ok=True)
        for file in _data_files(place):
            if _NUMBERED.fullmatch(file.name):
                file.unlink()
        for file in sorted(folder.iterdir(), key=lambda f: f.name == SCHEMA_FILE):
            file.replace(place / file.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_named(
    data: Dataset, folder: Path, names: Sequence[str] | None, suffix: str | None, options: dict[str, Any]
) -> None:
    """Write, and give the files the names asked for, or those that NVTabular gave."""
    data.to_parquet(folder, **options)
    files = sorted(folder.glob("part-*.parquet"))
    wanted = names if names is not None else [f"part_{i}{suffix or ''}" for i in range(len(files))]
    rename_files(folder, {file.name: name for file, name in zip(files, wanted, strict=True)})


def _data_files(place: Path) -> list[Path]:
    return [file for file in place.iterdir() if file.is_file() and format_of_name(file.name) is not None]


def _holds_only_data(place: Path) -> bool:
    """Whether the place is free, or holds nothing but what an earlier write left, so that it can be replaced whole."""
    if not place.is_dir() or not any(place.iterdir()):
        return True
    data = set(_data_files(place))
    others = [file for file in place.iterdir() if file not in data and "=" not in file.name]
    return SCHEMA_FILE in (names := {file.name for file in others}) and names <= {SCHEMA_FILE, MANIFEST_FILE}


def by_file(data: Dataset) -> tuple[Dataset, list[str]]:
    """One partition for each file that the data came from, and the files' names."""
    groups: dict[str, list[Any]] = {}
    for part in data.partitions:
        if part.path is None:
            raise ParameterError(
                "preserve_files=True keeps the files of data that came from files; this came from memory"
            )
        groups.setdefault(part.path, []).append(part)
    parts = [SlicedPartition(tuple(group), 0, sum(p.count() for p in group)) for group in groups.values()]
    return Dataset.from_partitions(parts, data.schema), [f"{stem(path)}.parquet" for path in groups]

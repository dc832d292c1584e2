"""`Dataset.to_parquet` under NVTabular's arguments."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.compat.merlin.io.opening import stem
from penstock.core.artefact import MANIFEST, SCHEMA_FILE
from penstock.core.errors import ParameterError
from penstock.data.dataset import Dataset
from penstock.data.files import FORMATS, is_remote, local_path, suffixes
from penstock.data.partition import SlicedPartition


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
    if not _beside_other_files(place):
        data.to_parquet(place, overwrite=True, **options)
        _rename(place, names, suffix)
        return
    # The folder holds other things (the categories of a workflow, say): the data goes in among them.
    staging = place / f".{uuid.uuid4().hex[:8]}"
    try:
        data.to_parquet(staging, **options)
        _rename(staging, names, suffix)
        for file in sorted(staging.iterdir(), key=lambda f: f.name == SCHEMA_FILE):
            file.replace(place / file.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _beside_other_files(place: Path) -> bool:
    """Whether the folder holds files, none of them data that would be mixed up with what is written."""
    if not place.is_dir() or any((place / mark).exists() for mark in (SCHEMA_FILE, MANIFEST)):
        return False
    found = list(place.iterdir())
    return bool(found) and not any(f.is_file() and suffixes(f.name)[0] in FORMATS for f in found)


def _rename(place: Path, names: Sequence[str] | None, suffix: str | None) -> None:
    """Give the written files the names asked for."""
    files = sorted(place.glob("part-*.parquet"))
    if names is None and suffix == ".parquet":
        return
    wanted = names if names is not None else [f.stem + (suffix or "") for f in files]
    for file, name in zip(files, wanted, strict=True):
        file.replace(place / name)


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

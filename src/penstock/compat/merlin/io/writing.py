"""`Dataset.to_parquet` under NVTabular's arguments."""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from penstock.compat.merlin.io._reading import together
from penstock.compat.merlin.io.hugectr import KEYSET_FILE
from penstock.compat.merlin.schema import Schema
from penstock.compat.merlin.schema._tensorflow_metadata import TensorflowMetadata
from penstock.core.artefact import SCHEMA_FILE, check_free, replacing, staged
from penstock.core.errors import ParameterError
from penstock.core.schema import Role
from penstock.data.dataset import Dataset
from penstock.data.files import is_remote, local_path, parse_bytes
from penstock.data.formats import format_of_name
from penstock.data.manifest import MANIFEST_FILE, rename_files

MERLIN_FOLDER = ".merlin"
_OWN_FILES = {
    SCHEMA_FILE,
    MANIFEST_FILE,
    MERLIN_FOLDER,
    "schema.pbtxt",
    "_metadata",
    "_metadata.json",
    "_file_list.txt",
    KEYSET_FILE,
}
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
            _write_named(data, folder, names, suffix, options, place)
        return
    if not (place / SCHEMA_FILE).exists() and _data_files(place):
        check_free(place, overwrite=True)  # the data of others is not mixed with ours: says so
    # The folder holds other things too (the categories of a workflow, say): these stay, and the data is among them.
    folder = place / f".{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
        _write_named(data, folder, names, suffix, options, place)
        (folder / MANIFEST_FILE).unlink()  # the data is not alone here: what is there is what is read
        (place / MANIFEST_FILE).unlink(missing_ok=True)
        for file in _data_files(place):
            if _NUMBERED.fullmatch(file.name):
                file.unlink()
        shutil.rmtree(place / MERLIN_FOLDER, ignore_errors=True)
        for file in sorted(folder.iterdir(), key=lambda f: f.name == SCHEMA_FILE):
            file.replace(place / file.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_named(
    data: Dataset, folder: Path, names: Sequence[str] | None, suffix: str | None, options: dict[str, Any], place: Path
) -> None:
    """Write, and give the files the names asked for, or those that NVTabular gave; with what it left beside them."""
    data.to_parquet(folder, **options)
    files = sorted(folder.glob("part-*.parquet"))
    wanted = names if names is not None else [f"part_{i}{suffix or ''}" for i in range(len(files))]
    rename_files(folder, {file.name: name for file, name in zip(files, wanted, strict=True)})
    describe(data, folder)
    if not options.get("partition_by"):
        write_lists(folder, list(wanted), place, data)


def describe(data: Dataset, folder: Path) -> None:
    """The schema in the two forms that Merlin's libraries read."""
    described = TensorflowMetadata.from_merlin_schema(Schema.from_native(data.schema))
    described.to_proto_text_file(folder)
    described.to_json_file(folder / MERLIN_FOLDER)


def write_lists(folder: Path, names: list[str], place: Path, data: Dataset) -> None:
    """All footers in one file, the list of files, and which columns are what, as tools beside NVTabular read them."""
    stats = [{"file_name": name, "num_rows": pq.read_metadata(folder / name).num_rows} for name in names]
    _write_footers(folder, names)
    (folder / "_file_list.txt").write_text("\n".join([str(len(names)), *(str(place / name) for name in names)]) + "\n")
    roles = {"cats": Role.CATEGORICAL, "conts": Role.CONTINUOUS, "labels": Role.LABEL}
    columns = {
        key: [{"col_name": c.name, "index": i} for i, c in enumerate(data.schema) if c.role is role]
        for key, role in roles.items()
    }
    (folder / "_metadata.json").write_text(json.dumps({"data_paths": names, "file_stats": stats, **columns}))


def _write_footers(folder: Path, names: Sequence[str]) -> None:
    whole: Any = None
    for name in names:
        footer = pq.read_metadata(folder / name)
        footer.set_file_path(name)
        if whole is None:
            whole = footer
        else:
            whole.append_row_groups(footer)
    if whole is not None:
        with replacing(folder / "_metadata") as partial:
            whole.write_metadata_file(partial)


def well_laid_out(
    data: Dataset, add_footers: bool, need_footers: bool, largest_group: int | str, smallest_file: int | str
) -> bool:
    """Whether a data set's files are such as NVTabular read well."""
    files = list(dict.fromkeys(part.path for part in data.partitions))
    if not all(file and not is_remote(file) and file.endswith((".parquet", ".parq", ".pq")) for file in files):
        return False
    places = [Path(str(file)) for file in files]
    folder = places[0].parent
    if add_footers and not (folder / "_metadata").exists():
        _write_footers(folder, [place.name for place in places])
    if need_footers and not (folder / "_metadata").exists():
        return False
    most, least = parse_bytes(largest_group), parse_bytes(smallest_file) if smallest_file else 0
    for place in places:
        footer = pq.read_metadata(place)
        groups = [footer.row_group(i).total_byte_size for i in range(footer.num_row_groups)]
        if max(groups, default=0) > most or place.stat().st_size < least:
            return False
    return True


def _data_files(place: Path) -> list[Path]:
    return [file for file in place.iterdir() if file.is_file() and format_of_name(file.name) is not None]


def _holds_only_data(place: Path) -> bool:
    """Whether the place is free, or holds nothing but what an earlier write left, so that it can be replaced whole."""
    if not place.is_dir() or not any(place.iterdir()):
        return True
    data = set(_data_files(place))
    others = [file for file in place.iterdir() if file not in data and "=" not in file.name]
    return SCHEMA_FILE in (names := {file.name for file in others}) and names <= _OWN_FILES


def by_file(data: Dataset, base: Dataset, suffix: str | None) -> tuple[Dataset, list[str]]:
    """One partition for each file that the data came from, and names for them with a suffix.

    The files are those of the base data set, where the data is what Dask made of its partitions.
    """
    known = base if all(part.path is None for part in data.partitions) else data
    if any(part.path is None for part in known.partitions) or len(known.partitions) != len(data.partitions):
        raise ParameterError(
            "preserve_files=True keeps the files of data that came from files; this came from memory (if Dask made it "
            "of the partitions of another data set, give that one as base_dataset)"
        )
    groups: dict[str, list[Any]] = {}
    for part, origin in zip(data.partitions, known.partitions, strict=True):
        groups.setdefault(str(origin.path), []).append(part)
    parts = [together(group) for group in groups.values()]
    return Dataset.from_partitions(parts, data.schema), [_named_as(path, suffix or "") for path in groups]


def _named_as(path: str, suffix: str) -> str:
    """The name of a file for what is made of it; a suffix that names a format gives way to the new one.

    >>> _named_as("in/day.0.csv", ".parquet"), _named_as("in/0.part", ".pq")
    ('day.0.parquet', '0.part.pq')
    """
    name = Path(path).name
    root, _, last = name.rpartition(".")
    return f"{root if suffix and last in ('parquet', 'csv', 'avro', 'orc') else name}{suffix}"


def by_place(data: Dataset, places: Sequence[Any]) -> Dataset:
    """One partition for each list of numbers of partitions (or a single number)."""
    groups = [[place] if isinstance(place, int) else list(place) for place in places]
    for number in (number for group in groups for number in group):
        if not 0 <= number < len(data.partitions):
            raise ParameterError(f"output_files names partition {number}; there are {len(data.partitions)}")
    return Dataset.from_partitions([together([data.partitions[n] for n in group]) for group in groups], data.schema)

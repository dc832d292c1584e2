"""The manifest of a data set: which files belong to it, and how each of them ends.

`to_parquet` writes `_manifest.json` beside the schema: for each file its size, its rows and the SHA-256 of its footer,
which says where every page lies; and the SHA-256 of the schema. Opening a folder checks these, so that a part that is
missing, cut off, left from elsewhere or exchanged is refused; it costs a read of some kilobytes a file. The pages
themselves carry a CRC-32, which is checked when they are read, and of all pages by `verify`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.artefact import SCHEMA_FILE
from penstock.core.bounded import MOST_JSON_BYTES, check_fields, parse_json
from penstock.core.durable import settle
from penstock.core.errors import ArtefactError, DataError
from penstock.core.params import STR, Instance, Int
from penstock.data.files import is_remote, local_path

MANIFEST_FILE = "_manifest.json"
_KIND, _VERSION = "data", 1
_TAIL = 8  # a parquet file ends with the length of its footer and four letters
_MOST_FOOTER = 1 << 30
_ENTRY = {"bytes": Int(min=0), "rows": Int(min=0), "footer": STR}
Entry = Mapping[str, Any]


def entry_of(path: Path) -> dict[str, Any]:
    """What the manifest says of a parquet file."""
    return {"bytes": path.stat().st_size, "rows": pq.read_metadata(path).num_rows, "footer": _footer_checksum(path)}


@dataclass(frozen=True)
class Manifest:
    """What is known of a data set: an entry for each file, and the schema's checksum where it was written down."""

    files: Mapping[str, Entry] = field(default_factory=dict)
    schema: str | None = None


def write_manifest(folder: Path, entries: Mapping[str, Entry]) -> None:
    """Write down which files belong to the data set in `folder`, whose schema is there."""
    schema = checksum((folder / SCHEMA_FILE).read_bytes())
    content = {"penstock": _KIND, "version": _VERSION, "schema": schema, "files": dict(sorted(entries.items()))}
    (folder / MANIFEST_FILE).write_text(json.dumps(content, indent=1))


def checksum(content: bytes) -> str:
    """What a manifest says of a schema's bytes."""
    return hashlib.sha256(content).hexdigest()


def rename_files(folder: Path, names: Mapping[str, str]) -> None:
    """Give files of a data set other names, in the manifest too."""
    entries = (read_manifest(folder) or Manifest()).files
    for before, after in names.items():
        (folder / before).replace(folder / after)
    if entries:
        write_manifest(folder, {names.get(name, name): entry for name, entry in entries.items()})


def read_manifest(folder: Path) -> Manifest | None:
    """The files that belong to the data set in `folder` and what is known of each, if that was written down."""
    path = folder / MANIFEST_FILE
    if not path.is_file():
        return None
    if path.stat().st_size > MOST_JSON_BYTES:
        raise DataError(f"{path} is longer than a manifest of a data set can be")
    return parse_manifest(path.read_bytes(), path)


def parse_manifest(content: bytes, path: str | Path) -> Manifest:
    """What a manifest's bytes say, which were read from `path`."""
    fields = {"penstock": STR, "version": Int(), "files": Instance(dict, "a mapping of files")}
    try:
        found = parse_json(content, Path(path), fields)
        if found["penstock"] != _KIND or found["version"] != _VERSION:
            raise ArtefactError(f"{path} is a manifest of {found['penstock']!r} in format {found['version']}")
        for name, entry in found["files"].items():
            check_fields(entry, _ENTRY, f"{path}, {name!r}")
        if "schema" in found:  # older ones have none
            check_fields(found, {"schema": STR}, path)
    except ArtefactError as error:
        raise DataError(f"{error}; write the data set again, or remove {path} to read what is there") from error
    return Manifest(found["files"], found.get("schema"))


def settle_folder(source: Any) -> None:
    """Finish what a writer that was stopped had begun to put where a local data set is read from."""
    if isinstance(source, (str, os.PathLike)) and not is_remote(os.fspath(source)):
        try:
            settle(local_path(os.fspath(source)))
        except OSError:  # a reader may not be allowed to write: it sees what there is
            return


def version(source: Any) -> tuple[int, int] | None:
    """What tells the data set in a local folder from one that takes its place."""
    if not isinstance(source, (str, os.PathLike)) or is_remote(os.fspath(source)):
        return None
    try:
        found = Path(local_path(os.fspath(source)), MANIFEST_FILE).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def check_version(source: Any, before: tuple[int, int] | None) -> None:
    """Refuse a data set that was replaced while it was opened: its files may be of both."""
    if version(source) != before:
        raise DataError(f"{os.fspath(source)} was replaced while it was opened; open the data set again")


def check_files(source: Any, files: Iterable[str]) -> dict[str, str]:
    """Refuse a data set that is not as it was written.

    Args:
        source: what the user named; of a folder all files must be there and none besides.
        files: the data files found.

    Returns:
        The checksums of schemas that are known, by their paths.

    Raises:
        DataError: a file is missing, not listed, or other than the manifest says.
    """
    local = [Path(file) for file in files if not is_remote(file)]
    whole = None
    if isinstance(source, (str, os.PathLike)) and not is_remote(os.fspath(source)):
        whole = Path(local_path(os.fspath(source)))
    folders = {file.parent for file in local} | ({whole} if whole is not None and whole.is_dir() else set())
    schemas = {}
    for folder in sorted(folders):
        manifest = read_manifest(folder)
        if manifest is None:
            continue
        entries = manifest.files
        if manifest.schema is not None:
            schemas[str(folder / SCHEMA_FILE)] = manifest.schema
        found = {file.relative_to(folder).as_posix(): file for file in local if file.is_relative_to(folder)}
        if folder == whole:
            check_complete(folder, entries, found)
        for name in entries.keys() & found.keys():
            _check_file(found[name], entries[name])
    return schemas


def check_complete(folder: str | Path, entries: Mapping[str, Entry], found: Iterable[str]) -> None:
    """Refuse files of a data set that are missing, or that do not belong to it."""
    manifest, there = f"{folder}/{MANIFEST_FILE}", set(found)
    for name in sorted(entries.keys() - there):
        raise DataError(
            f"{folder}/{name} is missing: the data set was written with {len(entries)} files; copy it again, or remove "
            f"{manifest} to read what is there"
        )
    for name in sorted(there - entries.keys()):
        raise DataError(
            f"{folder}/{name} does not belong to the data set in {folder}; take it away, or remove {manifest} to read "
            f"it too"
        )


def _check_file(path: Path, entry: Entry) -> None:
    size = path.stat().st_size
    if size != entry["bytes"]:
        raise truncated(path, size, entry)
    if _footer_checksum(path) != entry["footer"]:
        raise altered(path)


def truncated(path: str | Path, size: int, entry: Entry) -> DataError:
    """The error for a file of another size than its manifest says."""
    return DataError(
        f"{path} is truncated or altered: {size} bytes, and {entry['bytes']} were written; copy or write it again"
    )


def altered(path: str | Path) -> DataError:
    """The error for a file that ends otherwise than its manifest says."""
    return DataError(f"{path} was altered after it was written (its footer differs); copy or write it again")


def _footer_checksum(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL))
        length = int.from_bytes(file.read(_TAIL)[:4], "little")
        file.seek(max(0, size - _TAIL - min(length, _MOST_FOOTER)))
        return hashlib.sha256(file.read(_TAIL + _MOST_FOOTER)).hexdigest()


def verify_file(path: str) -> int:
    """Check the checksum of every page of a parquet file.

    Args:
        path: of a local file.

    Returns:
        The number of rows.

    Raises:
        DataError: a page is damaged; the file and the row group are named.
    """
    group = 0
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for group in range(file.num_row_groups):
                file.read_row_group(group)
            return int(file.metadata.num_rows)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: row group {group} is damaged ({error}); copy or write the file again") from error

"""The schema that describes data: saved beside it, and laid over what the files themselves say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.core.artefact import SCHEMA_FILE, explaining
from penstock.core.bounded import parse_json, read_json_bytes
from penstock.core.errors import ColumnNotFoundError, DataError
from penstock.core.schema import Schema
from penstock.data.files import filesystem, is_remote
from penstock.data.manifest import MANIFEST_FILE, checksum


def schema_beside(
    source: Any,
    files: list[str],
    storage_options: dict[str, Any] | None,
    checksums: Mapping[str, str] | None = None,
) -> Schema | None:
    """The schema written with the data: in the folder, or beside a single file; `checksums` are those known of some."""
    folders = {f.rsplit("/", 1)[0] if "/" in f else "." for f in files}
    places = [f"{folder}/{SCHEMA_FILE}" for folder in folders] if len(folders) == 1 else []
    if len(files) == 1:
        places.append(f"{files[0]}.schema.json")
    if isinstance(source, str):
        places.append(f"{source.rstrip('/')}/{SCHEMA_FILE}")
    for place in places:
        known = (checksums or {}).get(_bare(place, storage_options))
        with explaining(Path(place), "schema of Penstock"):
            content = _content(place, storage_options)
        if known is not None and (content is None or checksum(content) != known):
            raise DataError(
                f"{place} {'is missing' if content is None else 'was altered after it was written'}; copy or write the "
                f"data set again, or remove {MANIFEST_FILE} beside it to read what is there"
            )
        if content is not None:
            with explaining(Path(place), "schema of Penstock"):
                return Schema.from_dict(parse_json(content, Path(place)))
    return None


def _bare(place: str, storage_options: dict[str, Any] | None) -> str:
    """A path as manifests are known by."""
    return str(filesystem(place, storage_options)._strip_protocol(place) if is_remote(place) else Path(place))


def _content(place: str, storage_options: dict[str, Any] | None) -> bytes | None:
    if is_remote(place):
        remote = filesystem(place, storage_options)
        return bytes(remote.cat_file(place)) if remote.exists(place) else None
    return read_json_bytes(Path(place)) if Path(place).is_file() else None


def merged(found: Schema, described: Schema | None, strict: bool = False, where: str = "the data") -> Schema:
    """The columns found, with roles, tags, cardinality and properties as described."""
    if described is None:
        return Schema(found, found.unread, where)
    if strict:
        for column in described:
            if column.name not in found:
                raise ColumnNotFoundError(column.name, found.names, f"{where} (named in the schema)")
    columns = (
        column
        if (said := described.get(column.name)) is None
        else said.with_(dtype=column.dtype, is_list=column.is_list, properties={**said.properties, **column.properties})
        for column in found
    )
    return Schema(columns, found.unread, where)

"""The schema that describes data: saved beside it, and laid over what the files themselves say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.core.artefact import SCHEMA_FILE, explaining
from penstock.core.bounded import parse_json, read_json
from penstock.core.errors import ColumnNotFoundError
from penstock.core.schema import Schema
from penstock.data.files import filesystem, is_remote


def schema_beside(source: Any, files: list[str], storage_options: dict[str, Any] | None) -> Schema | None:
    """The schema written with the data: in the folder, or beside a single file."""
    folders = {f.rsplit("/", 1)[0] if "/" in f else "." for f in files}
    places = [f"{folder}/{SCHEMA_FILE}" for folder in folders] if len(folders) == 1 else []
    if len(files) == 1:
        places.append(f"{files[0]}.schema.json")
    if isinstance(source, str):
        places.append(f"{source.rstrip('/')}/{SCHEMA_FILE}")
    for place in places:
        with explaining(Path(place), "schema of Penstock"):
            if is_remote(place):
                remote = filesystem(place, storage_options)
                if remote.exists(place):
                    return Schema.from_dict(parse_json(remote.cat_file(place), Path(place)))
            elif Path(place).is_file():
                return Schema.from_dict(read_json(Path(place)))
    return None


def merged(found: Schema, described: Schema | None, strict: bool = False) -> Schema:
    """The columns found, with roles, tags, cardinality and properties as described."""
    if described is None:
        return found
    if strict:
        for column in described:
            if column.name not in found:
                raise ColumnNotFoundError(column.name, found.names, "the data (named in the schema)")
    return Schema(
        column
        if (said := described.get(column.name)) is None
        else said.with_(dtype=column.dtype, is_list=column.is_list, properties={**said.properties, **column.properties})
        for column in found
    )

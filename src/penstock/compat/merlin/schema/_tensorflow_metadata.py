"""Schemas in the form that Merlin wrote beside data: `schema.pbtxt`, later `.merlin/schema.json`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.compat.merlin.schema import ColumnSchema, Schema
from penstock.compat.merlin.schema import _proto as proto
from penstock.compat.merlin.schema.tags import Tags, TagSet, text_of
from penstock.core.artefact import explaining, replacing
from penstock.core.bounded import parse_json
from penstock.core.errors import ArtefactError

_KINDS = {"INT": "int64", "FLOAT": "float32", "BYTES": "str", "STRUCT": "object", "TYPE_UNKNOWN": "unknown"}


class TensorflowMetadata:
    """A schema of `tensorflow_metadata`, read from its text or JSON form, without protocol buffers.

    >>> text = 'feature { name: "user" type: INT int_domain { max: 9 } annotation { tag: "categorical" } }'
    >>> column = TensorflowMetadata.from_proto_text(text).to_merlin_schema()["user"]
    >>> column.int_domain.max, column.dtype.name
    (9, 'int64')
    """

    def __init__(self, schema: Schema | None = None) -> None:
        self._schema = Schema() if schema is None else schema

    @classmethod
    def from_merlin_schema(cls, schema: Schema) -> TensorflowMetadata:
        return cls(schema)

    def to_merlin_schema(self) -> Schema:
        return self._schema

    @classmethod
    def from_proto_text(cls, path_or_proto_text: Any, where: str = "the schema") -> TensorflowMetadata:
        """From the text form."""
        with explaining(Path(where), "schema"):
            message = proto.parse(str(path_or_proto_text), where)
            return cls(Schema([_column(_single(feature), where) for feature in message.get("feature", ())]))

    @classmethod
    def from_proto_text_file(cls, path: Any, file_name: str = "schema.pbtxt") -> TensorflowMetadata:
        """From a file, or from the file of that name in a folder."""
        return cls.from_proto_text(_read(file := _file(path, file_name)), str(file))

    @classmethod
    def from_json(cls, text: Any, where: str = "the schema") -> TensorflowMetadata:
        """From the JSON form."""
        with explaining(Path(where), "schema in JSON"):
            features = parse_json(text if isinstance(text, bytes) else text.encode(), Path(where)).get("feature", ())
            return cls(Schema([_column(_snake(feature), where) for feature in features]))

    @classmethod
    def from_json_file(cls, path: Any, file_name: str = "schema.json") -> TensorflowMetadata:
        return cls.from_json(_read(file := _file(path, file_name)), str(file))

    def copy(self) -> TensorflowMetadata:
        return TensorflowMetadata(self._schema.copy())

    def to_proto_text(self) -> str:
        """The text form."""
        return proto.write({"feature": [_feature(column, _text_extra) for column in self._schema]})

    def to_proto_text_file(self, path: Any, file_name: str = "schema.pbtxt") -> None:
        """Write the text form to a folder."""
        _write(path, file_name, self.to_proto_text())

    def to_json(self) -> str:
        """The JSON form."""
        return json.dumps({"feature": [_camel(_feature(column, _json_extra)) for column in self._schema]})

    def to_json_file(self, path: Any, file_name: str = "schema.json") -> None:
        """Write the JSON form to a folder."""
        _write(path, file_name, self.to_json())


def schema_beside(file: str) -> Schema | None:
    """The schema that Merlin wrote into the folder of a data file, or the one above it; None where there is none."""
    folder = Path(file).parent
    for place in (folder, folder.parent):
        if (place / ".merlin" / "schema.json").is_file():
            return TensorflowMetadata.from_json_file(place / ".merlin" / "schema.json").to_merlin_schema()
        if (place / "schema.pbtxt").is_file():
            return TensorflowMetadata.from_proto_text_file(place / "schema.pbtxt").to_merlin_schema()
    return None


def _file(path: Any, name: str) -> Path:
    return Path(path) / name if Path(path).is_dir() else Path(path)


def _read(file: Path) -> str:
    if not file.is_file():
        raise ArtefactError(f"{file} does not exist")
    with explaining(file, "schema"):
        return file.read_text(encoding="utf-8")


def _write(path: Any, file_name: str, text: str) -> None:
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / file_name) as partial:
        partial.write_text(text)


def _single(message: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Fields that come once by themselves, tags and such as lists."""
    repeated = ("tag", "extra_metadata")
    return {
        name: values if name in repeated else _single(values[0]) if isinstance(values[0], Mapping) else values[0]
        for name, values in message.items()
        if values
    }


def _snake(value: Any) -> Any:
    """JSON spells fields in camel case, and 64-bit numbers as text; further metadata is the user's own."""
    if isinstance(value, Mapping):
        renamed = {k: "".join(f"_{c.lower()}" if c.isupper() else c for c in k) for k in value}
        return {renamed[k]: v if k == "extraMetadata" else _snake(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_snake(v) for v in value]
    return int(value) if isinstance(value, str) and value.lstrip("-").isdigit() else value


def _camel(value: Any) -> Any:
    """Fields as JSON spells them: the way back from `_snake`."""
    if isinstance(value, Mapping):
        spelled = {k: k.split("_")[0] + "".join(part.title() for part in k.split("_")[1:]) for k in value}
        return {spelled[k]: v if k == "extra_metadata" else _camel(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_camel(v) for v in value]
    if isinstance(value, proto.Word):
        return value == "true" if value in ("true", "false") else str(value)
    return str(value) if type(value) is int else value


def _column(feature: Mapping[str, Any], where: str) -> ColumnSchema:
    if "name" not in feature:
        raise ArtefactError(f"{where} describes a feature without a name")
    annotation = feature.get("annotation") or {}
    properties = _properties(annotation.get("extra_metadata") or (), where)
    flags = {k: properties.pop(k, None) for k in ("is_list", "is_ragged")}
    size, dims = properties.pop("dtype_item_size", None), _dims(properties.pop("_dims", None), where)
    kind = _KINDS.get(str(feature.get("type", "TYPE_UNKNOWN")), "unknown")
    if size and kind in ("int64", "float32"):
        kind = f"{kind.rstrip('0123456789')}{int(size)}"
    tags = list(annotation.get("tag") or ())
    domain = feature.get("int_domain") or feature.get("float_domain")
    if domain:
        limits = {"min": 0, "max": 0} if "max" in domain or "min" in domain else {}  # 0 goes without saying
        properties["domain"] = {**limits, **{k: v for k, v in domain.items() if k in ("min", "max", "name")}}
        if domain.get("is_categorical") and Tags.CATEGORICAL not in TagSet._of(tags):
            tags.append(Tags.CATEGORICAL)
    counts = _counts(feature)
    if counts:
        properties["value_count"] = counts
    is_list = True if dims is None and (flags["is_list"] or counts) else None
    return ColumnSchema(str(feature["name"]), TagSet._of(tags), properties, kind, is_list=is_list, dims=dims)


def _dims(dims: Any, where: str) -> tuple[Any, ...] | None:
    """A shape as `_further` writes it: a size, None, or the least and the largest one for each dimension."""
    if not dims:
        return None
    try:
        return tuple(tuple(_size(end) for end in dim) if isinstance(dim, list) else _size(dim) for dim in dims)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArtefactError(f"{where} describes a shape that is none: {dims!r}") from error


def _size(size: Any) -> int | None:
    if size is None:
        return None
    if not 0 <= int(size) < 1 << 63:
        raise ValueError(f"{size} is no size")
    return int(size)


def _properties(extra_metadata: Any, where: str) -> dict[str, Any]:
    """Further properties: plain in JSON, a packed `Struct` in the text form."""
    found: dict[str, Any] = {}
    for extra in extra_metadata:
        if not isinstance(extra, Mapping):
            continue
        packed = next((v[0] if isinstance(v, list) else v for k, v in extra.items() if k == "value"), None)
        if isinstance(packed, (str, bytes)) and "type_url" in extra:
            found |= proto.decode(packed.encode() if isinstance(packed, str) else packed, where)
        found |= {k: v for k, v in extra.items() if not str(k).startswith(("@", "type_url", "value"))}
    return found


def _counts(feature: Mapping[str, Any]) -> dict[str, Any] | None:
    """How many values a row may have; a fixed shape says one number for both."""
    shape = feature.get("shape")
    if isinstance(shape, Mapping) and (dims := shape.get("dim")):
        sizes = [d.get("size") for d in (dims if isinstance(dims, list) else [dims]) if isinstance(d, Mapping)]
        size = sizes[0][0] if sizes and isinstance(sizes[0], list) else sizes[0] if sizes else None
        return None if size is None else {"min": int(size), "max": int(size)}
    counts = feature.get("value_count")
    if counts is None:
        return None
    found = {k: v for k, v in counts.items() if k in ("min", "max")}
    return found if any(found.values()) else {"min": 0, "max": None}


def _feature(column: ColumnSchema, extra: Callable[[Mapping[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    kind = "INT" if column.dtype.is_integer else "FLOAT" if column.dtype.is_float else "BYTES"
    out: dict[str, Any] = {"name": column.name}
    if column.dtype.name not in ("unknown", "bool"):  # the format has no type for truth values, and text is none
        out["type"] = proto.Word(kind)
    counts = column.properties.get("value_count")
    if column.is_list and counts:
        out["value_count"] = {k: v for k, v in counts.items() if v is not None}
    domain = column.properties.get("domain")
    if domain and kind in ("INT", "FLOAT"):
        described = out["int_domain" if kind == "INT" else "float_domain"] = {
            k: v for k, v in domain.items() if v is not None
        }
        if kind == "INT" and Tags.CATEGORICAL in column.tags:
            described["is_categorical"] = proto.Word("true")
    annotation: dict[str, Any] = {"tag": [text_of(tag) for tag in column.tags]} if len(column.tags) else {}
    annotation["extra_metadata"] = [extra(_further(column))]
    return {**out, "annotation": annotation}


def _further(column: ColumnSchema) -> dict[str, Any]:
    """What `tensorflow_metadata` has no field for."""
    own = {k: v for k, v in column.properties.items() if k not in ("domain", "value_count")}
    size = {"dtype_item_size": column.dtype.element_size} if column.dtype.element_size else {}
    shape = {"_dims": [list(dim) if isinstance(dim, tuple) else dim for dim in column.shape.as_tuple or ()]}
    return {**own, **shape, "is_list": bool(column.is_list), "is_ragged": bool(column.is_ragged), **size}


def _json_extra(properties: Mapping[str, Any]) -> dict[str, Any]:
    return dict(properties)


def _text_extra(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type_url": proto.STRUCT_TYPE, "value": proto.encode(properties)}

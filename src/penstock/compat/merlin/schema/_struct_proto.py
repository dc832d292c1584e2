"""The binary form of protocol buffers' `Struct`: plain JSON values, as Merlin keeps a column's properties in a schema.

>>> decode(encode({"unit": "EUR", "sizes": [1.0, None, True]}))
{'unit': 'EUR', 'sizes': [1, None, True]}
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.core.errors import ArtefactError

TYPE = "type.googleapis.com/google.protobuf.Struct"
_NULL, _NUMBER, _TEXT, _BOOL, _STRUCT, _LIST = range(1, 7)
_DEEPEST = 50


def encode(fields: Mapping[str, Any]) -> bytes:
    """A mapping of plain values."""
    out = b""
    for name, value in fields.items():
        out += _piece(1, _piece(1, str(name).encode()) + _piece(2, _encoded(value)))
    return out


def _encoded(value: Any) -> bytes:
    if value is None:
        return _varint(_NULL << 3) + b"\0"
    if isinstance(value, bool):
        return _varint(_BOOL << 3) + bytes([value])
    if isinstance(value, Mapping):
        return _piece(_STRUCT, encode(value))
    if isinstance(value, (list, tuple, set, frozenset)):
        return _piece(_LIST, b"".join(_piece(1, _encoded(item)) for item in value))
    try:
        return _varint(_NUMBER << 3 | 1) + struct.pack("<d", value)
    except struct.error:
        return _piece(_TEXT, str(value).encode())


def decode(data: bytes, where: str = "the schema") -> dict[str, Any]:
    """The mapping that `encode` wrote; whole numbers come as integers, as Merlin's readers take them."""
    try:
        return _fields(data, 0)
    except (IndexError, ValueError, struct.error, RecursionError, KeyError) as error:
        raise ArtefactError(f"{where} holds properties of a column that are damaged ({error})") from error


def _fields(data: bytes, depth: int) -> dict[str, Any]:
    if depth > _DEEPEST:
        raise ValueError("nested too deep")
    out = {}
    for _, entry in _pieces(data):
        found = dict(_pieces(entry))
        out[found[1].decode()] = _decoded(found.get(2, b""), depth)
    return out


def _decoded(data: bytes, depth: int) -> Any:
    for kind, value in _pieces(data):
        if kind == _NUMBER:
            return int(value) if value.is_integer() else value
        if kind == _TEXT:
            return value.decode()
        if kind == _BOOL:
            return bool(value)
        if kind == _STRUCT:
            return _fields(value, depth + 1)
        if kind == _LIST:
            if depth > _DEEPEST:
                raise ValueError("nested too deep")
            return [_decoded(item, depth + 1) for _, item in _pieces(value)]
    return None


def _piece(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _pieces(data: bytes) -> Iterator[tuple[int, Any]]:
    """`(field number, value)` of a message, bytes for what is nested."""
    place = 0
    while place < len(data):
        key, place = _read_varint(data, place)
        if key & 7 == 0:
            value, place = _read_varint(data, place)
            yield key >> 3, value
        elif key & 7 == 1:
            yield key >> 3, struct.unpack_from("<d", data, place)[0]
            place += 8
        elif key & 7 == 2:
            size, place = _read_varint(data, place)
            if place + size > len(data):
                raise ValueError("a field ends beyond the data")
            yield key >> 3, data[place : place + size]
            place += size
        else:
            raise ValueError(f"a field of kind {key & 7}")


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError("a number without an end")

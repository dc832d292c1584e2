"""Thrift's compact protocol as trees that a fuzzer can change: a struct is a list of [field, kind, value]."""

from __future__ import annotations

import struct
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
INTEGERS = (I16, I32, I64)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def write_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _signed(raw: int) -> int:
    return raw >> 1 ^ -(raw & 1)


def _raw(value: int) -> int:
    return (value << 1 ^ value >> 63) & 2**64 - 1


def read_struct(data: bytes, at: int) -> tuple[list, int]:
    """`(fields, next position)`."""
    fields, number = [], 0
    while data[at]:
        delta, kind = data[at] >> 4, data[at] & 15
        at += 1
        if delta:
            number += delta
        else:
            raw, at = read_varint(data, at)
            number = _signed(raw)
        if kind in (TRUE, FALSE):
            fields.append([number, kind, kind == TRUE])
        else:
            value, at = _read(data, at, kind)
            fields.append([number, kind, value])
    return fields, at + 1


def _read(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in INTEGERS:
        raw, at = read_varint(data, at)
        return _signed(raw), at
    if kind in (TRUE, FALSE, BYTE):
        return data[at], at + 1
    if kind == DOUBLE:
        return struct.unpack("<d", data[at : at + 8])[0], at + 8
    if kind == BINARY:
        size, at = read_varint(data, at)
        return data[at : at + size], at + size
    if kind == STRUCT:
        return read_struct(data, at)
    size, item = data[at] >> 4, data[at] & 15
    at += 1
    if size == 15:
        size, at = read_varint(data, at)
    items = []
    for _ in range(size):
        value, at = _read(data, at, item)
        items.append(value)
    return [item, items], at


def write_struct(fields: list) -> bytes:
    out, previous = bytearray(), 0
    for number, kind, value in fields:
        kind = (TRUE if value else FALSE) if kind in (TRUE, FALSE) else kind
        delta = number - previous
        out += bytes([delta << 4 | kind]) if 0 < delta < 16 else bytes([kind]) + write_varint(_raw(number))
        previous = number
        if kind not in (TRUE, FALSE):
            out += _write(kind, value)
    return bytes(out) + b"\0"


def _write(kind: int, value: Any) -> bytes:
    if kind in INTEGERS:
        return write_varint(_raw(value))
    if kind in (TRUE, FALSE, BYTE):
        return bytes([int(value) & 255])
    if kind == DOUBLE:
        return struct.pack("<d", value)
    if kind == BINARY:
        return write_varint(len(value)) + value
    if kind == STRUCT:
        return write_struct(value)
    item, items = value
    head = bytes([len(items) << 4 | item]) if len(items) < 15 else bytes([240 | item]) + write_varint(len(items))
    return head + b"".join(_write(item, v) for v in items)


def get(fields: list, number: int) -> Any:
    """The value of a field, or None."""
    return next((value for n, _, value in fields if n == number), None)


def put(fields: list, number: int, value: Any) -> None:
    """Change a field that is there."""
    for field in fields:
        if field[0] == number:
            field[2] = value


def places(fields: list) -> list[tuple[list, list]]:
    """Every field of a tree with the struct it is in."""
    found = []
    for field in fields:
        found.append((fields, field))
        if field[1] == STRUCT:
            found += places(field[2])
        elif field[1] == LIST and field[2][0] == STRUCT:
            for item in field[2][1]:
                found += places(item)
    return found

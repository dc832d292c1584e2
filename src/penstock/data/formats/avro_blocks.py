"""The frame of an Avro file, looked at before polars decodes it: the header, and how its blocks follow one another.

polars takes the memory that a block promises before it looks at it, and goes as deep as a schema does. Here every
length is held against the bytes that are there, and the schema is parsed within bounds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.core.bounded import parse_json
from penstock.core.errors import ArtefactError, DataError

_MARK = b"Obj\x01"
_SYNC = 16  # bytes of the mark behind the header and behind every block
_MOST_DEPTH = 32  # of types in one another
_MOST_GAIN = {"null": 1, "snappy": 32, "deflate": 1100}  # times that a codec makes bytes fewer
_FREE_ROWS = 1 << 16


def check_blocks(path: str, data: bytes) -> None:
    """Refuse bytes that are no whole Avro file.

    Args:
        path: they were read from.
        data: all of them.

    Raises:
        DataError: a length is impossible, a mark is missing, or the schema is none.
    """
    try:
        at, about = _header(data)
        _check_schema(path, about.get(b"avro.schema", b""))
        codec = about.get(b"avro.codec", b"null").decode("ascii", "replace")
        if codec not in _MOST_GAIN:
            raise ValueError(f"its codec is {codec[:40]!r}, and {', '.join(_MOST_GAIN)} are read")
        sync = data[at : at + _SYNC]
        if len(sync) != _SYNC:
            raise ValueError("it ends in its header")
        at += _SYNC
        while at < len(data):
            at = _block(data, at, sync, codec)
    except (ValueError, IndexError, ArtefactError) as error:
        reason = "it ends inside a number" if isinstance(error, IndexError) else str(error)
        raise DataError(f"{path}: Avro is damaged or truncated ({reason}); write the file again") from error


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A number in Avro's zigzag, and where the next thing begins."""
    raw = shift = 0
    while True:
        byte = data[at]
        at += 1
        raw |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
        if shift > 63:
            raise ValueError("a number has more than 64 bits")
    return (raw >> 1) ^ -(raw & 1), at


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    if not 0 <= size <= len(data) - at:
        raise ValueError(f"{size} bytes are promised, and {len(data) - at} are left")
    return data[at : at + size], at + size


def _header(data: bytes) -> tuple[int, dict[bytes, bytes]]:
    """Where the header's map ends, and what it says."""
    if not data.startswith(_MARK):
        raise ValueError("it does not begin as one does")
    at, found = len(_MARK), dict[bytes, bytes]()
    while True:
        count, at = _long(data, at)
        if count == 0:
            return at, found
        if count < 0:  # then the size of what follows stands before it
            _, at = _long(data, at)
        for _ in range(min(abs(count), len(data))):
            key, at = _bytes(data, at)
            found[key], at = _bytes(data, at)


def _block(data: bytes, at: int, sync: bytes, codec: str) -> int:
    """Where the block at `at` ends."""
    count, at = _long(data, at)
    body, at = _bytes(data, at)
    most = len(body) * _MOST_GAIN[codec]
    if count < 0 or count > most + _FREE_ROWS:
        raise ValueError(f"a block of {len(body)} bytes claims {count} rows")
    if codec == "snappy":
        size = _snappy_size(body)
        if size > most + _SYNC:
            raise ValueError(f"a block of {len(body)} bytes claims to unfold to {size}")
    if data[at : at + _SYNC] != sync:
        raise ValueError("the mark behind a block is missing")
    return at + _SYNC


def _snappy_size(body: bytes) -> int:
    size = shift = at = 0
    while at < len(body):
        size |= (body[at] & 127) << shift
        if body[at] < 128:
            return size
        at, shift = at + 1, shift + 7
        if shift > 35:
            break
    raise ValueError("a block does not begin as snappy does")


def _check_schema(path: str, schema: bytes) -> None:
    """Refuse a schema that is deeper than any is meant, or whose lists hold what takes no bytes."""
    waiting: list[tuple[Any, int]] = [(parse_json(schema, Path(f"{path}: its schema")), 0)]
    while waiting:
        kind, depth = waiting.pop()
        if depth > _MOST_DEPTH:
            raise ValueError(f"its schema is deeper than {_MOST_DEPTH} types in one another")
        if isinstance(kind, list):
            waiting += [(inner, depth + 1) for inner in kind]
        elif isinstance(kind, dict):
            for key in ("items", "values"):
                if kind.get(key) in ("null", {"type": "null"}):
                    raise ValueError("a list in its schema holds nothing")
            waiting += [(inner, depth + 1) for inner in kind.values() if isinstance(inner, (dict, list))]

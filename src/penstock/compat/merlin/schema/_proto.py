"""How Merlin's files spell a schema: the text of protocol buffers, and the binary form of their `Struct`.

Text is taken apart as far as schemas need it: messages as dicts of lists, in the order written.

>>> parse('feature { name: "user" value_count { min: 1 } } # a comment')
{'feature': [{'name': ['user'], 'value_count': [{'min': [1]}]}]}
>>> decode(encode({"unit": "EUR", "sizes": [1.0, None, True]}))
{'unit': 'EUR', 'sizes': [1, None, True]}
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.core.errors import ArtefactError

# The binary form of protocol buffers' `Struct`: plain JSON values, as Merlin keeps a column's properties in a schema.

STRUCT_TYPE = "type.googleapis.com/google.protobuf.Struct"
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


_TOKEN = re.compile(
    r"""\s+ | \#[^\n]* | (?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*') | (?P<mark>[{}\[\]:,;<>])
        | (?P<word>[^\s{}\[\]:,;<>"']+)""",
    re.VERBOSE,
)
_CLOSING = {"{": "}", "<": ">"}


def parse(text: str, where: str = "the schema") -> dict[str, list[Any]]:
    """A message from its text; `where` names the file in errors."""
    return _Tokens(list(_split(text, where)), where).message(None)


def _split(text: str, where: str) -> Iterator[tuple[str, str]]:
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            line = text.count("\n", 0, place) + 1
            raise ArtefactError(f"{where}: line {line} is not the text form of a schema")
        place = found.end()
        if found.lastgroup:
            yield found.lastgroup, found.group()


class _Tokens:
    """Reads messages off a list of tokens."""

    def __init__(self, tokens: list[tuple[str, str]], where: str) -> None:
        self.tokens, self.where, self.place = tokens, where, 0

    def _next(self) -> tuple[str, str]:
        if self.place >= len(self.tokens):
            raise ArtefactError(f"{self.where} ends in the middle of a message; it is truncated")
        self.place += 1
        return self.tokens[self.place - 1]

    def message(self, closing: str | None) -> dict[str, list[Any]]:
        fields: dict[str, list[Any]] = {}
        while True:
            if closing is None and self.place == len(self.tokens):
                return fields
            kind, token = self._next()
            if token == closing:
                return fields
            if token in (",", ";"):
                continue
            name = self._any_name() if token == "[" else token
            if kind == "mark" and token != "[":
                raise ArtefactError(f"{self.where}: {token!r} stands where a field is expected")
            fields.setdefault(name, []).extend(self._values())

    def _any_name(self) -> str:
        name = ""
        while (token := self._next()[1]) != "]":
            name += token
        return name

    def _values(self) -> list[Any]:
        kind, token = self._next()
        if token == ":":
            kind, token = self._next()
        if token in _CLOSING:
            return [self.message(_CLOSING[token])]
        if token == "[":
            found: list[Any] = []
            while self.tokens[self.place][1] != "]":
                found += self._values() if self.tokens[self.place][1] != "," else self._next()[:0]
            self._next()
            return found
        return [self._scalar(kind, token)]

    def _scalar(self, kind: str, token: str) -> Any:
        if kind == "text":
            pieces = [token]
            while self.place < len(self.tokens) and self.tokens[self.place][0] == "text":
                pieces.append(self._next()[1])
            return _text(b"".join(self._bytes(piece) for piece in pieces))
        if token in ("true", "false"):
            return token == "true"
        for number in (int, float):
            try:
                return number(token)
            except ValueError:
                continue
        return token

    def _bytes(self, quoted: str) -> bytes:
        """What a quoted text spells: characters as UTF-8, bytes by their octal or hexadecimal number."""
        try:
            return _ESCAPE.sub(_escaped, quoted[1:-1].encode())
        except (KeyError, ValueError) as error:
            raise ArtefactError(f"{self.where}: {quoted[:40]} is no text of a schema ({error})") from error


_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v", b"\\": b"\\",
            b"'": b"'", b'"': b'"', b"?": b"?"}  # fmt: skip


def _escaped(found: re.Match[bytes]) -> bytes:
    octal, hexadecimal, character, letter = found.groups()
    if octal is not None:
        return bytes([int(octal, 8)])
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    return chr(int(character, 16)).encode() if character is not None else _LETTERS[letter]


def _text(content: bytes) -> str | bytes:
    """Text where it is text; the bytes of a nested message where these are none."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def write(message: Mapping[str, Any], indent: str = "") -> str:
    """The text of a message; lists are repeated fields.

    >>> print(write({"feature": [{"name": "user", "type": Word("INT")}]}), end="")
    feature {
      name: "user"
      type: INT
    }
    """
    lines = []
    for name, values in message.items():
        for value in values if isinstance(values, Sequence) and not isinstance(values, (str, bytes)) else [values]:
            if isinstance(value, Mapping):
                lines.append(f"{indent}{name} {{\n{write(value, indent + '  ')}{indent}}}\n")
            else:
                lines.append(f"{indent}{name}: {_spelled(value)}\n")
    return "".join(lines)


class Word(str):
    """A name that is written without quotes."""


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return '"' + "".join(_spelled_byte(byte) for byte in value) + '"'
    if isinstance(value, str) and not isinstance(value, Word):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return str(value)


def _spelled_byte(byte: int) -> str:
    plain = 0x20 <= byte < 0x7F and chr(byte) not in "\\\"'"
    return chr(byte) if plain else f"\\{byte:03o}"

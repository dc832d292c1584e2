"""The text form of protocol buffers, as far as schemas need it: messages as dicts of lists, in the order written.

>>> parse('feature { name: "user" value_count { min: 1 } } # a comment')
{'feature': [{'name': ['user'], 'value_count': [{'min': [1]}]}]}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.core.errors import ArtefactError

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

"""Separators of more than one character: files that have one are read from a copy with a single one in its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from penstock.core.errors import DataError, ParameterError
from penstock.data.formats.base import OpenOptions
from penstock.data.formats.text_bytes import file_size, windows
from penstock.data.formats.text_sample import first_lines
from penstock.data.formats.text_sniffing import MOSTLY_EVEN, SEPARATORS, cuts_within_fields, is_json, sniff_quote
from penstock.data.scratch import Scratch, ScratchCopy

STAND_IN = "\x1f"  # ASCII's unit separator: what it is for, and in no text
_SNIFFED = "::"  # as MovieLens writes; others have to be told
_PADDED = tuple(pad for mark in SEPARATORS for pad in (f" {mark} ", f"{mark} "))  # with blanks that are no values
_QUOTED = re.compile('"[^"]*"')
_LINES = 200


def long_separator(head: bytes, options: OpenOptions) -> str | None:
    r"""The separator of a file, where it is one of several characters: as it was told, or by the first lines.

    Args:
        head: the first lines.
        options: what was told.

    Returns:
        The separator; None where it is one character, or nobody knows yet.

    Raises:
        ParameterError: what was told can separate nothing.

    >>> long_separator(b"1::1193::5\n1::661::3\n", OpenOptions(1)), long_separator(b"10:30,a::b\n", OpenOptions(1))
    ('::', None)
    >>> long_separator(b"user , price\n1 , 2.5\n", OpenOptions(1)), long_separator(b"a, b,c\n", OpenOptions(1))
    (' , ', None)
    >>> long_separator(b"well, yes\noh, no\n", OpenOptions(1, names=["said"]))
    """
    told = options.separator
    if isinstance(told, str) and len(told) > 1:
        if not told.isascii() or any(mark in told for mark in ("\n", "\r", '"', STAND_IN, options.quote or "\n")):
            raise ParameterError(f"separator must be of ASCII characters, without quotes and line ends, got {told!r}")
        return told
    if told is not None or is_json(head):
        return None
    lines = [line for line in head.decode(errors="replace").splitlines()[:_LINES] if line]
    widths = {line.count(_SNIFFED) for line in lines}
    others = any(_cuts_around_colons(mark, lines) for mark in SEPARATORS)
    if len(widths) == 1 and 0 not in widths and not others and _cuts_into(_SNIFFED, lines, options):
        return _SNIFFED
    lines = [_QUOTED.sub("", line) for line in lines]
    found = (padded for padded in _PADDED if _is_all_there_is(padded, lines))
    return next((padded for padded in found if _cuts_into(padded, lines, options)), None)


def _cuts_around_colons(mark: str, lines: list[str]) -> bool:
    """Whether another separator cuts the lines evenly and colons are in its fields; in titles commas come at times."""
    widths = [line.count(mark) for line in lines]
    usual = max(set(widths), key=widths.count, default=0)
    even = usual > 0 and widths.count(usual) >= MOSTLY_EVEN * len(lines)
    return even and not cuts_within_fields(mark, _SNIFFED, [line.split(mark) for line in lines])


def _cuts_into(separator: str, lines: list[str], options: OpenOptions) -> bool:
    """Whether lines have as many fields as there are names; of text in one column commas are a part."""
    return options.names is None or lines[0].count(separator) + 1 == len(options.names)


def _is_all_there_is(padded: str, lines: list[str]) -> bool:
    """Whether a separator never comes without the blanks beside it, in every line as often, and more so than others."""
    counts = {mark: {line.count(mark) for line in lines} for mark in (padded, *SEPARATORS)}
    if len(lines) < 2 or len(counts[padded]) > 1 or counts[padded] != counts[padded.strip(" ")]:
        return False
    (own,) = counts[padded]
    others = [max(found) for mark, found in counts.items() if mark not in padded and len(found) == 1]
    return own > max(others, default=0)


def with_stand_in(
    path: str, local: str, separator: str, scratch: Scratch | None, options: OpenOptions
) -> tuple[Scratch, str, OpenOptions]:
    """A copy of a file with one character in its separator's place, and the options to read that with.

    Args:
        path: of the file, for errors.
        local: the same as UTF-8.
        separator: of several characters.
        scratch: where the copy goes; a new one where there is none.
        options: what was told. Quotes are text in such files, unless they are among that or the separator is a usual
            one with blanks.

    Returns:
        Where the copy is, its path, and the options.

    Raises:
        DataError: the file has that character already, or there is no room for the copy.
    """
    told = options.quote
    if told is None and separator in _PADDED:
        told = sniff_quote(first_lines(local, options.storage_options).decode(errors="replace"), separator)
    quote = re.escape((told or "").encode())
    quoted = quote + b"[^" + quote + b"]*" + quote + b"|" if quote else b""
    pattern = re.compile(b"(" + quoted + re.escape(separator.encode()) + b")")
    mark, own = STAND_IN.encode(), separator.encode()
    with ScratchCopy(path, f"{Path(local).name}.separated", scratch) as copy:
        for text in _whole_lines(local, options):
            if mark in text:
                raise DataError(f"{path} holds the character {STAND_IN!r}, so it cannot be read with {separator!r}")
            if quoted:
                text = pattern.sub(lambda found: mark if found[0] == own else found[0], text)
            copy.write(text if quoted else text.replace(own, mark))
    return copy.scratch, str(copy.target), replace(options, separator=STAND_IN, quote=told or "")


def _whole_lines(path: str, options: OpenOptions) -> Iterator[bytes]:
    """A file in stretches that end with a line, or with a quoted field's part of it."""
    storage, rest = options.storage_options, b""
    for _, window in windows(path, 0, file_size(path, storage), storage):
        whole, newline, rest = (rest + window.tobytes()).rpartition(b"\n")
        yield whole + newline
    yield rest

"""Names of files: those that come from data, and those that nothing can be called by."""

from __future__ import annotations

import hashlib
import os
import re

from penstock.core.errors import PenstockError

_LONGEST_PART = 255  # bytes, on most file systems
_MOST_BYTES = 180  # most file systems take 255, and writers put something before and behind


def file_name(name: str) -> str:
    """A name as part of a file's name: it leads to no other folder, and is not too long; most stay as they are.

    Two names that differ give two names.

    >>> file_name("user id"), file_name("../user"), file_name("100%")
    ('user id', '..%2fuser', '100%25')
    """
    plain = re.sub(r"[/\\\0%]", lambda found: f"%{ord(found[0]):02x}", name)
    content = plain.encode(errors="surrogatepass")
    if len(content) <= _MOST_BYTES:
        return plain
    return content[:_MOST_BYTES].decode(errors="ignore") + "%" + hashlib.sha256(content).hexdigest()[:16]


def check_path(path: str | os.PathLike[str], error: type[PenstockError], spare: int = 0, is_utf8: bool = True) -> None:
    """Refuse a local path that the system, or one of the libraries that read it, cannot take.

    Args:
        path: of a file or folder; it need not be there.
        error: what is raised.
        spare: bytes that are put before and behind the last part while it is written.
        is_utf8: whether it must be UTF-8, which polars and Arrow want of what they open by its name.

    Raises:
        PenstockError: of the kind given; the message says what is wrong with it.

    >>> from penstock.core.errors import DataError
    >>> check_path("folder/" + 300 * "x", DataError)
    Traceback (most recent call last):
    ...
    penstock.core.errors.DataError: folder/xxx...
    """
    text = os.fspath(path)
    shown = text.encode(errors="backslashreplace").decode()[:200].replace("\0", "\\x00")
    if "\0" in text:
        raise error(f"{shown} is no path: it holds a byte of nought")
    if is_utf8 and any(0xD800 <= ord(letter) < 0xE000 for letter in text if letter > "\x7f"):
        raise error(f"{shown} is not named in UTF-8, as the libraries that open it need; rename it")
    parts = [len(os.fsencode(part)) for part in text.split("/")]
    if max(parts) > _LONGEST_PART or parts[-1] > _LONGEST_PART - spare:
        raise error(f"{shown}… has a part that is too long for a file's name; shorten it")

"""Names that come from data as names of files."""

from __future__ import annotations

import hashlib
import re

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

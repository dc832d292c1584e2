"""Text of others on a terminal: what would move its cursor, colour it or turn its lines around is spelled out."""

from __future__ import annotations

import unicodedata

_LINES = "\n\t"
_HARMFUL = {"Cc", "Zl", "Zp", "Cs"}  # controls, separators of lines, halves of characters
_TURNING = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}  # the direction of what follows


def _is_harmful(code: int) -> bool:
    return chr(code) not in _LINES and (code in _TURNING or unicodedata.category(chr(code)) in _HARMFUL)


_SPELLED = {code: ascii(chr(code))[1:-1] for code in (*range(0x2100), *range(0xD800, 0xE000)) if _is_harmful(code)}


def printable(text: str) -> str:
    """The text with every character that a terminal would obey spelled out; newlines and tabs stay.

    >>> printable("price\\x1b[2J"), printable("naïve 価格")
    ('price\\\\x1b[2J', 'naïve 価格')
    """
    return text.translate(_SPELLED)

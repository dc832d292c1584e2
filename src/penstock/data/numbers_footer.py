"""What the footer of a parquet file of flat numbers says: thrift's compact protocol, what all files share made once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

_PHYSICAL = {pa.int32(): 1, pa.int64(): 2, pa.float32(): 4, pa.float64(): 5}  # parquet's types by Arrow's
_PLAIN, _RLE, _DICTIONARY = 0, 3, 8
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12  # thrift's, in its compact protocol
Group = tuple[int, int, np.ndarray]  # rows, where it begins, sizes of its columns (and of their dictionaries)


def is_known(kind: pa.DataType) -> bool:
    """Whether columns of an Arrow type are numbers that a footer can speak of."""
    return kind in _PHYSICAL


class FooterWords:
    """What footers of one schema have in common.

    Args:
        schema: of columns for whose types `is_known` is true.
    """

    def __init__(self, schema: pa.Schema) -> None:
        names, kinds = [name.encode() for name in schema.names], [_PHYSICAL[kind] for kind in schema.types]
        root = _struct([(4, _BINARY, _text(b"schema")), (5, _I32, _number(len(names)))])
        leaves = [
            _struct([(1, _I32, _number(kind)), (3, _I32, _number(1)), (4, _BINARY, _text(name))])
            for name, kind in zip(names, kinds, strict=True)
        ]
        self._begin = _fields([(1, _I32, _number(2)), (2, _LIST, _list(_STRUCT, [root, *leaves]))])
        self._columns = [
            [
                _fields([(1, _I32, _number(kind)), _ENCODINGS[has_codes], (3, _LIST, path), (4, _I32, _number(0))])
                for has_codes in (False, True)
            ]
            for kind, path in zip(kinds, [_list(_BINARY, [_text(name)]) for name in names], strict=True)
        ]

    def footer(self, groups: Sequence[Group]) -> bytes:
        """The footer of a file with these row groups."""
        total = sum(rows for rows, _, _ in groups)
        return self._begin + _fields([
            (3, _I64, _number(total)),
            (4, _LIST, _list(_STRUCT, [self._group(*group) for group in groups])),
            (6, _BINARY, _text(b"penstock")),
        ], after=2) + b"\0"  # fmt: skip

    def _group(self, num_rows: int, begin: int, chunks: np.ndarray) -> bytes:
        """What is said of a row group: by far the most of it, so that fields are put together by hand."""
        head, columns, total = _step(5, 4, _I64) + _number(num_rows), [], int(chunks[:, 0].sum())
        for fixed, (size, dictionary_size) in zip(self._columns, chunks.tolist(), strict=True):
            length, place = _number(size), _number(begin + dictionary_size)
            if dictionary_size:
                place += _DICTIONARY_AT + _number(begin)
            sizes = head + _SIZE + length + _SIZE + length
            columns.append(_COLUMN + fixed[dictionary_size > 0] + sizes + _PAGES_AT + place + _ENDS)
            begin += size
        return _struct([(1, _LIST, _list(_STRUCT, columns)), (2, _I64, _number(total)), (3, _I64, _number(num_rows))])


_Field = tuple[int, int, bytes]  # number, kind, content


def _struct(fields: Iterable[_Field]) -> bytes:
    """A thrift struct; its fields come by rising number, no two more than 15 apart."""
    return _fields(fields) + b"\0"


def _fields(fields: Iterable[_Field], after: int = 0) -> bytes:
    """Fields of a struct, behind the one of number `after`."""
    listed = list(fields)
    numbers = [after, *(number for number, _, _ in listed)]
    pieces = [_step(n, b, kind) + content for (b, n), (_, kind, content) in zip(pairwise(numbers), listed, strict=True)]
    return b"".join(pieces)


def _step(number: int, before: int, kind: int) -> bytes:
    """How a field begins, behind the one of number `before`."""
    return bytes([number - before << 4 | kind])


def _list(kind: int, items: list[bytes]) -> bytes:
    count = len(items)
    head = bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + _varint(count)
    return head + b"".join(items)


def _text(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _number(value: int) -> bytes:
    """An integer that is not negative, zigzag."""
    return _varint(value << 1)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ENCODINGS: dict[bool, _Field] = {
    has_codes: (2, _LIST, _list(_I32, [_number(e) for e in ([_PLAIN, _RLE] + [_DICTIONARY] * has_codes)]))
    for has_codes in (False, True)
}
# A column of a row group: where its file is (here), and what is said of it: sizes, both of which are the same where
# nothing is compressed, the place of its pages and that of its dictionary.
_COLUMN = _fields([(2, _I64, _number(0))]) + _step(3, 2, _STRUCT)
_SIZE, _PAGES_AT, _DICTIONARY_AT, _ENDS = _step(6, 5, _I64), _step(9, 7, _I64), _step(11, 9, _I64), b"\0\0"

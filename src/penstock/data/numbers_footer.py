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
        heads = []
        for kind, name in zip(kinds, names, strict=True):
            path = _list(_BINARY, [_text(name)])
            for encodings in _ENCODINGS:
                about = [(1, _I32, _number(kind)), encodings, (3, _LIST, path), (4, _I32, _number(0))]
                heads.append(_COLUMN + _fields(about) + _step(5, 4, _I64))
        self._heads = np.frombuffer(bytearray(b"".join(heads)), np.uint8)
        self._bounds = np.cumsum([0, *map(len, heads)])

    def footer(self, groups: Sequence[Group]) -> bytes:
        """The footer of a file with these row groups."""
        total = sum(rows for rows, _, _ in groups)
        return self._begin + _fields([
            (3, _I64, _number(total)),
            (4, _LIST, _list(_STRUCT, [self._group(*group) for group in groups])),
            (6, _BINARY, _text(b"penstock")),
        ], after=2) + b"\0"  # fmt: skip

    def _group(self, num_rows: int, begin: int, chunks: np.ndarray) -> bytes:
        """What is said of a row group."""
        from penstock.kernels.cpu_parquet_words import MOST_BYTES, put_columns

        out = np.empty(len(self._heads) + len(chunks) * MOST_BYTES, np.uint8)
        end = put_columns(self._heads, self._bounds, chunks, num_rows, begin, out)
        columns = _list_head(_STRUCT, len(chunks)) + out[:end].tobytes()
        total = int(chunks[:, 0].sum())
        return _struct([(1, _LIST, columns), (2, _I64, _number(total)), (3, _I64, _number(num_rows))])


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
    return _list_head(kind, len(items)) + b"".join(items)


def _list_head(kind: int, count: int) -> bytes:
    return bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + _varint(count)


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


_ENCODINGS: list[_Field] = [
    (2, _LIST, _list(_I32, [_number(encoding) for encoding in used]))
    for used in ([_PLAIN, _RLE], [_PLAIN, _RLE, _DICTIONARY])
]
_COLUMN = _fields([(2, _I64, _number(0))]) + _step(3, 2, _STRUCT)  # where its file is (here), and what follows

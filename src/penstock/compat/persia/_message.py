"""A batch on its way from a data loader to a trainer: ids, numbers, labels, and the bytes that carry them.

The bytes are a header (mark, version, length, checksum), a description in JSON and the arrays, 8-byte aligned. Reading
checks all of it, and nothing in it is code: a truncated, altered or foreign message is refused.

    0   8 bytes  the mark
    8   u32      version
    12  u32      CRC-32 of everything from byte 24 on
    16  u64      length of the whole message
    24  u32      length of the description; then the description, then the arrays in its order
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.core.batch import Ragged
from penstock.core.errors import DataError

MARK, VERSION = b"\x93PSBATCH", 1
_HEADER = struct.Struct("<8sIIQ")
_LENGTH = struct.Struct("<I")
# What NumPy and torch both have; ids are always uint64.
DTYPES = tuple(np.dtype(t) for t in ("bool", "i1", "i2", "i4", "i8", "u1", "f4", "f8"))
_IDS, _OFFSETS = np.dtype("<u8"), np.dtype("<i8")


@dataclass
class Named:
    """An array and what it is called."""

    name: str
    data: np.ndarray


@dataclass
class Message:
    """One batch without embeddings.

    >>> message = Message({"user": np.array([7, 8], np.uint64)}, [Named("age", np.zeros((2, 1), np.float32))])
    >>> again = from_bytes(to_bytes(message))
    >>> again.rows, again.ids["user"].tolist(), again.dense[0].data.shape
    (2, [7, 8], (2, 1))
    >>> from_bytes(to_bytes(message)[:-1])
    Traceback (most recent call last):
    ...
    penstock.core.errors.DataError: the message is truncated: ...
    """

    ids: dict[str, np.ndarray | Ragged] = field(default_factory=dict)
    dense: list[Named] = field(default_factory=list)
    labels: list[Named] = field(default_factory=list)
    extras: dict[str, np.ndarray | Ragged] = field(default_factory=dict)
    meta: bytes | None = None
    requires_grad: bool = True
    one_each: bool = False  # a context gives its numbers and its label as tensors, and not as lists of them

    @property
    def rows(self) -> int:
        for part in (*self.ids.values(), *(named.data for named in (*self.dense, *self.labels))):
            return rows_of(part)
        return 0

    def check(self) -> None:
        """All parts must have as many rows."""
        first = ""
        for what, part in self._parts():
            if not first:
                first, rows = what, rows_of(part)
            elif rows_of(part) != rows:
                raise DataError(
                    f"{what} has {rows_of(part)} rows, {first} has {rows}; all of a batch must have as many"
                )

    def _parts(self) -> Iterator[tuple[str, np.ndarray | Ragged]]:
        yield from ((f"feature {name!r}", ids) for name, ids in self.ids.items())
        yield from ((f"feature {named.name!r}", named.data) for named in self.dense)
        yield from ((f"label {named.name!r}", named.data) for named in self.labels)


def rows_of(part: np.ndarray | Ragged) -> int:
    """The samples of an array, or of lists."""
    return len(part.offsets) - 1 if isinstance(part, Ragged) else len(part)


def to_bytes(message: Message) -> bytes:
    """The message as bytes."""
    arrays: list[np.ndarray] = []

    def described(part: np.ndarray | Ragged) -> dict[str, Any]:
        if isinstance(part, Ragged):
            arrays.extend((np.ascontiguousarray(part.values), np.ascontiguousarray(part.offsets, _OFFSETS)))
            return {"list": arrays[-2].dtype.str, "values": arrays[-2].size, "offsets": arrays[-1].size}
        arrays.append(np.ascontiguousarray(part))
        return {"dtype": arrays[-1].dtype.str, "shape": list(part.shape)}

    description = {
        "requires_grad": message.requires_grad,
        "one_each": message.one_each,
        "ids": [[name, described(part)] for name, part in message.ids.items()],
        "dense": [[named.name, described(named.data)] for named in message.dense],
        "labels": [[named.name, described(named.data)] for named in message.labels],
        "extras": [[name, described(part)] for name, part in message.extras.items()],
        "meta": None if message.meta is None else described(np.frombuffer(message.meta, np.uint8)),
    }
    text = json.dumps(description, separators=(",", ":")).encode()
    parts: list[Any] = [_LENGTH.pack(len(text)), text]
    at = _HEADER.size + _LENGTH.size + len(text)
    for array in arrays:
        parts += [bytes(-at % 8), array.data.cast("B") if array.size else b""]
        at += -at % 8 + array.nbytes
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return b"".join([_HEADER.pack(MARK, VERSION, checksum, at), *parts])


def from_bytes(data: bytes | bytearray | memoryview) -> Message:
    """The message that `to_bytes` wrote; its arrays share the memory of `data`."""
    view = memoryview(data).cast("B")
    _check_header(view)
    try:
        (length,) = _LENGTH.unpack_from(view, _HEADER.size)
        start = _HEADER.size + _LENGTH.size
        reader = _Reader(view, start + length)
        description = json.loads(bytes(view[start : start + length]))
        message = Message(
            ids={str(name): reader.part(d, (_IDS,)) for name, d in description["ids"]},
            dense=[Named(str(name), reader.array(d, DTYPES)) for name, d in description["dense"]],
            labels=[Named(str(name), reader.array(d, DTYPES)) for name, d in description["labels"]],
            extras={str(name): reader.part(d, DTYPES) for name, d in description["extras"]},
            meta=None if description["meta"] is None else reader.array(description["meta"], DTYPES).tobytes(),
            requires_grad=bool(description["requires_grad"]),
            one_each=bool(description.get("one_each")),
        )
    except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError, SyntaxError, struct.error) as error:
        raise DataError(f"the message is not a batch: {error}") from error  # SyntaxError: what NumPy makes of a dtype
    message.check()
    return message


def _check_header(view: memoryview) -> None:
    if len(view) < _HEADER.size + _LENGTH.size:
        raise DataError(
            f"the message is truncated: {len(view)} bytes, a header alone has {_HEADER.size + _LENGTH.size}"
        )
    mark, version, checksum, length = _HEADER.unpack_from(view)
    if mark != MARK:
        raise DataError(
            f"this is not a batch written by Penstock: it begins with {bytes(view[:8])!r}. Messages of PERSIA itself "
            "are not read; make them again with to_bytes()"
        )
    if version != VERSION:
        raise DataError(f"the message has version {version}; this Penstock reads version {VERSION}")
    if length != len(view):
        kind = "truncated" if length > len(view) else "followed by other bytes"
        raise DataError(f"the message is {kind}: {len(view)} bytes, its header says {length}")
    if zlib.crc32(view[_HEADER.size :]) != checksum:
        raise DataError("the message was altered on its way (checksum differs)")


class _Reader:
    """Takes arrays from the bytes, one behind the other, and never from beyond their end."""

    def __init__(self, view: memoryview, at: int) -> None:
        self._view, self._at = view, at

    def _take(self, dtype: np.dtype, count: int) -> np.ndarray:
        start = self._at + -self._at % 8
        if count < 0 or start + count * dtype.itemsize > len(self._view):
            raise ValueError(f"an array of {count} × {dtype} does not fit into it")
        self._at = start + count * dtype.itemsize
        return np.frombuffer(self._view, dtype, count, start) if count else np.empty(0, dtype)

    def array(self, description: dict[str, Any], allowed: tuple[np.dtype, ...]) -> np.ndarray:
        dtype, shape = _allowed(description["dtype"], allowed), [int(n) for n in description["shape"]]
        if not shape or min(shape) < 0:
            raise ValueError(f"no array has the shape {shape}")
        count = 1
        for size in shape:
            count *= size
        return self._take(dtype, count).reshape(shape)

    def part(self, description: dict[str, Any], allowed: tuple[np.dtype, ...]) -> np.ndarray | Ragged:
        if "list" not in description:
            return self.array(description, allowed)
        values = self._take(_allowed(description["list"], allowed), int(description["values"]))
        offsets = self._take(_OFFSETS, int(description["offsets"]))
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(values) or (np.diff(offsets) < 0).any():
            raise ValueError("the offsets of a list do not rise from 0 to the number of its values")
        return Ragged(values, offsets)


def _allowed(name: Any, allowed: tuple[np.dtype, ...]) -> np.dtype:
    dtype = np.dtype(str(name))
    if dtype not in allowed:
        raise ValueError(f"{dtype} is not a dtype of batches")
    return dtype


# A batch with its embeddings, as a trainer gets it.


@dataclass(eq=False)
class PersiaTrainingBatch:
    """What a data loader delivers; `ctx.prepare_features(batch)` or `ctx.forward(batch)` makes tensors of it.

    `embeddings` maps the features of the batch, in its order, to `(B, dim)`, or `(B, sample_fixed_size, dim)` for those
    that are not summed, whose masks are in `masks`.

    >>> PersiaTrainingBatch(Message(meta=b"day 7")).meta
    b'day 7'
    """

    message: Message
    embeddings: dict[str, Any] = field(default_factory=dict)  # leaves: what collects gradients
    masks: dict[str, Any] = field(default_factory=dict)
    lookup: Any = None  # of the store; None where nothing is trained
    # What `prepare_features` fills in, under the names of both ages.
    non_id_type_feature_torch_tensors: list[Any] = field(default_factory=list)
    id_type_feature_embedding_torch_tensors: list[Any] = field(default_factory=list)
    label_torch_tensors: list[Any] | None = None

    def tensors(self) -> list[Any]:
        """Everything that lies on the device."""
        own = self.non_id_type_feature_torch_tensors + (self.label_torch_tensors or [])
        return [*own, *self.embeddings.values(), *self.masks.values()]

    @property
    def batch_size(self) -> int:
        return self.message.rows

    @property
    def meta(self) -> bytes | None:
        """The bytes that the data loader sent along."""
        return self.message.meta

    @property
    def extras(self) -> dict[str, Any]:
        """The arrays and lists that the data loader sent along by name (`add_map_dense`, `add_map_sparse`)."""
        return self.message.extras

    @property
    def forward_tensors(self) -> list[Any]:
        """The embeddings, as a model reads them."""
        return self.id_type_feature_embedding_torch_tensors

    @property
    def dense_tensor(self) -> Any:
        """The first array of numbers."""
        tensors = self.non_id_type_feature_torch_tensors
        return tensors[0] if tensors else None

    @property
    def target_tensor(self) -> Any:
        """The first target."""
        return self.label_torch_tensors[0] if self.label_torch_tensors else None

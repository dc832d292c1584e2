"""Batches as a store takes them: a mapping from slot to ids, checked once and handed to the kernels as addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from penstock.core.batch import Batch
from penstock.core.errors import ColumnNotFoundError, DataError
from penstock.embedding.slots import EmbeddingConfig, SlotConfig
from penstock.kernels import cpu_embedding_batch as layout
from penstock.kernels.cpu_intrinsics import address_of

Parallel = Callable[[Callable[[], None], int, int], None]  # runs a function on several threads at once
_LARGEST = np.uint64(2**64 - 1)
_SCAN_TOGETHER = 150_000  # ids from which more than one thread pays


class IdBatch:
    """A checked batch.

    `batch` maps every slot to its ids: `(B,)` integers, `(B, n)` integers, or `(values, offsets)` for lists of any
    length (`offsets` has B + 1 entries; objects with `values` and `offsets` will do). NumPy arrays and CPU tensors are
    taken without copying where they are contiguous. A loader's `Batch` may have further columns; a mapping may not.

    >>> from penstock.embedding.slots import EmbeddingConfig, SlotConfig
    >>> config = EmbeddingConfig([SlotConfig("user", 4), SlotConfig("tags", 4)])
    >>> IdBatch(config, {"user": [7, 8], "tags": ([1, 2, 3], [0, 1, 3])}).num_samples
    2
    >>> IdBatch(config, {"user": [7.5, 8.0], "tags": [1, 2]})
    Traceback (most recent call last):
    ...
    penstock.core.errors.DataError: slot 'user': ids must be integers, got float64; ...
    """

    def __init__(
        self, config: EmbeddingConfig, batch: Mapping[str, Any] | Batch, parallel: Parallel | None = None
    ) -> None:
        if isinstance(batch, Batch):  # from a loader: other columns than the slots' are the model's business
            columns = batch.columns()
            batch = {name: columns[name] for name in config.names if name in columns}
        for name in batch:
            config[name]  # a name that is no slot is refused, with the slots there are
        self.config, self.arrays = config, []
        lines, signed, self.num_samples, first = [], [], 0, ""
        for slot in config:
            if slot.name not in batch:
                raise ColumnNotFoundError(slot.name, batch, "the batch, though the store has a slot of that name")
            values, offsets = _split(slot, batch[slot.name])
            samples = len(values) if offsets is None else len(offsets) - 1
            if not first:
                self.num_samples, first = samples, slot.name
            elif samples != self.num_samples:
                raise DataError(
                    f"slot {slot.name!r} has {samples} samples, slot {first!r} has {self.num_samples}; "
                    "all slots of a batch must have the same number"
                )
            self.arrays.append((values, offsets))
            signed.append(values.dtype.kind == "i")
            lines.append(
                (
                    address_of(values),
                    values.itemsize.bit_length() - 1,
                    len(values),
                    0 if offsets is None else address_of(offsets),
                    samples,
                )
            )
        self.inputs = np.zeros((len(lines), layout.NUM_INPUT_FIELDS), np.uint64)
        self.inputs[:, : layout.SAMPLES + 1] = lines
        counter, negative, kinds = np.zeros(8, np.int64), np.zeros(len(lines), np.bool_), np.array(signed)

        def scan() -> None:
            layout.scan_ids(counter, self.inputs, kinds, negative)

        ids = int(self.inputs[:, layout.COUNT].sum())
        if parallel is not None and ids > _SCAN_TOGETHER:
            parallel(scan, len(lines), ids)
        else:
            scan()
        if negative.any():
            self._refuse_negative(int(negative.argmax()))
        for number in np.flatnonzero(self.inputs[:, layout.TOP] == _LARGEST).tolist():
            self._refuse_largest(number)

    def _refuse_largest(self, slot: int) -> None:
        """2^64 - 1 has no sign: an index needs one number that no id has."""
        found = self.arrays[slot][0] == _LARGEST
        if found.any() and not self.config.prefix_bits and not self.config.slots[slot].hash_stack:
            raise DataError(
                f"slot {self.config.names[slot]!r}: ids go from 0 to 2^64 - 2, got {_LARGEST} at position "
                f"{int(found.argmax())}; give that one another id"
            )

    def _refuse_negative(self, bad: int) -> None:
        values = self.arrays[bad][0]
        at = int(np.argmax(values < 0))
        raise DataError(
            f"slot {self.config.names[bad]!r}: ids must not be negative, got {values[at]} at position {at}; "
            "encode or hash the column first"
        )


_NATIVE = {np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)}


def _split(slot: SlotConfig, value: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Ids and, for lists, int64 offsets, both contiguous."""
    if type(value) is np.ndarray and value.ndim == 1 and value.dtype in _NATIVE and value.flags.carray:
        return value, None
    offsets = None
    if isinstance(value, tuple) and len(value) == 2:
        value, offsets = value
    elif hasattr(value, "offsets") and hasattr(value, "values"):
        value, offsets = value.values, value.offsets
    values = np.asarray(value)
    if values.dtype.kind not in "iu":
        if values.size or values.dtype.kind in "OUSb":
            raise DataError(f"slot {slot.name!r}: ids must be integers, got {values.dtype}; encode or hash the column")
        values = values.astype(np.int64)  # an empty list has no dtype of its own
    if offsets is not None:
        offsets = _check_offsets(slot.name, np.asarray(offsets), values)
    elif values.ndim == 2:
        samples, length = values.shape
        offsets = np.arange(samples + 1, dtype=np.int64) * length
        values = values.reshape(-1)
    elif values.ndim != 1:
        raise DataError(f"slot {slot.name!r}: ids must have shape (B,) or (B, n), got {values.shape}")
    values = np.require(values, requirements=["C", "A"])
    if values.dtype.byteorder == ">":
        values = values.astype(values.dtype.newbyteorder("="))
    if slot.length is not None and offsets is not None:
        values, offsets = _truncate(values, offsets, slot.length)
    return values, offsets


def _check_offsets(name: str, offsets: np.ndarray, values: np.ndarray) -> np.ndarray:
    if values.ndim != 1 or offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype.kind not in "iu":
        raise DataError(
            f"slot {name!r}: lists are (values, offsets), both 1-D, offsets integers with one entry more than samples; "
            f"got shapes {values.shape} and {offsets.shape} ({offsets.dtype})"
        )
    offsets = np.array(offsets, np.int64)  # a copy: the update reads them again, when a loader may have moved on
    if offsets[0] != 0 or offsets[-1] != len(values) or bool((offsets[1:] < offsets[:-1]).any()):
        raise DataError(f"slot {name!r}: offsets must rise from 0 to the number of values, {len(values)}")
    return offsets


def _truncate(values: np.ndarray, offsets: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The first `length` ids of every sample: what a raw slot keeps."""
    lengths = np.diff(offsets)
    if not len(lengths) or lengths.max() <= length:
        return values, offsets
    position = np.arange(len(values)) - np.repeat(offsets[:-1], lengths)
    return values[position < length], np.concatenate([[0], np.cumsum(np.minimum(lengths, length))])

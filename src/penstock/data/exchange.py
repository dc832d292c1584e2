"""Regrouping rows over the whole data set, out of core: every partition is cut into buckets on disk, then each
bucket is read back as one partition. Full shuffles, shuffles by key and restored orders are all this one thing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.core.errors import ColumnNotFoundError, DataError
from penstock.data.bad_lines import BadLines, collecting, pass_on
from penstock.data.keys import stable_hashes
from penstock.data.partition import Partition
from penstock.data.scratch import Scratch
from penstock.engine import Engine

Assign = Callable[[int, pl.DataFrame], np.ndarray]  # (partition number, rows) → bucket of each row


@dataclass(frozen=True)
class BucketPartition(Partition):
    """One bucket: its piece of every spilled file, put end to end in the order of the partitions."""

    files: tuple[str, ...]
    bucket: int
    num_rows: int
    num_bytes: int
    scratch: Scratch = field(compare=False)

    @property
    def path(self) -> None:  # type: ignore[override]
        return None

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        frames = []
        for file in self.files:
            with pa.memory_map(file) as source, pa.ipc.open_file(source) as reader:
                batch = reader.get_batch(self.bucket)
            if columns is not None:
                for name in columns:
                    if name not in batch.schema.names:
                        raise ColumnNotFoundError(name, batch.schema.names, "the exchanged data")
                batch = batch.select(list(columns))
            frames.append(pl.DataFrame(pl.from_arrow(batch)))
        return pl.concat(frames, rechunk=True)


def exchange(
    parts: Sequence[Partition],
    assign: Assign,
    num_buckets: int,
    engine: Engine,
    columns: Sequence[str] | None = None,
    on_done: Callable[[int], Any] | None = None,
) -> list[BucketPartition]:
    """Spill `parts` by bucket and give the buckets as partitions (empty ones included)."""
    scratch = Scratch()
    spill = partial(_spill, assign=assign, num_buckets=num_buckets, scratch=scratch, columns=columns)
    rows = np.zeros(num_buckets, np.int64)
    files, total, found = [], 0, BadLines()
    for file, counts, num_bytes, bad in engine.map(spill, list(enumerate(parts)), on_done):
        files.append(file)
        rows += counts
        total += num_bytes
        found.add(bad)
    pass_on(found)
    share = total / max(1, int(rows.sum()))
    return [
        BucketPartition(tuple(files), bucket, int(rows[bucket]), int(rows[bucket] * share), scratch)
        for bucket in range(num_buckets)
    ]


def _spill(
    item: tuple[int, Partition], assign: Assign, num_buckets: int, scratch: Scratch, columns: Sequence[str] | None
) -> tuple[str, np.ndarray, int, BadLines]:
    """One partition's rows, sorted by bucket (stable), as an Arrow file with one record batch a bucket."""
    index, part = item
    with collecting() as bad:
        frame = part.read(columns)
    buckets = np.asarray(assign(index, frame))
    counts = np.bincount(buckets, minlength=num_buckets)
    # NumPy sorts 16 bits by radix, which takes a fifth of the time.
    order = np.argsort(buckets.astype(np.uint16) if num_buckets <= 1 << 16 else buckets, kind="stable")
    table = frame[order].rechunk().to_arrow()
    starts = np.concatenate([[0], np.cumsum(counts)])
    file = scratch.path / f"part-{index:06d}.arrow"
    try:
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            for bucket in range(num_buckets):
                piece = table.slice(starts[bucket], counts[bucket]).combine_chunks()
                batches = piece.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
                writer.write_batch(batches[0])
    except OSError as error:
        raise DataError(
            f"cannot spill to {scratch.path}: {error.strerror or error}; set PENSTOCK_SCRATCH to a folder with room"
        ) from error
    return str(file), counts, int(frame.estimated_size()), bad


def by_random(index: int, frame: pl.DataFrame, seed: int, num_buckets: int) -> np.ndarray:
    """Each row into a bucket of its own draw: with a permutation inside the buckets, all orders are equally likely."""
    return np.random.default_rng([seed, index]).integers(0, num_buckets, frame.height, dtype=np.int32)


def by_key(index: int, frame: pl.DataFrame, keys: tuple[str, ...], num_buckets: int) -> np.ndarray:
    """Equal keys into equal buckets; nulls are a key like any other."""
    return (row_hashes(frame, keys) % np.uint64(num_buckets)).astype(np.int32)


def row_hashes(frame: pl.DataFrame, keys: Sequence[str], seed: int = 0) -> np.ndarray:
    """A 64-bit hash of some columns of each row: the same in every process, on every machine and release."""
    from penstock.kernels.cpu_hash import combine_hashes

    for name in keys:
        if name not in frame.columns:
            raise ColumnNotFoundError(name, frame.columns, "the data")
    start = np.full(frame.height, seed, np.uint64)
    return combine_hashes(start, *(stable_hashes(frame[name]) for name in keys))

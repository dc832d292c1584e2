"""Bytes of text files, and where to cut them: between records."""

from __future__ import annotations

import io
import mmap
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.errors import DataError
from penstock.data.files import filesystem, is_remote


def read_bytes(path: str, start: int, end: int, storage_options: dict[str, Any] | None = None) -> np.ndarray:
    """Bytes `[start, end)` of a file as uint8; a local file is memory-mapped, not copied."""
    if start == end:
        return np.empty(0, np.uint8)
    if is_remote(path):
        return np.frombuffer(filesystem(path, storage_options).cat_file(path, start=start, end=end), np.uint8)
    try:
        with Path(path).open("rb") as file:
            if file.seek(0, io.SEEK_END) < end:
                raise DataError(f"{path} is shorter than when the data set was opened; open the data set again")
            aligned = start - start % mmap.ALLOCATIONGRANULARITY
            mapped = mmap.mmap(file.fileno(), end - aligned, access=mmap.ACCESS_READ, offset=aligned)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    return np.frombuffer(mapped, np.uint8)[start - aligned :]


def file_size(path: str, storage_options: dict[str, Any] | None = None) -> int:
    return int(filesystem(path, storage_options).size(path)) if is_remote(path) else Path(path).stat().st_size


def record_bounds(
    path: str, has_header: bool, quote: str | None, part_size: int, storage_options: dict[str, Any] | None = None
) -> list[int]:
    """Offsets between which lie whole records, about `part_size` bytes of them; the header comes before the first."""
    size = file_size(path, storage_options)
    start = _after_line(path, 0, size, storage_options) if has_header and size else 0
    if quote is not None:
        cuts = _quoted_cuts(path, start, size, ord(quote), part_size, storage_options)
    else:
        cuts = [start]
        while size - cuts[-1] > part_size:
            cuts.append(_after_line(path, cuts[-1] + part_size, size, storage_options))
    return [*cuts, size] if cuts[-1] < size else cuts


def bytes_per_row(path: str, start: int, storage_options: dict[str, Any] | None = None) -> float:
    """About how long a record is, judged by the first ones."""
    size = file_size(path, storage_options)
    head = read_bytes(path, start, min(size, start + (1 << 16)), storage_options)
    return max(1.0, len(head) / max(1, int(np.count_nonzero(head == 10))))


def _after_line(path: str, position: int, size: int, storage_options: dict[str, Any] | None) -> int:
    """The first offset after the newline at or behind `position`."""
    while position < size:
        window = read_bytes(path, position, min(size, position + (1 << 16)), storage_options)
        newline = window.tobytes().find(b"\n")
        if newline >= 0:
            return position + newline + 1
        position += len(window)
    return size


def _quoted_cuts(
    path: str, start: int, size: int, quote: int, part_size: int, storage_options: dict[str, Any] | None
) -> list[int]:
    """A newline may stand inside quotes, so the cuts come from one scan over the whole file."""
    from penstock.kernels.cpu_lines import record_cuts

    if size - start <= part_size:
        return [start]
    buffer = read_bytes(path, 0, size, storage_options)
    cuts = [c for c in record_cuts(buffer, start, quote, part_size).tolist() if c < size]
    return [start, *cuts]

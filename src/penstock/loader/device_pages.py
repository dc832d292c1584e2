"""Parquet pages decoded on the device: fewer bytes travel, and the host's cores have little to do.

The host reads the bytes, takes checksums and finds the runs of values (`kernels.cpu_parquet_find`); here they travel as
they are and one kernel unpacks them all (`kernels.gpu_parquet`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from penstock.core.batch import BlockSpec
from penstock.core.extras import require
from penstock.core.runtime.buffers import ALIGNMENT, BufferPool
from penstock.kernels import parquet_runs_contract as contract
from penstock.kernels.gpu_triton import has_triton, is_interpreted
from penstock.loader.blocks import round_up
from penstock.loader.encoded import EncodedColumns, FoundPiece, PinnedBytes, PinnedMemory
from penstock.loader.remote_file import joined

torch = require("torch", "torch")
Send = Callable[[np.ndarray], Any]


def can_decode(device: Any) -> bool:
    """Whether a device decodes parquet pages; tried once in a process, since kernels have to be compiled for it."""
    wanted = (device.type == "cuda" and has_triton()) or (device.type == "cpu" and is_interpreted())
    return wanted and _decodes(device)


@cache
def _decodes(device: Any) -> bool:
    """Whether one plain number comes out; a compiler that fails is a reason to decode on the host, and no more."""
    from penstock.kernels.gpu_parquet import decode_runs

    run, page, column = [[0, 1, 0, 0]], [[0, -1, 0, 32]], [[0, 1, contract.UNCHECKED, 0, 0]]
    kinds = {"dtype": torch.int32, "device": device}
    try:
        words, out = torch.tensor([7, 0, 0], **kinds), torch.zeros(1, **kinds)
        columns, flags = torch.tensor(column, dtype=torch.int64, device=device), torch.zeros(1, **kinds)
        decode_runs(words, torch.tensor(run, **kinds), torch.tensor(page, **kinds), columns, out, flags)
        return bool(out.tolist() == [7])
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        warnings.warn(f"parquet pages are decoded by the host: the kernel for {device} failed ({reason})", stacklevel=2)
        return False


@dataclass(frozen=True)
class _Group:
    """Columns of one role and stored dtype, which one tensor holds; `first` is its first word."""

    spec: BlockSpec
    first: int
    words: int  # of a value


@dataclass(frozen=True)
class Decoded:
    """What a device has been told to decode; `flags` is on its way back, as `tables` is on its way there."""

    blocks: list[tuple[BlockSpec, Any]]
    columns: list[str]
    flags: np.ndarray
    tables: list[np.ndarray]
    num_bytes: int  # of pages

    def suspicious(self) -> list[str]:
        """The columns that the host must look at, known once the device has come so far."""
        return [name for name, flag in zip(self.columns, self.flags.tolist(), strict=True) if flag]


class PageDecoder:
    """Decodes what chunks bring.

    Args:
        blocks: the columns by role, in the order they are delivered in.
        device: where.
        send: brings an array there.
        pool: of pinned memory.
    """

    def __init__(self, blocks: Sequence[BlockSpec], device: Any, send: Send, pool: BufferPool) -> None:
        self._blocks, self._device, self._send, self._pool = blocks, device, send, pool

    def decode(self, encoded: EncodedColumns, num_rows: int) -> Decoded:
        """The columns in stored order, a tensor for each role and dtype; nothing is waited for."""
        from penstock.kernels.gpu_parquet import decode_runs

        groups, size = self._groups(encoded, num_rows)
        order = [name for group in groups for name in group.spec.names]
        stretches = _stretches(encoded)
        num_bytes = stretches[-1].place + stretches[-1].size if stretches else encoded.used
        words = self._words(encoded, stretches, num_bytes)
        # They are held until they have arrived.
        tables = [self._pinned(table) for table in _tables(groups, encoded, stretches, num_rows)]
        out = torch.empty(size, dtype=torch.int32, device=self._device)
        flags = torch.zeros(len(order), dtype=torch.int32, device=self._device)
        runs, pages, columns = map(self._send, tables)
        decode_runs(words, runs, pages, columns, out, flags)
        told = self._pool.array((len(order),), np.int32)
        torch.from_numpy(told).copy_(flags, non_blocking=True)
        return Decoded(
            [(group.spec, _tensor(out, group, num_rows)) for group in groups], order, told, tables, num_bytes
        )

    def _words(self, encoded: EncodedColumns, stretches: Sequence[_Stretch], num_bytes: int) -> Any:
        """The bytes of all columns on the device: those that were read, and behind them those of pinned memory."""
        words = torch.empty(-(-(num_bytes + contract.SPARE_BYTES) // 4), dtype=torch.int32, device=self._device)
        room = words.view(torch.uint8)
        if encoded.used:
            room[: encoded.used].copy_(torch.from_numpy(encoded.buffer[: encoded.used]), non_blocking=True)
        for stretch in stretches:
            memory = torch.from_numpy(stretch.memory.bytes[stretch.first : stretch.first + stretch.size])
            room[stretch.place : stretch.place + stretch.size].copy_(memory, non_blocking=True)
        return words

    def _groups(self, encoded: EncodedColumns, num_rows: int) -> tuple[list[_Group], int]:
        """Where columns go, those of two words first so that they are aligned; and how many words there are."""
        names: dict[tuple[Any, np.dtype], list[str]] = {}
        for block in self._blocks:
            for name in block.names:
                if name in encoded.found:
                    names.setdefault((block.role, encoded.found[name].dtype), []).append(name)
        groups, at = list[_Group](), 0
        for (role, dtype), members in sorted(names.items(), key=lambda item: -item[0][1].itemsize):
            words = dtype.itemsize // 4
            groups.append(_Group(BlockSpec(role, dtype, tuple(members)), at, words))
            at += len(members) * num_rows * words
        return groups, at

    def _pinned(self, table: np.ndarray) -> np.ndarray:
        place = self._pool.array(table.shape, table.dtype)
        place[...] = table
        return place


class _Stretch(NamedTuple):
    """Bytes of pinned memory that travel together, and where they go."""

    memory: PinnedMemory
    first: int
    size: int
    place: int


def _stretches(encoded: EncodedColumns) -> list[_Stretch]:
    """What is sent of pinned memory: bytes that lie together go together, behind those that were read."""
    spans: dict[int, list[PinnedBytes]] = {}
    for column in encoded.found.values():
        for piece in column.pieces:
            if piece.source is not None:
                spans.setdefault(id(piece.source.memory), []).append(piece.source)
    found, place = list[_Stretch](), round_up(encoded.used, ALIGNMENT)
    for sources in spans.values():
        for low, high in joined((s.first, s.first + s.size) for s in sources):
            found.append(_Stretch(sources[0].memory, low, high - low, place))
            place += round_up(high - low, ALIGNMENT)
    return found


def _first_byte(source: PinnedBytes | None, stretches: Mapping[int, Sequence[_Stretch]]) -> int:
    """Where a piece's bytes are counted from on the device."""
    if source is None:
        return 0
    own = next(s for s in stretches[id(source.memory)] if s.first <= source.first < s.first + s.size)
    return own.place + source.first - own.first


def _tables(
    groups: list[_Group], encoded: EncodedColumns, stretches: Sequence[_Stretch], num_rows: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Runs, pages and columns as the kernel reads them."""
    by_memory: dict[int, list[_Stretch]] = {}
    for stretch in stretches:
        by_memory.setdefault(id(stretch.memory), []).append(stretch)
    columns, pieces = list[tuple[int, ...]](), list[FoundPiece]()
    starts = list[tuple[int, int, int]]()  # of each piece: column, first row, first byte
    for group in groups:
        for place, name in enumerate(group.spec.names):
            column, row = encoded.found[name], 0
            for piece in column.pieces:
                starts.append((len(columns), row, _first_byte(piece.source, by_memory)))
                row += piece.num_rows
            pieces += column.pieces
            columns.append((group.first + place * num_rows * group.words, group.words, *column.limits))
    runs, pages = (np.concatenate([getattr(piece, kind) for piece in pieces]) for kind in ("runs", "pages"))
    num_runs, num_pages = ([len(getattr(piece, kind)) for piece in pieces] for kind in ("runs", "pages"))
    column_of, first_row, first_byte = np.array(starts, np.int32).T
    pages[:, contract.COLUMN] = np.repeat(column_of, num_pages)
    dictionaries = pages[:, contract.DICTIONARY]
    dictionaries += np.where(dictionaries >= 0, np.repeat(first_byte, num_pages), 0)
    runs[:, contract.PAGE] += np.repeat(np.cumsum([0, *num_pages[:-1]]), num_runs).astype(np.int32)
    runs[:, contract.ROW] += np.repeat(first_row, num_runs)
    runs[:, contract.PLACE] += np.where(runs[:, contract.COUNT] > 0, np.repeat(first_byte, num_runs), 0)
    return runs, pages, np.array(columns, np.int64)


def _tensor(out: Any, group: _Group, num_rows: int) -> Any:
    count = len(group.spec.names)
    part = out[group.first : group.first + count * num_rows * group.words]
    return part.view(getattr(torch, group.spec.dtype.name)).view(count, num_rows)

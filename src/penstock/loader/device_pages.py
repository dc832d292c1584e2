"""Parquet pages decoded on the device: fewer bytes travel, and the host's cores have little to do.

The host reads the bytes, takes checksums and finds the runs of values (`kernels.cpu_parquet_find`); here they travel as
they are and one kernel unpacks them all (`kernels.gpu_parquet`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from penstock.core.batch import BlockSpec
from penstock.core.extras import require
from penstock.core.runtime.buffers import BufferPool
from penstock.kernels import parquet_runs_contract as contract
from penstock.kernels.gpu_triton import has_triton, is_interpreted
from penstock.loader.encoded import EncodedColumns, FoundColumn

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
        tables = [self._pinned(table) for table in _tables(groups, encoded, num_rows)]  # held until they have arrived
        words = self._send(encoded.buffer[: encoded.used + contract.SPARE_BYTES].view(np.int32))
        out = torch.empty(size, dtype=torch.int32, device=self._device)
        flags = torch.zeros(len(order), dtype=torch.int32, device=self._device)
        runs, pages, columns = map(self._send, tables)
        decode_runs(words, runs, pages, columns, out, flags)
        told = self._pool.array((len(order),), np.int32)
        torch.from_numpy(told).copy_(flags, non_blocking=True)
        return Decoded([(group.spec, _tensor(out, group, num_rows)) for group in groups], order, told, tables)

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


def _tables(groups: list[_Group], encoded: EncodedColumns, num_rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Runs, pages and columns as the kernel reads them."""
    columns, found = list[tuple[int, ...]](), list[FoundColumn]()
    for group in groups:
        for place, name in enumerate(group.spec.names):
            column = encoded.found[name]
            columns.append((group.first + place * num_rows * group.words, group.words, *column.limits))
            found.append(column)
    runs, pages = (np.concatenate([getattr(column, kind) for column in found]) for kind in ("runs", "pages"))
    num_pages, num_runs = ([len(getattr(column, kind)) for column in found] for kind in ("pages", "runs"))
    pages[:, contract.COLUMN] = np.repeat(np.arange(len(found)), num_pages)
    runs[:, contract.PAGE] += np.repeat(np.cumsum([0, *num_pages[:-1]]), num_runs).astype(np.int32)
    return runs, pages, np.array(columns, np.int64)


def _tensor(out: Any, group: _Group, num_rows: int) -> Any:
    count = len(group.spec.names)
    part = out[group.first : group.first + count * num_rows * group.words]
    return part.view(getattr(torch, group.spec.dtype.name)).view(count, num_rows)

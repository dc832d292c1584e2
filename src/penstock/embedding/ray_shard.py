"""What runs inside the Ray actors of a sharded store: one shard each, and one small coordinator."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.errors import ArtefactError
from penstock.core.runtime.forks import Process
from penstock.embedding import checkpoint
from penstock.embedding.row_files import write_removed, write_shard
from penstock.embedding.tables import TableSet
from penstock.kernels.cpu_embedding_remote import owned
from penstock.kernels.cpu_intrinsics import kernel_input

_SAVING = "checkpoint under way"
LOST = "lost"  # the answer of a shard that was started (again) and has not been told what to hold


class Shard:
    """One shard of a store. Calls carry distinct signs, `counts` of them a group.

    A shard that Ray has restarted answers LOST until a client has restored it: its rows are gone, and going on as if
    they were not would be the worst of all.
    """

    def __init__(
        self, number: int, num_shards: int, settings: Mapping[str, Any], reconstructed: bool | None = None
    ) -> None:
        self.number, self.num_shards = number, num_shards
        self.tables = TableSet(**settings, signs_given=True)
        self.updates = 0
        self.to_evicted = 0
        self._exact = self.tables.admission.probability >= 1 and self.tables.admission.min_count <= 1
        self._lost = True  # until `restore`: by whoever creates the store, or finds this shard restarted

    def ping(self) -> int:
        """The process that runs this shard."""
        return Process().number

    def lookup(self, counts: np.ndarray, signs: np.ndarray, train: bool) -> Any:
        """Rows of the signs, end to end."""
        if self._lost:
            return LOST
        return self.tables.lookup_signs(kernel_input(counts), kernel_input(signs), train)

    def update(self, counts: np.ndarray, signs: np.ndarray, sums: np.ndarray, stepped: np.ndarray, scale: float) -> Any:
        """Apply summed gradients; how many updates this shard has applied in all."""
        if self._lost:
            return LOST
        # What comes through the object store must not be written to; the kernel scales and decays in place.
        optimizer = self.tables.optimizer
        as_it_is = scale == 1.0 and optimizer is not None and optimizer.weight_decay == 0.0
        sums = kernel_input(sums) if as_it_is else np.array(sums)
        gone = self.tables.update_signs(kernel_input(counts), kernel_input(signs), sums, stepped, scale)
        self.to_evicted += gone if self._exact else 0  # rows that were never admitted are absent, not evicted
        self.updates += 1
        return self.updates

    def save(self, folder: str, incremental: bool) -> Any:
        """Write this shard's rows into a checkpoint under way; how far the shard has come."""
        if self._lost:
            return LOST
        since, removed = self.tables.changes(checkpoint.WATCHER) if incremental else (-1, [])
        self.tables.watch(_SAVING)  # what changes while other shards still write belongs to the next checkpoint
        place = Path(folder) / "rows" / f"shard-{self.number:05d}"
        write_shard(self.tables, place, since)
        write_removed(removed, place)
        return {**checkpoint.progress(self.tables), "updates": self.updates}

    def saved(self) -> Any:
        """The checkpoint is complete: what changes from now on belongs to the next one."""
        return LOST if self._lost else self.tables.watch(checkpoint.WATCHER, instead_of=_SAVING)

    def restore(self, path: str | None, checksum: str | None = None) -> int:
        """Load this shard's part of a checkpoint (or begin empty); the updates it had seen then."""
        self.updates = 0
        if path is None:
            self.tables.clear()
        else:
            self.updates = checkpoint.read_chain(path, partial(self._fill, checksum))
        self._lost = False
        return self.updates

    def _fill(self, checksum: str | None, chain: list[checkpoint.Description]) -> int:
        if checksum not in (None, chain[-1].checksum):
            raise ArtefactError(f"{chain[-1].path} was replaced while shards read it; load again")
        checkpoint.restore(self.tables, chain, self._keep, self.number)
        return max(int(shard.get("updates", 0)) for shard in chain[-1].data["shards"])

    def _keep(self, signs: np.ndarray) -> np.ndarray:
        mask = np.empty(len(signs), np.bool_)
        owned(signs, self.number, self.num_shards, mask)
        return mask

    def stats(self) -> Any:
        """This shard's figures."""
        if self._lost:
            return LOST
        tables = self.tables
        return {
            "rows": tables.rows,
            "rows_by_group": {table.name: table.rows for table in tables.tables},
            "tables": tables.by_table(),
            "waiting": sum(table.pending for table in tables.tables),
            "bytes": tables.bytes,
            "payload_bytes": sum(table.rows * table.layout.payload for table in tables.tables),
            "evicted": tables.evicted,
            "steps": tables.steps,
            "updates": self.updates,
            "updates_to_evicted_rows": self.to_evicted,
        }

    def sleep(self, seconds: float) -> None:
        """Be busy: lets a client's time limit be tried out."""
        time.sleep(seconds)


class Coordinator:
    """What the clients of one store must agree on: its settings, its shards, its last checkpoint, what was lost."""

    def __init__(self, about: Mapping[str, Any], shards: list[Any]) -> None:
        self._about, self._shards = dict(about), shards
        self._trail = checkpoint.Trail()
        self._saving: str | None = None
        self._restarts: list[dict[str, Any]] = []

    def about(self) -> tuple[dict[str, Any], list[Any]]:
        return self._about, self._shards

    def begin_save(self, path: str) -> str | None:
        """Reserve the right to save; the path of the save under way where there is one."""
        if self._saving is not None:
            return self._saving
        self._saving = path
        return None

    def end_save(self, trail: checkpoint.Trail | None) -> None:
        self._saving = None
        if trail is not None:
            self._trail = trail

    def trail(self) -> checkpoint.Trail:
        return self._trail

    def record_restart(self, entry: dict[str, Any]) -> None:
        self._restarts.append(entry)

    def restarts(self) -> list[dict[str, Any]]:
        return self._restarts

    def set_trail(self, trail: checkpoint.Trail) -> None:
        self._trail = trail

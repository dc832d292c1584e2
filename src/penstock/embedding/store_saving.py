"""A checkpoint of a store in this process, from the moment that it shows to the moment that it is whole."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import OutputExistsError
from penstock.embedding import checkpoint
from penstock.embedding.locks import SecondWriterError
from penstock.embedding.row_files import copied_shard, write_removed, write_shard
from penstock.embedding.tables import SAVING

if TYPE_CHECKING:
    from penstock.embedding.store import Store


class StoreSaving:
    """Begun by being made: then it is settled what the checkpoint holds. `finish` writes it.

    Args:
        store: whose rows are written.
        path: of the checkpoint.
        overwrite: whether what is there may be replaced.
        base: the checkpoint that it builds on.
        aside: whether rows are copied, so that the store may go on before they are written.
    """

    def __init__(self, store: Store, path: str | Path, overwrite: bool, base: str | Path | None, aside: bool) -> None:
        self._store, self._path, self._base = store, Path(path), base
        self._is_under_way = False
        with store._lock:
            under_way = store._saving() if store._saving is not None else None
            if under_way is not None and under_way._is_under_way:
                raise SecondWriterError(
                    f"this store is being saved to {under_way._path}; a store has one writer at a time"
                )
            if base is not None:
                store._saved.check(base)
                if Path(base).resolve() == self._path.resolve():
                    raise OutputExistsError(f"{path} is the base itself; an incremental checkpoint needs its own path")
            tables = store.tables
            with ExitStack() as writing:
                self._folder = writing.enter_context(checkpoint.writing_checkpoint(path, overwrite))
                self._since, self._removed = (-1, []) if base is None else tables.changes(checkpoint.WATCHER)
                self._write = copied_shard(tables, self._since) if aside else None
                self._progress = checkpoint.progress(tables)
                self._writing = writing.pop_all()
            tables.watch(SAVING)  # what changes from here on belongs to the next one
            self._is_under_way = True

    def finish(self) -> None:
        """Write the checkpoint, and put it into its place. Any thread may do so.

        Raises:
            ArtefactError: it cannot be written; what was there before is whole.
        """
        store = self._store
        try:
            with self._writing:
                self._write_all()
            with store._lock:
                if SAVING in store.tables.watchers:  # else it was cleared or loaded: it holds something else by now
                    store.tables.watch(checkpoint.WATCHER, instead_of=SAVING)
                    store._saved = checkpoint.Trail(self._path, checkpoint._checksum(self._path))
        finally:
            with store._lock:
                store.tables.watchers.pop(SAVING, None)
                self._is_under_way = False

    def _write_all(self) -> None:
        store, shard = self._store, self._folder / "rows" / "shard-00000"
        if self._write is None:
            write_shard(store.tables, shard, self._since)
        else:
            self._write(shard)
            self._write = None  # the copies
        write_removed(self._removed, shard)
        tables = store.tables
        described = checkpoint.describe(
            store.config, store.optimizer, store.storage, store.seed, tables.admission, tables.eviction
        )
        base = None if self._base is None else checkpoint.base_entry(self._path, self._base)
        content = {**described, "base": base, "shards": [self._progress]}
        (self._folder / "store.json").write_text(json.dumps(content, indent=1))

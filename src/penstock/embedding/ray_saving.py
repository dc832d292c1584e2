"""A checkpoint of a store on Ray, from the moment that it shows to the moment that it is whole."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import OutputExistsError
from penstock.embedding import checkpoint
from penstock.embedding.locks import SecondWriterError
from penstock.embedding.ray_messages import packed

if TYPE_CHECKING:
    from penstock.embedding.ray_store import RayStore

_PAUSE = 0.05  # seconds between two questions whether shards have written


class Saving:
    """Begun by being made: then it is settled what the checkpoint holds. `finish` waits until it is written.

    Args:
        store: whose shards write.
        path: of the checkpoint.
        overwrite: whether what is there may be replaced.
        base: the checkpoint that it builds on.
        aside: whether shards copy their rows and write them while they go on.
    """

    def __init__(self, store: RayStore, path: Path, overwrite: bool, base: str | Path | None, aside: bool) -> None:
        self._store, self._place, self._base, self._aside = store, path.absolute(), base, aside
        self._trail: tuple[str, str] | None = None
        with ExitStack() as lease:
            grant = lease.enter_context(store._calls.lease("save", str(self._place)))
            if not grant.token:
                raise SecondWriterError(
                    f"store {store.name!r} is being saved to {grant.what}; a store has one writer at a time"
                )
            self._right = grant.token
            lease.callback(self._release)
            if base is not None:
                _as_trail(grant.trail).check(base)
                if Path(base).resolve() == self._place.resolve():
                    raise OutputExistsError(
                        f"{self._place} is the base itself; an incremental checkpoint needs its own path"
                    )
            with ExitStack() as writing, store._lock:
                self._folder = writing.enter_context(checkpoint.writing_checkpoint(self._place, overwrite))
                given = (self._right, str(self._folder), base is not None, aside)
                self._progress = store._numbered("save", given, patience=10.0)
                self._writing = writing.pop_all()
            self._lease = lease.pop_all()

    def finish(self) -> None:
        """Wait until all shards have written, and put the checkpoint into its place.

        Raises:
            ArtefactError: it cannot be written; what was there before is whole.
        """
        store = self._store
        with self._lease:
            with self._writing:
                while self._aside and not self._is_written():
                    time.sleep(_PAUSE)
                description = {
                    **checkpoint.describe(
                        store.config, store.optimizer, store.storage, store.seed, store.admission, store.eviction
                    ),
                    "base": None if self._base is None else checkpoint.base_entry(self._place, self._base),
                    "shards": self._progress,
                }
                (self._folder / "store.json").write_text(json.dumps(description, indent=1))
            with store._lock:
                holds_what_was_saved = all(store._numbered("saved", (self._right,)))
            if holds_what_was_saved:  # what the next one may build on, and shards may be restored from
                self._trail = str(self._place), checkpoint._checksum(self._place)

    def _is_written(self) -> bool:
        """Asked beside the commands of training: those in flight would be waited for. Only the last answer counts."""
        ray, calls, question = self._store._ray, self._store._calls, packed("is_writing", (self._right,))
        try:
            if any(ray.get([shard.run.remote(*question) for shard in calls.shards], timeout=calls.timeout)):
                return False
        except ray.exceptions.RayError:
            pass  # a shard died or hangs: the call of a client finds out, and does what there is to do
        with self._store._lock:
            return all(calls.call("written", lambda *_: (self._right,)))

    def _release(self) -> None:
        self._store._calls.ask_coordinator("release", "save", self._right, self._trail)


def _as_trail(noted: tuple[str, str] | None) -> checkpoint.Trail:
    """The last checkpoint, as the coordinator has it."""
    return checkpoint.Trail(Path(noted[0]), noted[1]) if noted else checkpoint.Trail()

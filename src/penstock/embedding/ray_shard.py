"""What runs inside the Ray actors of a sharded store, one shard each.

Reading and writing files takes libraries that a shard may never need: they are imported by the first checkpoint.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from penstock.core.errors import ArtefactError
from penstock.core.latencies import Latencies
from penstock.core.runtime.forks import Process
from penstock.core.runtime.threads import LastingPool, start_thread
from penstock.embedding.locks import SecondWriterError
from penstock.embedding.ray_lines import Ends, answer_calls, open_ends
from penstock.embedding.ray_memory import MappedBuffers, Place
from penstock.embedding.ray_messages import Command, Refused, Standing, TooEarly, unpacked
from penstock.embedding.tables import SAVING, TableSet
from penstock.kernels.cpu_embedding_remote import owned
from penstock.kernels.cpu_intrinsics import kernel_input

if TYPE_CHECKING:
    from penstock.embedding.checkpoint import Description
    from penstock.embedding.feed_sources import ShardFeed

Answer = TypeVar("Answer")
Given: TypeAlias = np.ndarray | Place  # sent, or shared
_SETTLED = 0  # among the answers to a client: the number of which it has said that no lower one will be sent again
_CLIENTS = 1024  # whose last commands are remembered
TIMED = ("lookup", "update", "follow", "save")  # commands whose durations are counted


class Shard:
    """One shard of a store. Calls carry distinct signs, `counts` of them a group.

    A shard that Ray has restarted refuses everything until a client has restored the store: its rows are gone, and
    going on as if they were not would be the worst of all. Restoring gives all shards the same new epoch, so that no
    call is applied by some shards before and by others after it.
    """

    def __init__(self, number: int, num_shards: int, settings: Mapping[str, Any]) -> None:
        self.number, self.num_shards = number, num_shards
        self.tables = TableSet(**settings, signs_given=True)
        self.updates = self.restored_updates = 0
        self.to_evicted = 0
        self.epoch = self.restored_epoch = 0
        self._exact = self.tables.admission.probability >= 1 and self.tables.admission.min_count <= 1
        self._lost = True  # until `restore`: by whoever creates the store, or finds this shard restarted
        self._answers: dict[str, dict[int, Any]] = {}  # by client and number: commands applied and not yet settled
        self._shared = MappedBuffers()
        self._lock = threading.RLock()  # Ray calls one method at a time, and so does every client with a line
        self._saver = 0  # the youngest right to save that was used
        self._seconds = {method: Latencies() for method in TIMED}
        self._began = perf_counter()
        self._at_hand: set[object] = set()  # commands that have come and are not answered
        self._most_at_hand = 0  # since somebody asked
        self._writer = LastingPool(1, "store-writer")
        self._writing: tuple[int, Future[None] | None] = 0, None  # the right to save of what is written aside

    def run(self, call: bytes, *arrays: np.ndarray) -> Any:
        """Do what a client has packed."""
        method, arguments = unpacked(call, *arrays)
        here = object()
        self._at_hand.add(here)
        self._most_at_hand = max(self._most_at_hand, len(self._at_hand))
        try:
            with self._lock:
                began = perf_counter()
                answer = getattr(self, method)(*arguments)
                if method in self._seconds:
                    self._seconds[method].add(perf_counter() - began)
                return answer
        finally:
            self._at_hand.discard(here)

    def connect(self, ends: Ends) -> bool:
        """Answer a client on a line from now on; False where it cannot be reached, as on another machine."""
        files = open_ends(ends)
        if files is not None:
            start_thread("store-line", answer_calls, *files, self.run)
        return files is not None

    def ping(self) -> int:
        """The process that runs this shard."""
        return Process().number

    def lookup(
        self, command: Command, counts: np.ndarray, signs: Given, train: bool, rows: Place | None = None
    ) -> np.ndarray | bool | Refused | TooEarly | None:
        """Rows of the signs, end to end: written to where `rows` says (then the answer is True), or the answer."""
        found, out = self._here(signs), None if rows is None else self._shared.array(rows)
        if found is None or (rows is not None and out is None):
            return None

        def run() -> np.ndarray | bool:
            answer = self.tables.lookup_signs(kernel_input(counts), kernel_input(found), train, out)
            return answer if out is None else True

        return self._once(command, run)

    def update(
        self, command: Command, counts: np.ndarray, signs: Given, sums: Given, stepped: np.ndarray, scale: float
    ) -> int | Refused | TooEarly | None:
        """Apply summed gradients; how many updates this shard has applied in all."""
        found, gradients = self._here(signs), self._here(sums)
        if found is None or gradients is None:
            return None
        return self._once(command, lambda: self._update(counts, found, gradients, stepped, scale))

    def _here(self, given: Given) -> np.ndarray | None:
        """An array that was sent, or lies in memory shared with the client; None where this shard cannot reach that."""
        return self._shared.array(given) if isinstance(given, Place) else given

    def _update(
        self, counts: np.ndarray, signs: np.ndarray, sums: np.ndarray, stepped: np.ndarray, scale: float
    ) -> int:
        # What the client sent must not be written to, as it may send it again; the kernel scales and decays in place.
        optimizer = self.tables.optimizer
        as_it_is = scale == 1.0 and optimizer is not None and optimizer.weight_decay == 0.0
        sums = kernel_input(sums) if as_it_is else np.array(sums)
        gone = self.tables.update_signs(kernel_input(counts), kernel_input(signs), sums, stepped, scale)
        self.to_evicted += gone if self._exact else 0  # rows that were never admitted are absent, not evicted
        self.updates += 1
        return self.updates

    def _once(self, command: Command, run: Callable[[], Answer]) -> Answer | Refused | TooEarly:
        """Run a command, or give the answer that it was given before."""
        if self._lost or command.epoch != self.epoch:
            return Refused(self._lost, self.epoch)
        if command.number == 0:
            return run()
        answers = self._open_answers(command)
        if command.number not in answers:
            if command.number <= answers[_SETTLED] or (command.before and command.before not in answers):
                return TooEarly()  # or too late: nobody waits for what is settled, and a second copy must not count
            answers[command.number] = run()
        answer: Answer = answers[command.number]
        return answer

    def _open_answers(self, command: Command) -> dict[int, Any]:
        """The answers that a client may still ask for again, by number."""
        answers = self._answers.pop(command.client, {})
        settled = max(command.settled, answers.get(_SETTLED, 0))
        answers = {_SETTLED: settled, **{number: answer for number, answer in answers.items() if number > settled}}
        self._answers[command.client] = answers  # at the end: the first are those not heard of for longest
        if len(self._answers) > _CLIENTS:
            del self._answers[next(iter(self._answers))]
        return answers

    def save(
        self, command: Command, right: int, folder: str, incremental: bool, aside: bool = False
    ) -> dict[str, Any] | Refused | TooEarly:
        """Write this shard's rows into a checkpoint under way; how far the shard has come.

        With `aside` they are copied, and written by a thread while the shard goes on (`written`).
        """
        return self._once(command, lambda: self._save(right, folder, incremental, aside))

    def _save(self, right: int, folder: str, incremental: bool, aside: bool) -> dict[str, Any]:
        from penstock.embedding import checkpoint
        from penstock.embedding.row_files import copied_shard, write_removed, write_shard

        self._check_right(right)
        since, removed = self.tables.changes(checkpoint.WATCHER) if incremental else (-1, [])
        self.tables.watch(SAVING)  # what changes while other shards still write belongs to the next checkpoint
        place = Path(folder) / "rows" / f"shard-{self.number:05d}"
        write = copied_shard(self.tables, since) if aside else partial(write_shard, self.tables, since=since)

        def work() -> None:
            shutil.rmtree(place, ignore_errors=True)  # from before this shard died, or the store was restored
            write(place)
            write_removed(removed, place)

        if aside:
            self._writing = right, self._writer.submit(work)
        else:
            work()
        return {**checkpoint.progress(self.tables), "updates": self.updates}

    def is_writing(self, right: int) -> bool:
        """Whether what was to be written aside is under way."""
        whose, writing = self._writing
        return whose == right and writing is not None and not writing.done()

    def written(self, command: Command, right: int) -> bool | Refused | TooEarly:
        """Whether what was to be written aside is; where that failed, why."""
        return self._once(command, lambda: self._written(right))

    def _written(self, right: int) -> bool:
        from penstock.embedding.checkpoint import CheckpointLostError

        whose, writing = self._writing
        if whose != right or writing is None:
            raise CheckpointLostError(f"shard {self.number} died, or was restored, while it wrote a checkpoint")
        if not writing.done():
            return False
        writing.result()
        return True

    def saved(self, command: Command, right: int) -> bool | Refused | TooEarly:
        """The checkpoint is complete: what changes from now on belongs to the next one, unless this shard was restored.

        Then it holds something else than was saved, and the next checkpoint cannot build on that one.
        """

        return self._once(command, lambda: self._saved(right))

    def _saved(self, right: int) -> bool:
        from penstock.embedding.checkpoint import WATCHER

        self._check_right(right)
        if SAVING not in self.tables.watchers:
            return False
        self.tables.watch(WATCHER, instead_of=SAVING)
        return True

    def _check_right(self, right: int) -> None:
        if right < self._saver:
            raise SecondWriterError(
                "another client has begun to save this store: the right to save ran out, since it was not renewed"
            )
        self._saver = right

    def publish(self, command: Command, since: str, token: str, folder: str) -> int | bool | Refused | TooEarly:
        """Write this shard's part of a feed's packet; see `ShardFeed`."""
        return self._once(command, lambda: self._feed.publish(since, token, folder))

    def published(self, command: Command, token: str) -> bool | Refused | TooEarly:
        """A packet is in place; see `ShardFeed`."""
        return self._once(command, lambda: self._feed.published(token))

    @cached_property
    def _feed(self) -> ShardFeed:
        from penstock.embedding.feed_sources import ShardFeed

        return ShardFeed(self.tables, self.number)

    def standing(self, command: Command) -> Standing:
        """How far this shard has come."""
        answers = self._answers.get(command.client, {})
        again = sum(self._is_update(answer) for number, answer in answers.items() if 0 < command.number <= number)
        return Standing(self._lost, self.epoch, self.updates - again)

    def _is_update(self, answer: Any) -> bool:
        return type(answer) is int  # that of a look-up may be True

    def restore(self, epoch: int, path: str | None, checksum: str | None = None) -> int:
        """Load this shard's part of a checkpoint (or begin empty); the updates it had seen then."""
        if epoch == self.restored_epoch and not self._lost:  # done before, but the answer was lost
            return self.restored_updates
        self._lost, self.updates, self.to_evicted = True, 0, 0
        self._writing = 0, None
        self._answers.clear()  # what was applied is undone
        if path is None:
            self.tables.clear()
        else:
            from penstock.embedding import checkpoint

            self.updates = checkpoint.read_chain(path, partial(self._fill, checksum))
        self.epoch = self.restored_epoch = epoch
        self._lost, self.restored_updates = False, self.updates
        return self.updates

    def _fill(self, checksum: str | None, chain: list[Description]) -> int:
        from penstock.embedding import checkpoint

        if checksum not in (None, chain[-1].checksum):
            raise ArtefactError(f"{chain[-1].path} was replaced while shards read it; load again")
        checkpoint.restore(self.tables, chain, self._keep, self.number)
        return max(int(shard.get("updates", 0)) for shard in chain[-1].data["shards"])

    def _keep(self, signs: np.ndarray) -> np.ndarray:
        mask = np.empty(len(signs), np.bool_)
        owned(signs, self.number, self.num_shards, mask)
        return mask

    def stats(self, command: Command) -> dict[str, Any] | Refused | TooEarly:
        """This shard's figures."""
        return self._once(command, self._stats)

    def _stats(self) -> dict[str, Any]:
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

    def figures(self) -> dict[str, Any]:
        """What who watches the store wants to know, whatever state this shard is in: plain data."""
        with self._lock:
            most, self._most_at_hand = self._most_at_hand, len(self._at_hand)
            return {
                "at": time.time(),
                "process": Process().number,
                "role": "empty" if self._lost else self._role,
                "rows": self.tables.rows,
                "bytes": self.tables.bytes,
                "updates": self.updates,
                "evicted": self.tables.evicted,
                "queued": most,
                "up_seconds": perf_counter() - self._began,
                "seconds": {method: counted.to_dict() for method, counted in self._seconds.items()},
            }

    @property
    def _role(self) -> str:
        return "primary"

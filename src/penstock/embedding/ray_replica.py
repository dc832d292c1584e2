"""A shard that is held by two processes: the primary answers clients, the standby does what the primary did.

A shard is a function of its commands in their order: rows start from their id's hash, eviction goes by a clock of
steps. So a standby that applies the same commands in the same order holds the same bits. The primary gives every
command its place in that order; clients pass commands on to the standby, and keep them until it has them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from penstock.core.runtime.threads import start_thread
from penstock.embedding.ray_coordinator import NAMESPACE, actor_name
from penstock.embedding.ray_messages import Command, Refused, Standing, TooEarly, packed, unpacked
from penstock.embedding.ray_shard import Answer, Shard
from penstock.embedding.ray_state import (
    ShardState,
    TableRows,
    changed_rows,
    piece_of,
    shard_state,
    take_rows,
    take_state,
)
from penstock.embedding.tables import SAVING
from penstock.kernels.cpu_intrinsics import kernel_input

PULSE = "pulse"  # the thread of a process that answers while others are at work
COPYING = "standby"  # who watches the tables while a standby is filled
# How many arguments of a command change a shard; the others say what the client gets.
_ARGUMENTS = {"lookup": 2, "update": 5, "save": 1, "saved": 1}
_MOST_HELD = 256  # commands that a standby keeps while one before them is missing
_ROUNDS, _FEW_ROWS = 8, 50_000  # of what changed while a standby was filled, before the rest is handed over at once
_CARRIED = ("updates", "restored_updates", "to_evicted", "epoch", "_place", "_saver", "_answers")
_PAUSE = 0.1  # seconds between two attempts to fill a standby
_LOOKING_AFTER = 1.0  # seconds between two looks at a standby


class Placed(NamedTuple):
    """A primary's answer: the place of the command among all of this shard, and the standby to pass it on to."""

    answer: Any
    place: int
    standby: int = 0  # its number; 0 where there is none


class Told(NamedTuple):
    """A command on its way to a standby, whose call comes with it."""

    place: int
    num_parts: int


class Following(NamedTuple):
    """A command that has come to a standby."""

    place: int
    method: str
    command: Command
    arguments: list[Any]


class ReplicatedShard(Shard):
    """One of the two processes of a shard. Restoring or promoting makes it the primary, filling the standby."""

    def __init__(self, number: int, num_shards: int, settings: Mapping[str, Any], store: str, process: int) -> None:
        super().__init__(number, num_shards, settings)
        self._store, self._process = store, process
        self._primary = False
        self._standby = 0  # of a primary: the standby that clients pass commands on to
        self._own_number = 0  # of a standby
        self._place = 0  # of the last command that was applied
        self._held: dict[int, Following] = {}  # commands that came before one before them
        self._wanted = threading.Event()
        self._keeper: threading.Thread | None = None

    # The primary

    def _once(self, command: Command, run: Callable[[], Answer]) -> Answer | Refused | TooEarly:
        if not self._primary:
            return Refused(True, self.epoch)
        if command.number == 0:
            return super()._once(command, run)

        def placed() -> Any:
            try:
                answer = run()
            except BaseException:  # what it has done until then the standby will not hear of
                self.lose_standby(self._standby)
                raise
            self._place += 1
            return Placed(answer, self._place)

        reply: Any = super()._once(command, placed)
        if isinstance(reply, Placed):
            reply = reply._replace(standby=self._standby)
        return reply  # type: ignore[no-any-return]

    @property
    def _role(self) -> str:
        return "primary" if self._primary else "standby"

    def standing(self, command: Command) -> Standing:
        """How far this process has come; what is not the primary has nothing to say."""
        found = super().standing(command)
        return found._replace(lost=found.lost or not self._primary)

    def _is_update(self, answer: Any) -> bool:
        return super()._is_update(answer.answer if isinstance(answer, Placed) else answer)

    def restore(self, epoch: int, path: str | None, checksum: str | None = None) -> int:
        """As any shard, and another standby is filled with what is there then."""
        if epoch == self.restored_epoch and not self._lost:  # asked again: it may have a standby by now
            return super().restore(epoch, path, checksum)
        self._standby, self._primary = 0, False
        updates = super().restore(epoch, path, checksum)
        self._lead()
        return updates

    def promote(self, epoch: int, standby: int = 0) -> bool:
        """Go on as the primary under another epoch; False where this process is not the standby of that number."""
        if not self._primary:
            if self._lost or standby != self._own_number:
                return False
            for place in sorted(self._held):  # a client that died has left gaps; nobody will fill them
                self._apply(self._held.pop(place))
            self._standby = 0
        self.epoch = max(self.epoch, epoch)
        if not self._standby:  # else it has one, which must not be emptied because another shard has lost its own
            self._lead()
        return True

    def resend(self, command: Command, told: list[Told], *given: Any) -> list[Any] | Refused | None:
        """Apply what a client had passed on to this process, where that has not arrived before it was promoted."""
        if self._lost or not self._primary or command.epoch != self.epoch:
            return Refused(self._lost or not self._primary, self.epoch)
        found = self._commands(told, given)
        if found is None:
            return None
        return [
            self._once(
                each.command._replace(epoch=command.epoch, before=0), partial(self._do, each.method, each.arguments)
            )
            for each in found
        ]

    def lose_standby(self, standby: int) -> None:
        """A standby has missed a command: it may not take over, and is filled again."""
        if standby and standby == self._standby:
            self._ask_coordinator("unpair", self.number, standby)
            with self._lock:  # the store may have been restored meanwhile
                self._standby = 0 if self._standby == standby else self._standby
            self._wanted.set()

    def _lead(self) -> None:
        self._primary = True
        self._wanted.set()
        if self._keeper is None:
            self._keeper = start_thread("store-standby", self._keep_standby)

    def _keep_standby(self) -> None:
        """Fill a standby when there is none, and look after it while no client does that has commands for it."""
        looked_at = 0
        while True:
            if self._wanted.wait(_LOOKING_AFTER):
                self._wanted.clear()
                while not self._fill_standby():
                    time.sleep(_PAUSE)
            elif self._place != looked_at:
                looked_at = self._place
            elif self._primary and self._standby and not self._is_there(self._standby):
                self.lose_standby(self._standby)

    def _is_there(self, standby: int) -> bool:
        """Whether a standby is, and may take over: a client that gave it up may have died before it said so."""
        import ray

        try:
            there: bool = ray.get(self._other().run.remote(*packed("is_standby", (standby,))))
            return there and self._ask_coordinator("arrangement").standbys[self.number] == standby
        except ray.exceptions.ActorUnavailableError:  # not to be reached just now, or started again: asked once more
            return True
        except (ray.exceptions.RayError, ValueError):
            return False

    def _fill_standby(self) -> bool:
        """Fill the other process with what this one holds; True where there is nothing more to do.

        One that is wanted twice, as by a restore while it is filled, is filled once: it counts, and must not be
        emptied.
        """
        import ray

        with self._lock:
            if not self._primary or self._standby:
                return True
            epoch = self.epoch
        try:
            standby = self._ask_coordinator("new_standby", self.number, self._process)
            return not standby or self._fill_and_pair(standby, epoch)
        except (ray.exceptions.RayError, ValueError):  # it died, or is not there yet
            return False

    def _fill_and_pair(self, standby: int, epoch: int) -> bool:
        import ray

        counts = False
        try:
            filled = ray.get(self._other().run.remote(*packed("fill", (standby, epoch))))
            counts = bool(filled and self._ask_coordinator("pair", self.number, standby, epoch))
        finally:
            if not counts:
                self.lose_standby(standby)
        return counts

    def _other(self) -> Any:
        import ray

        return ray.get_actor(actor_name(self._store, self.number, 1 - self._process), namespace=NAMESPACE)

    def _ask_coordinator(self, method: str, *arguments: Any) -> Any:
        import ray

        coordinator = ray.get_actor(actor_name(self._store), namespace=NAMESPACE)
        return ray.get(getattr(coordinator, method).remote(*arguments))

    # What a primary gives to a standby that is filled

    def begin_copy(self, standby: int) -> int:
        """Watch what changes from here on; the number of tables. 0 where this is no primary."""
        if not self._primary:
            return 0
        self.tables.watch(f"{COPYING} {standby}")
        return len(self.tables.tables)

    def copy_piece(self, table: int, first: int) -> tuple[TableRows, int]:
        """Some rows of a table from a segment on, and the segment after them; 0 at the end."""
        return piece_of(self.tables.tables[table], first)

    def copy_changes(self, standby: int) -> list[TableRows] | None:
        """The rows that changed since this was asked last; None where the store was restored meanwhile."""
        watcher = f"{COPYING} {standby}"
        if not self._primary or watcher not in self.tables.watchers:
            return None
        found = changed_rows(self.tables, watcher)
        self.tables.watch(watcher)
        return found

    def hand_over(self, standby: int) -> ShardState | None:
        """The last changes and everything else: from here on the standby is told every command."""
        rows = self.copy_changes(standby)
        if rows is None:
            return None
        for watcher in [name for name in self.tables.watchers if name.startswith(COPYING)]:
            del self.tables.watchers[watcher]
        self._standby = standby
        own = {name: getattr(self, name) for name in _CARRIED}
        return shard_state(self.tables, rows, own)

    # The standby

    def fill(self, standby: int, epoch: int) -> bool:
        """Take over what the primary of an epoch holds, while it goes on; whether that went well."""
        import ray

        if self._primary and self.epoch >= epoch:
            return False
        primary = self._other()

        def ask(method: str, *arguments: Any) -> Any:
            return ray.get(primary.run.remote(*packed(method, arguments)))

        self._lost, self._primary, self._own_number = True, False, 0
        self._held.clear()
        self.tables.clear()
        for number in range(ask("begin_copy", standby)):
            first = -1
            while first:
                rows, first = ask("copy_piece", number, max(first, 0))
                take_rows(self.tables.tables[number], rows)
        for _ in range(_ROUNDS):
            changes = ask("copy_changes", standby)
            if changes is None:
                return False
            for table, rows in zip(self.tables.tables, changes, strict=True):
                take_rows(table, rows)
            if sum(map(len, changes)) < _FEW_ROWS:
                break
        state = ask("hand_over", standby)
        if state is None:
            return False
        vars(self).update(take_state(self.tables, state))
        self._lost, self._own_number = False, standby
        return True

    def is_standby(self, standby: int) -> bool:
        """Whether this process is the standby of that number."""
        return not self._lost and not self._primary and self._own_number == standby

    def follow(self, standby: int, told: list[Told], *given: Any) -> bool | Refused | None:
        """Apply what the primary has applied, in the same order; what comes too early waits for what is before it."""
        if not self.is_standby(standby):
            return Refused(self._lost, self.epoch)
        found = self._commands(told, given)
        if found is None:
            return None
        self._held.update({each.place: each for each in found if each.place > self._place})
        try:
            while self._place + 1 in self._held:
                self._apply(self._held.pop(self._place + 1))
        except BaseException:
            self._lost = True
            raise
        if self._held:  # a client's memory serves its next batch once this is answered
            for place, each in self._held.items():
                own = [np.array(given) if isinstance(given, np.ndarray) else given for given in each.arguments]
                self._held[place] = each._replace(arguments=own)
        return Refused(self._lost, self.epoch) if len(self._held) > _MOST_HELD else True

    def _commands(self, told: list[Told], given: tuple[Any, ...]) -> list[Following] | None:
        """The commands that have come; None where this process cannot reach the memory of their client."""
        found, start = [], 0
        for place, num_parts in told:
            method, (command, *arguments) = unpacked(*given[start : start + num_parts])
            arguments = [self._here(part) for part in arguments[: _ARGUMENTS[method]]]
            if any(part is None for part in arguments):
                return None
            found.append(Following(place, method, command, arguments))
            start += num_parts
        return found

    def _apply(self, each: Following) -> None:
        answer = Placed(self._do(each.method, each.arguments), each.place)
        self._open_answers(each.command)[each.command.number] = answer
        self._place = each.place

    def _do(self, method: str, arguments: list[Any]) -> Any:
        """What a command changes in a shard, without what it gives to the client."""
        if method == "lookup":
            counts, signs = map(kernel_input, arguments)
            self.tables.lookup_signs(counts, signs, True, self._rows_nobody_reads(counts))
            return True
        if method == "update":
            return self._update(*arguments)
        if method == "saved":
            return self._saved(*arguments)
        self._check_right(*arguments)
        self.tables.watch(SAVING)
        return True

    def _rows_nobody_reads(self, counts: np.ndarray) -> np.ndarray:
        dims = np.array([table.layout.dim for table in self.tables.tables])
        return self.tables.pool.array((int(counts @ dims),), np.float32)

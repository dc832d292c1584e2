"""How a client of a store on Ray talks to its shards: every call goes to all of them, and counts once.

An answer may be missing because the shard died, hangs, or the network lost it. A call is sent again with the same
number, so that a shard which had applied it gives the same answer. A shard that died has lost its rows: then all shards
go back to the last checkpoint, under a new epoch, and calls of older epochs are refused.
"""

from __future__ import annotations

import threading
import time
import uuid
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

from penstock.core.errors import PenstockError
from penstock.core.runtime.threads import start_thread
from penstock.embedding.ray_coordinator import Grant
from penstock.embedding.ray_in_flight import Arguments, CommandNumbers, InFlight, Sent
from penstock.embedding.ray_messages import Command, Refused, Standing, TooEarly, packed
from penstock.embedding.ray_submitting import CallFailed, Lines, Pending

LEASE_SECONDS = 15.0  # how long the others wait for a client that died while it saved or restored
_PAUSE = 0.05  # seconds between two questions whether a shard is back, or another client done
_HUNG_SECONDS = 30.0  # without an answer, before a checkpoint is loaded


class StoreTimeoutError(PenstockError, TimeoutError):
    """A shard did not answer in time; the message names it."""


class ShardRestartedWarning(UserWarning):
    """A shard died and the store was restored; the message says from what, and what was lost."""


class ShardCalls:
    """The shards and the coordinator of one store, for one client, on one thread at a time: the store holds a lock."""

    def __init__(self, ray: Any, name: str, coordinator: Any, shards: list[Any], timeout: float) -> None:
        self._ray, self._name, self.timeout = ray, name, timeout
        self.coordinator, self.shards = coordinator, shards
        self.numbers = CommandNumbers()
        self.lines = Lines(ray)
        self.lease_seconds, self.hung_after = LEASE_SECONDS, _HUNG_SECONDS
        self._epoch = 0
        self._applied = 0  # updates that all shards are known to have applied
        self._shares = [True] * len(shards)  # whether a shard can reach this client's memory
        self.in_flight: deque[InFlight] = deque()  # oldest first
        self._kept: list[tuple[list[Pending], object]] = []
        self._told = 0  # restarts that this client has warned of

    def call(
        self, method: str, given: Arguments, number: int = 0, patience: float = 1.0, keep: object = None
    ) -> list[Any]:
        """Call every shard at once, again and again until all have answered in the same epoch."""
        while self.in_flight:
            self._finish_oldest(patience)
        return self.wait(self.begin(method, given, number, keep), patience)

    def begin(self, method: str, given: Arguments, number: int = 0, keep: object = None) -> InFlight:
        """Send a command to every shard, behind those that are in flight: shards apply a client's in their order."""
        self._kept = [(calls, kept) for calls, kept in self._kept if not self.lines.are_done(calls)]
        call = InFlight(method, given, number, keep)
        self.in_flight.append(call)
        try:
            self._send(call, time.monotonic() + self.timeout)
        except BaseException as error:
            self._give_up_all(error)
            raise
        return call

    def wait(self, call: InFlight, patience: float = 1.0) -> list[Any]:
        """The answers to a command; those before it are answered first.

        Raises:
            StoreTimeoutError: a shard did not answer it, or one before it, in time.
        """
        while not call.is_done:
            self._finish_oldest(patience)
        if call.replies is None:
            assert call.error is not None
            raise call.error
        return call.replies

    def is_answered(self, call: InFlight) -> bool:
        """Whether all shards have answered, so that nobody would wait."""
        return call.is_done or self.lines.are_done(call.pending)

    def settle(self, number: int) -> None:
        """This command will not be sent again."""
        self.numbers.settle(number)

    def _completed(self, sent: Sent, replies: list[Any]) -> list[Any]:
        """What the caller gets once all shards have answered."""
        return replies

    def _finish_oldest(self, patience: float) -> None:
        call = self.in_flight[0]
        try:
            call.replies = self._answers(call, time.monotonic() + self.timeout * patience)
            self.in_flight.popleft()
        except BaseException as error:
            self._give_up_all(error)

    def _give_up_all(self, error: BaseException) -> None:
        """Nobody knows what has become of a command: those behind it are not waited for either."""
        for call in self.in_flight:
            call.error = error
            if call.keep is not None:
                self._kept.append((call.pending, call.keep))
        self.in_flight.clear()

    def _send(self, call: InFlight, deadline: float) -> None:
        before = 0
        if call.number:
            earlier = (other.number for other in takewhile(lambda other: other is not call, self.in_flight))
            before = max(earlier, default=0)
        command = Command(self._epoch, self.numbers.client, call.number, self.numbers.settled, before)
        shared = [*self._shares]
        calls = [packed(call.method, (command, *call.given(k, shared[k]))) for k in range(len(self.shards))]
        call.sent = Sent(call.method, command, call.given, call.keep, shared, calls)
        call.pending = []
        for shard, part in enumerate(calls):
            call.pending.append(self._submit(shard, call.method, part, deadline))

    def _answers(self, call: InFlight, deadline: float) -> list[Any]:
        """Wait for the oldest command in flight, and send it again until all shards have answered in the same epoch."""
        while True:
            assert call.sent is not None
            if call.sent.command.epoch != self._epoch:  # restored while one before it was waited for
                self._send(call, deadline)
            sent = call.sent
            replies = self._await_all(call.pending, deadline)
            if replies is None:
                replies = [
                    self._answer(k, call.method, call.pending, part, deadline) for k, part in enumerate(sent.calls)
                ]
            refused = [reply for reply in replies if isinstance(reply, Refused)]
            if refused:
                deadline = self._catch_up(refused, sent.command, deadline)
            elif all(reply is not None and not isinstance(reply, TooEarly) for reply in replies):
                return self._completed(sent, replies)
            else:  # once more: those that cannot reach this client's memory are sent what they need
                self._shares = [old and reply is not None for old, reply in zip(self._shares, replies, strict=True)]
            self._send(call, deadline)

    def _await_all(self, pending: list[Pending], deadline: float) -> list[Any] | None:
        """All answers, as is usual; None where something is wrong with one of them."""
        errors = self._ray.exceptions
        try:
            return self.lines.get(pending, max(0.001, deadline - time.monotonic()))
        except (errors.GetTimeoutError, errors.RayActorError, errors.RayTaskError, CallFailed):
            return None

    def count_updates(self, replies: list[Any]) -> None:
        """Remember how far the shards have come, to say what was lost when one dies."""
        self._applied = min(int(reply) for reply in replies)

    def standbys(self) -> int:
        """How many shards have a standby that could take over."""
        return 0

    def shard_name(self, number: int) -> str:
        """How messages name a shard."""
        return f"shard {number} of store {self._name!r}"

    def ask_coordinator(self, method: str, *arguments: Any, patience: float = 1.0) -> Any:
        """The coordinator's answer. Ray sends the call again where the coordinator died and was restarted."""
        reference = getattr(self.coordinator, method).remote(*arguments)
        try:
            return self._ray.get(reference, timeout=self.timeout * patience)
        except self._ray.exceptions.GetTimeoutError:
            raise StoreTimeoutError(
                f"the coordinator of store {self._name!r} did not answer within {self.timeout:g} s"
            ) from None

    @contextmanager
    def lease(self, purpose: str, what: str, patience: float = 1.0) -> Iterator[Grant]:
        """Ask for the right to do something; it is renewed while the block runs, and must be released by it."""
        who = uuid.uuid4().hex
        grant: Grant = self.ask_coordinator("acquire", purpose, who, what, self.lease_seconds, patience=patience)
        done = threading.Event()

        def renew() -> None:
            while not done.wait(self.lease_seconds / 3):
                self.coordinator.renew.remote(purpose, grant.token)

        thread = start_thread("store-lease", renew) if grant.token else None
        try:
            yield grant
        finally:
            done.set()
            if thread is not None:
                thread.join()

    def end_hung(self) -> None:
        """End processes that do not answer: what they hold is about to be replaced, and Ray starts them again."""
        asked = {shard.ping.remote(): shard for shard in self.shards}
        _, silent = self._ray.wait(list(asked), num_returns=len(asked), timeout=self.hung_after)
        for reference in silent:
            self._ray.kill(asked[reference], no_restart=False)

    def restore(self, epoch: int, path: str | None, checksum: str | None, deadline: float) -> int:
        """Give all shards what a checkpoint holds, or nothing; the updates that they had seen then."""
        self.lines.forget()
        replies = self._ask_each("restore", [(epoch, path, checksum)] * len(self.shards), deadline)
        self._shares = [True] * len(self.shards)  # they may be on other machines now
        self._epoch, self._applied = epoch, max(replies)
        return self._applied

    # One shard

    def _submit(self, number: int, method: str, call: list[Any], deadline: float) -> Pending:
        return self.lines.submit(self.shards[number], method, call, deadline)

    def _ask_each(self, method: str, given: list[tuple[Any, ...]], deadline: float) -> list[Any]:
        """Call each shard with arguments of its own, by itself and not in the order of commands."""
        calls = [packed(method, arguments) for arguments in given]
        pending = [self._submit(k, method, call, deadline) for k, call in enumerate(calls)]
        return [self._answer(k, method, pending, call, deadline) for k, call in enumerate(calls)]

    def _answer(self, number: int, method: str, pending: list[Pending], call: list[Any], deadline: float) -> Any:
        """A shard's answer; the call is sent again for as long as answers are lost."""
        while True:
            reply = self._await(number, method, pending[number], deadline)
            if reply is None:
                reply = self._instead(number, method)
            if reply is not None:
                return reply[0]
            time.sleep(_PAUSE)
            pending[number] = self._submit(number, method, call, deadline)

    def _await(self, number: int, method: str, call: Pending, deadline: float) -> tuple[Any] | None:
        """`(reply,)`, or None where the shard died or cannot be reached: nobody knows what it has done."""
        errors = self._ray.exceptions
        try:
            return tuple(self.lines.get([call], max(0.001, deadline - time.monotonic())))
        except errors.GetTimeoutError:
            raise StoreTimeoutError(
                f"{self.shard_name(number)} did not answer {method!r} within {self.timeout:g} s; "
                "it hangs, or timeout is too short"
            ) from None
        except errors.RayActorError as error:
            if time.monotonic() > deadline:
                raise StoreTimeoutError(
                    f"{self.shard_name(number)} died and was not restarted within {self.timeout:g} s: {error}"
                ) from None
            return None
        except errors.RayTaskError as error:
            own = isinstance(error.cause, (PenstockError, OSError))  # what callers explain; its text is no traceback
            raise (error.cause if own else error.as_instanceof_cause()) from None
        except CallFailed as error:
            assert error.__cause__ is not None
            raise error.__cause__ from None

    def _instead(self, number: int, method: str) -> tuple[Any] | None:
        """`(reply,)` in the place of a shard that died; None to wait until it is back."""
        return None

    # After a loss

    def _catch_up(self, refused: list[Refused], command: Command, deadline: float) -> float:
        """Do what it takes for the next attempt to succeed; by when that must be done."""
        newest = max(reply.epoch for reply in refused)
        if not any(reply.lost for reply in refused) and newest > self._epoch:
            self._follow(newest)
        else:
            self._recover(command, deadline)
        return deadline

    def _follow(self, epoch: int) -> None:
        """Another client has restored the store; tell why where shards had died."""
        restarts = self.ask_coordinator("restarts")
        first_call, new = self._epoch == 0, [entry for entry in restarts[self._told :] if not entry.get("took_over")]
        self._epoch, self._told = epoch, len(restarts)
        if new and not first_call:
            self._warn(new)

    def _recover(self, command: Command, deadline: float) -> None:
        """Take the whole store back to its last checkpoint, unless another client has done so."""
        while True:
            with self.lease("restore", "a restart") as grant:
                if grant.token:
                    self._recover_alone(grant, command, deadline)
                    return
            if time.monotonic() > deadline:
                raise StoreTimeoutError(
                    f"store {self._name!r} is being restored by another client, for longer than {self.timeout:g} s"
                )
            time.sleep(_PAUSE)

    def _recover_alone(self, grant: Grant, command: Command, deadline: float) -> None:
        found: list[Standing] = self._ask_each("standing", [(command,)] * len(self.shards), deadline)
        if not any(shard.lost for shard in found) and len({shard.epoch for shard in found}) == 1:
            self.ask_coordinator("release", "restore", grant.token)
            self._follow(found[0].epoch)
            return
        self._go_back(grant, found, deadline)

    def _go_back(self, grant: Grant, found: list[Standing], deadline: float) -> None:
        """Take all shards to the last checkpoint, or to the beginning."""
        known = max([self._applied, *(shard.updates for shard in found if not shard.lost)])
        path, checksum = grant.trail or (None, None)
        entries: list[dict[str, Any]] = []
        try:
            lost = max(0, known - self.restore(grant.token, path, checksum, deadline))
            dead = [number for number, shard in enumerate(found) if shard.lost]
            entries = [{"shard": number, "restored_from": path, "updates_lost": lost} for number in dead]
        finally:
            self.ask_coordinator("release", "restore", grant.token, grant.trail, path is None, entries)
        self._told = len(self.ask_coordinator("restarts"))
        if entries:  # else a client died while it restored the store, and what it began is done
            self._warn(entries)

    def _warn(self, entries: list[dict[str, Any]]) -> None:
        dead = " and ".join(dict.fromkeys(f"shard {entry['shard']}" for entry in entries))
        path, lost = entries[-1]["restored_from"], entries[-1]["updates_lost"]
        source = f"all shards were restored from {path}" if path else "all shards are empty: no checkpoint was there"
        warnings.warn(
            f"{dead} of store {self._name!r} died and came back; {source}; {lost} updates since then are lost",
            ShardRestartedWarning,
            stacklevel=6,
        )

"""How a client talks to shards that have standbys: no update is lost when one of the two processes of a shard dies.

A client passes every command that a shard has applied on to its standby, a message a step, and keeps it until the
standby has it. When a shard dies, its standby takes over under a new epoch, clients send what they kept, and the shard
fills a new standby while training goes on. Only where both are gone do all shards go back to the last checkpoint.
"""

from __future__ import annotations

import time
from typing import Any

from penstock.embedding.ray_calls import ShardCalls, StoreTimeoutError
from penstock.embedding.ray_coordinator import Grant
from penstock.embedding.ray_forwarding import Forwarding, Message
from penstock.embedding.ray_in_flight import InFlight, Sent
from penstock.embedding.ray_messages import Command, Refused, Standing, packed
from penstock.embedding.ray_pairs import Arrangement
from penstock.embedding.ray_replica import PULSE, Placed
from penstock.embedding.ray_submitting import CallFailed, Pending

_SUSPICION = 0.3  # seconds: Ray keeps a call to a process that died until another is started
_SILENCE, _PULSE_PATIENCE = 2.0, 4.0  # seconds: before a process is asked whether it hangs, and for its answer
_TIMES_THE_LONGEST = 3
_LISTENING = 1  # messages to a standby beyond which its answers are asked for
PATIENCE = 10.0  # seconds for a standby to answer, before it is given up and another is filled


class ReplicatedCalls(ShardCalls):
    """The shards of a store and their standbys, for one client."""

    def __init__(self, ray: Any, name: str, coordinator: Any, processes: list[tuple[Any, Any]], timeout: float) -> None:
        super().__init__(ray, name, coordinator, [first for first, _ in processes], timeout)
        self.processes = processes
        self._primaries, self._promoted = [0] * len(processes), [0] * len(processes)
        self._forwarding = Forwarding(len(processes), self.numbers.settle)
        self._moved: set[int] = set()  # shards whose standby took over and has not been sent what was kept for it
        self._suspects: set[int] = set()  # shards whose answer did not come
        self._is_stale = False  # a standby that took over is known, but not what else has changed
        self.silence, self.pulse_patience = _SILENCE, _PULSE_PATIENCE
        self._longest = 0.0  # seconds that answers took, of late

    def _send(self, call: InFlight, deadline: float) -> None:
        if self._is_stale:
            self._rearrange()
        super()._send(call, deadline)

    def settle(self, number: int) -> None:
        """This command will not be sent again, once all standbys have it."""
        if self._forwarding.settle(number):
            self.numbers.settle(number)

    def standbys(self) -> int:
        """How many shards have a standby that could take over."""
        arrangement: Arrangement = self.ask_coordinator("arrangement")
        return sum(map(bool, arrangement.standbys))

    # Passing commands on

    def _completed(self, sent: Sent, replies: list[Any]) -> list[Any]:
        if sent.command.number == 0:
            return replies
        self._forwarding.add(sent, replies)
        if sent.method != "lookup" or self._forwarding.is_full:  # look-ups go with the update that follows
            self._pass_on()
        return [reply.answer for reply in replies]

    def _pass_on(self) -> None:
        forwarding = self._forwarding
        for shard, commands in enumerate(forwarding.outbox):
            self._hear_of(shard)
            if commands and shard not in self._moved:
                forwarding.outbox[shard] = []
                self._send_to_standby(shard, Message(forwarding.standbys[shard], commands))
        late = [shard for shard in range(len(self.shards)) if forwarding.late(shard)]
        try:
            replies = self.lines.get([forwarding.unacknowledged[k][0].call for k in late], PATIENCE)
        except (self._ray.exceptions.RayError, TimeoutError, CallFailed):
            replies = [None] * len(late)
        for shard, reply in zip(late, replies, strict=True):
            if reply is True:
                forwarding.acknowledge(forwarding.unacknowledged[shard].popleft())
            else:
                self._acknowledge_each(shard)

    def _hear_of(self, shard: int) -> None:
        """Let go of what a standby has by now: the sooner, the less memory is in use; but two answers cost as one."""
        waiting = self._forwarding.unacknowledged[shard]
        while len(waiting) > _LISTENING and self.lines.answered(waiting[0].call) is True:
            self._forwarding.acknowledge(waiting.popleft())

    def _send_to_standby(self, shard: int, message: Message) -> None:
        given = self._forwarding.arguments(shard, message.commands, self._forwarding.shares[shard])
        until = time.monotonic() + PATIENCE
        call = packed("follow", (message.standby, *given))
        message.call = self.lines.submit(self._standby(shard), "follow", call, until)
        self._forwarding.unacknowledged[shard].append(message)

    def _acknowledge_each(self, shard: int) -> None:
        """Hear what has become of all messages to a standby, and give it up where it is not one any more."""
        waiting = self._forwarding.unacknowledged[shard]
        for _ in range(len(waiting)):
            message = waiting[0]
            hangs, reply = self._reply_to(message)
            if reply is True:
                self._forwarding.acknowledge(waiting.popleft())
            elif reply is None and not hangs and self._forwarding.shares[shard] is not False:
                self._forwarding.shares[shard] = False
                for again in [waiting.popleft() for _ in range(len(waiting))]:
                    self._send_to_standby(shard, again)  # those that it could apply it passes over
                self._acknowledge_each(shard)
                return
            else:
                self._give_up(shard, message.standby, hangs)
                return

    def _reply_to(self, message: Message) -> tuple[bool, Any]:
        try:
            return False, self.lines.get([message.call], PATIENCE)[0]
        except self._ray.exceptions.GetTimeoutError:
            return True, None
        except (self._ray.exceptions.RayError, CallFailed):
            return False, Refused(True, 0)

    def _give_up(self, shard: int, standby: int, hangs: bool) -> None:
        if not self.ask_coordinator("unpair", shard, standby):
            self._is_stale = True  # it has taken over: what was kept for it must be sent
            return
        self._forwarding.forget(shard, standby)
        self._forwarding.shares[shard] = True
        if hangs:
            self._ray.kill(self._standby(shard), no_restart=False)
        self.shards[shard].run.remote(*packed("lose_standby", (standby,)))

    def _standby(self, shard: int) -> Any:
        return self.processes[shard][1 - self._primaries[shard]]

    # When a process dies

    def _instead(self, number: int, method: str) -> tuple[Any] | None:
        if method == "restore":
            return None
        self._suspects.add(number)
        return (Refused(True, self._epoch),)

    def _await_all(self, pending: list[Pending], deadline: float) -> list[Any] | None:
        began = time.monotonic()
        replies = super()._await_all(pending, min(deadline, began + self._silence()))
        if replies is not None:
            self._longest = max(time.monotonic() - began, 0.99 * self._longest)
        return replies

    def _await(self, number: int, method: str, call: Pending, deadline: float) -> tuple[Any] | None:
        """As for shards without standbys, but one whose process hangs is ended soon, where a standby can take over.

        A process that is only slow answers another thread than the one at work: it is waited for.
        """
        began = time.monotonic()
        while True:
            until = deadline if method == "restore" else min(deadline, time.monotonic() + self._silence())
            try:
                return super()._await(number, method, call, until)
            except StoreTimeoutError:
                is_late = time.monotonic() >= deadline
                if not is_late and self._has_pulse(number):
                    self._longest = max(time.monotonic() - began, self._longest)
                    continue
                arrangement: Arrangement = self.ask_coordinator("arrangement")
                if method != "restore" and arrangement.standbys[number]:
                    self._ray.kill(self.shards[number], no_restart=False)
                    return None
                if is_late:
                    raise

    def _silence(self) -> float:
        """Seconds without an answer after which it is asked whether a process hangs: longer where answers take long."""
        return max(self.silence, _TIMES_THE_LONGEST * self._longest)

    def _has_pulse(self, number: int) -> bool:
        """Whether a process answers at all, busy or not; one that has died does not hang."""
        answer = self.shards[number].ping.options(concurrency_group=PULSE).remote()
        return bool(self._ray.wait([answer], timeout=self.pulse_patience)[0])

    def _catch_up(self, refused: list[Refused], command: Command, deadline: float) -> float:
        deadline = max(deadline, time.monotonic() + self.timeout)  # where a shard hung, its time was up
        return super()._catch_up(refused, command, deadline)

    def _follow(self, epoch: int) -> None:
        self._rearrange()
        super()._follow(epoch)
        self._resend(time.monotonic() + self.timeout)

    def _rearrange(self) -> Arrangement:
        """Learn which processes are the primaries, and what was undone."""
        found: Arrangement = self.ask_coordinator("arrangement")
        self._moved |= {k for k, number in enumerate(found.promoted) if number != self._promoted[k]}
        self._primaries, self._promoted = list(found.primaries), list(found.promoted)
        for shard in self._moved:
            self._forwarding.shares[shard] = True
        self.shards[:] = [pair[which] for pair, which in zip(self.processes, self._primaries, strict=True)]
        self._forwarding.forget_before(found.restored)
        self._is_stale = False
        return found

    def _resend(self, deadline: float) -> None:
        """Send what was kept for a standby to the primary that it has become."""
        for shard in sorted(self._moved):
            commands = self._forwarding.kept(shard)
            replies = self._resent(shard, deadline) if commands else []
            if isinstance(replies, Refused):
                return  # something else has happened: the next call finds out what
            for (_, kept), reply in zip(self._forwarding.take(shard), replies, strict=True):
                self._forwarding.place(shard, kept, reply)
                self._forwarding.release_unless_missing(kept)
            self._moved.discard(shard)

    def _resent(self, shard: int, deadline: float) -> list[Placed] | Refused:
        command = Command(self._epoch, self.numbers.client, 0, self.numbers.settled)
        replies: list[Placed] | Refused | None = None
        for here in (self._shares[shard], False):
            if replies is None:  # sent once: what comes behind it may go another way, and arrive before a second one
                given = (command, *self._forwarding.arguments(shard, self._forwarding.kept(shard), here))
                call = packed("resend", given)
                pending = [self._submit(shard, "resend", call, deadline)] * len(self.shards)
                replies = self._answer(shard, "resend", pending, call, deadline)
        return replies or []

    def _recover_alone(self, grant: Grant, command: Command, deadline: float) -> None:
        arrangement = self._rearrange()
        found = self._standings(command, arrangement, deadline)
        dead = [number for number, shard in enumerate(found) if shard.lost]
        if not dead and len({shard.epoch for shard in found}) == 1:
            self.ask_coordinator("release", "restore", grant.token)
            self._follow(found[0].epoch)
            return
        standbys = {k: arrangement.standbys[k] or arrangement.promoted[k] for k in dead}
        if not all(standbys.values()):
            self._go_back(grant, found, deadline)
            return
        if not self.ask_coordinator("claim", grant.token, standbys):
            self.ask_coordinator("release", "restore", grant.token)
            return  # a standby or the lease has changed hands meanwhile: the next attempt finds out what is left
        self._rearrange()
        if not self._promote(grant.token, standbys, deadline):
            self._go_back(grant, found, deadline)
            return
        entries = [{"shard": k, "restored_from": None, "updates_lost": 0, "took_over": True} for k in dead]
        self.ask_coordinator("release", "restore", grant.token, grant.trail, False, entries)
        self._epoch = grant.token
        self._told = len(self.ask_coordinator("restarts"))
        self._shares = [True] * len(self.shards)
        self._resend(deadline)

    def _standings(self, command: Command, arrangement: Arrangement, deadline: float) -> list[Standing]:
        """How far all shards have come; one that did not answer before must do so at once, or its standby is asked."""
        call = packed("standing", (command,))
        pending = [self._submit(k, "standing", call, deadline) for k in range(len(self.shards))]
        suspects, self._suspects = self._suspects, set()
        found: list[Any] = []
        for shard, reference in enumerate(pending):
            is_replaceable = shard in suspects and arrangement.standbys[shard]
            if is_replaceable and not self._ray.wait([reference], timeout=_SUSPICION)[0]:
                found.append(None)
            else:
                found.append(self._answer(shard, "standing", pending, call, deadline))
        return [reply if isinstance(reply, Standing) else Standing(True, 0, 0) for reply in found]

    def _promote(self, epoch: int, standbys: dict[int, int], deadline: float) -> bool:
        """All shards go on under a new epoch, some of them by their standby; whether all do."""
        given = [(epoch, standbys.get(k, 0)) for k in range(len(self.shards))]
        return all(reply is True for reply in self._ask_each("promote", given, deadline))

    def end_hung(self) -> None:
        """As for shards without standbys, of the processes that are the primaries now."""
        self._rearrange()
        super().end_hung()

    def restore(self, epoch: int, path: str | None, checksum: str | None, deadline: float) -> int:
        """As for shards without standbys; those there are hold something else then, and are filled again."""
        self.ask_coordinator("unpair_all", epoch)
        self._rearrange()
        self._moved.clear()
        return super().restore(epoch, path, checksum, deadline)

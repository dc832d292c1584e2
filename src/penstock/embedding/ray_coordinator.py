"""What the clients of a store on Ray must agree on. Its actor imports next to nothing, so that it starts at once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.core.runtime.forks import Process
from penstock.embedding.ray_pairs import Arrangement, Pairs

NAMESPACE = "penstock"


def actor_name(store: str, shard: int | None = None, process: int = 0) -> str:
    """Under which the processes of a store find each other; a shard with a standby has two, 0 and 1."""
    if shard is None:
        return f"penstock-store-{store}"
    return f"penstock-shard-{shard}{'-second' if process else ''}-{store}"


class Grant(NamedTuple):
    """The answer to who asks for a lease."""

    token: int  # larger than all before it; 0 where another holds the lease
    what: str  # what the lease is held for
    trail: tuple[str, str] | None  # path and checksum of the last checkpoint that was saved or loaded


class _Lease(NamedTuple):
    holder: str
    token: int
    what: str
    seconds: float
    ends: float


class Coordinator:
    """Keeps the settings of a store, its last checkpoint, what was lost, and who may save or restore.

    The right to do either is a lease: it ends by itself when its holder does not renew it, since a client may die at
    any moment. Every method may be called twice, as happens when an answer is lost. What changes is noted in Ray's own
    key-value store, from which a coordinator that Ray has restarted goes on.

    Args:
        about: the settings, in a form that only clients read.
        num_shards: how many shards the store has; clients find them by name.
        key: under which notes are kept; none are without it.
        clock: seconds that never go back.
        replicas: processes that hold each shard.

    >>> coordinator = Coordinator(b"", 2)
    >>> coordinator.acquire("save", "one", "/a", 60.0).token
    1
    >>> coordinator.acquire("save", "two", "/b", 60.0)
    Grant(token=0, what='/a', trail=None)
    >>> coordinator.release("save", 1, ("/a", "checksum"))
    True
    >>> coordinator.acquire("save", "two", "/b", 60.0)
    Grant(token=2, what='/b', trail=('/a', 'checksum'))
    """

    def __init__(
        self,
        about: bytes,
        num_shards: int,
        key: str = "",
        clock: Callable[[], float] = time.monotonic,
        replicas: int = 1,
    ) -> None:
        self._about, self._num_shards, self._key, self._clock = about, num_shards, key, clock
        self._replicas = replicas
        self._leases: dict[str, _Lease] = {}
        self._token, self._done = 0, 0
        self._trail: tuple[str, str] | None = None
        self._restarts: list[dict[str, Any]] = []
        self._pairs = Pairs(num_shards)
        notes = _kv()._internal_kv_get(key, namespace=NAMESPACE) if key else None
        if notes:
            self._recall(json.loads(notes))

    def ping(self) -> int:
        """The process that runs the coordinator."""
        return Process().number

    def about(self) -> tuple[bytes, int, int]:
        """What a client needs to know of the store: its settings, how many shards, how many processes each."""
        return self._about, self._num_shards, self._replicas

    def acquire(self, purpose: str, holder: str, what: str, seconds: float) -> Grant:
        """The lease for a purpose, unless another holder has it; `what` tells the others what it is held for."""
        held = self._leases.get(purpose)
        if held is not None and held.ends > self._clock() and held.holder != holder:
            return Grant(0, held.what, self._trail)
        if held is None or held.holder != holder:
            self._token += 1
            held = _Lease(holder, self._token, what, seconds, 0.0)
        self._leases[purpose] = held._replace(ends=self._clock() + seconds)
        self._note()
        return Grant(held.token, what, self._trail)

    def renew(self, purpose: str, token: int) -> bool:
        """Hold a lease for longer; whether it is still held."""
        held = self._leases.get(purpose)
        if held is None or held.token != token:
            return False
        self._leases[purpose] = held._replace(ends=self._clock() + held.seconds)
        return True

    def release(
        self,
        purpose: str,
        token: int,
        trail: tuple[str, str] | None = None,
        forget_trail: bool = False,
        restarts: list[dict[str, Any]] | None = None,
    ) -> bool:
        """Give a lease back and say what was done; whether it was held until now: else nothing is taken over."""
        held = self._leases.get(purpose)
        if held is None or held.token != token:
            return token == self._done
        del self._leases[purpose]
        self._done = token
        self._trail = None if forget_trail else trail or self._trail
        self._restarts += restarts or []
        self._note()
        return True

    def restarts(self) -> list[dict[str, Any]]:
        """What was lost, and when."""
        return self._restarts

    # Standbys

    def arrangement(self) -> Arrangement:
        """Who is who among the processes of a store with standbys."""
        return self._pairs.arrangement

    def new_standby(self, shard: int, process: int) -> int:
        """A number for the standby that a primary is about to fill; 0 where another process is the primary now."""
        if not self._pairs.empty(shard, process):
            return 0
        self._token += 1
        self._note()
        return self._token

    def pair(self, shard: int, standby: int, epoch: int) -> bool:
        """A standby is filled with what its shard held in an epoch; whether it may take over from now on."""
        return self._noted(self._pairs.add(shard, standby, epoch))

    def unpair(self, shard: int, standby: int) -> bool:
        """A standby misses a command and may not take over; False where it has done so already."""
        return self._noted(self._pairs.drop(shard, standby))

    def unpair_all(self, epoch: int) -> None:
        """The store is about to hold something else: no standby that was begun until now may take over."""
        self._pairs.restore(epoch, self._token)
        self._note()

    def claim(self, token: int, standbys: Mapping[int, int]) -> bool:
        """Let standbys take the place of their shards, on the strength of the lease to restore; all or none."""
        held = self._leases.get("restore")
        return held is not None and held.token == token and self._noted(self._pairs.claim(standbys))

    def _noted(self, answer: bool) -> bool:
        self._note()
        return answer

    def forget(self) -> None:
        """Leave no notes: the store is closed."""
        if self._key:
            _kv()._internal_kv_del(self._key, namespace=NAMESPACE)

    def _note(self) -> None:
        if not self._key:
            return
        leases = {purpose: lease._replace(ends=0.0) for purpose, lease in self._leases.items()}
        notes = {"token": self._token, "done": self._done, "trail": self._trail, "restarts": self._restarts}
        text = json.dumps({**notes, "leases": leases, "pairs": self._pairs.to_plain()})
        _kv()._internal_kv_put(self._key, text.encode(), overwrite=True, namespace=NAMESPACE)

    def _recall(self, notes: dict[str, Any]) -> None:
        self._token, self._done, self._restarts = notes["token"], notes["done"], notes["restarts"]
        self._trail = tuple(notes["trail"]) if notes["trail"] else None
        self._pairs.recall(notes["pairs"])
        for purpose, lease in notes["leases"].items():  # clocks of two processes have nothing in common: full length
            held = _Lease(*lease)
            self._leases[purpose] = held._replace(ends=self._clock() + held.seconds)


def _kv() -> Any:
    from ray.experimental import internal_kv

    return internal_kv

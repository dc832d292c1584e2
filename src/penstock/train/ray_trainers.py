"""Workers of one training as Ray actors: they form a group of `torch.distributed`, and begin anew when one dies."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeAlias

from penstock.core.errors import PenstockError
from penstock.core.extras import require
from penstock.core.runtime.forks import Process
from penstock.train import distributed
from penstock.train.store_thread import queue_lengths


class Report(Protocol):
    """What the work of a trainer tells, and to whom."""

    figures: Callable[[], dict[str, Any]]  # asked by who watches, while the work goes on; the work may set it

    def __call__(self, record: Any) -> bool:
        """Take what there is to tell; whether to stop."""


Work: TypeAlias = Callable[[Report], Any]
_LISTEN_SECONDS = 0.25  # how long the one who waits for the workers waits before it asks for news
_MOST_DEATHS = 5  # of workers, without progress in between


class _Warned(NamedTuple):
    """A warning of a worker, for whoever waits for the workers to be warned of."""

    text: str
    category: type[Warning]


class _Kept:
    """Keeps what the work tells, for who asks."""

    def __init__(self) -> None:
        self.news: list[Any] = []  # records and warnings
        self.stop = threading.Event()
        self.figures: Callable[[], dict[str, Any]] = dict

    def __call__(self, record: Any) -> bool:
        """Keep a record; whether one of the workers was told to stop: all must stop at the same step."""
        if distributed.rank() == 0:
            self.news.append(record)
        return any(distributed.all_gather(self.stop.is_set()))

    @contextmanager
    def keeping_warnings(self) -> Iterator[None]:
        """A block whose warnings, of all its threads, are kept as well: nobody reads what a worker prints."""
        shown = warnings.showwarning

        def keep(message: Warning | str, category: type[Warning], *place: Any, **named: Any) -> None:
            if issubclass(category, UserWarning):
                self.news.append(_Warned(str(message), category))
            shown(message, category, *place, **named)

        warnings.showwarning = keep
        try:
            yield
        finally:
            warnings.showwarning = shown


class Trainer:
    """One worker. Others ask it for news, and tell it to stop, while it works."""

    def __init__(self) -> None:
        self._report = _Kept()
        self._store: Any = None

    def ping(self) -> int:
        """The process that runs this worker."""
        return Process().number

    def meet_here(self, num_trainers: int) -> tuple[str, int]:
        """Where the others find this worker, which is the first: host and port."""
        ray, dist = require("ray", "ray"), require("torch.distributed", "torch")
        host: str = ray.util.get_node_ip_address()
        self._store = dist.TCPStore(host, 0, num_trainers, is_master=True, wait_for_workers=False)
        return host, self._store.port

    def join(self, host: str, port: int, rank: int, num_trainers: int, backend: str) -> None:
        """Become one of the group."""
        dist = require("torch.distributed", "torch")
        store = self._store or dist.TCPStore(host, port, num_trainers, is_master=False)
        dist.init_process_group(backend, store=store, rank=rank, world_size=num_trainers)

    def run(self, work: Work) -> Any:
        """Do this worker's part of the work."""
        with self._report.keeping_warnings():
            return work(self._report)

    def news(self, since: int) -> list[Any]:
        """What was recorded or warned of, after the first `since`."""
        return self._report.news[since:]

    def figures(self) -> dict[str, Any]:
        """What who watches the training wants to know of this worker: plain data."""
        return {"at": time.time(), "process": Process().number, "queues": queue_lengths(), **self._report.figures()}

    def stop(self) -> None:
        """Stop at the next record."""
        self._report.stop.set()


class TrainerDied(PenstockError):
    """Workers of a training died again and again."""


class Trainers:
    """Runs the same work on several workers.

    Args:
        num_trainers: how many.
        work: called on each with a function that takes records and says whether to stop; it must be able to go on from
            its last checkpoint by itself.
        on_record: called with each record of the first worker; its warnings are warnings here.
        is_progress: whether after such a record fewer workers than before need be feared to die.
        stop: asked a few times a second; once True, the workers stop at their next record.
        on_death: called when a worker died, before all begin anew.
        resources: of each worker, as Ray's actors take them.
        backend: of `torch.distributed`.
        watch: called with the actors a few times a second.
    """

    def __init__(
        self,
        num_trainers: int,
        work: Work,
        *,
        on_record: Callable[[Any], Any],
        is_progress: Callable[[Any], bool],
        stop: Callable[[], bool],
        on_death: Callable[[str], None],
        resources: dict[str, Any] | None = None,
        backend: str = "gloo",
        watch: Callable[[list[Any]], Any] = lambda actors: None,
    ) -> None:
        self._ray = require("ray", "ray")
        self.num_trainers, self._work, self._backend = num_trainers, work, backend
        self._on_record, self._is_progress, self._stop, self._on_death = on_record, is_progress, stop, on_death
        self._watch = watch
        self._options = {"max_concurrency": 4, "num_cpus": 1, **(resources or {})}
        self._deaths = 0
        self.actors: list[Any] = []

    def run(self) -> Any:
        """What the first worker's work has given.

        Returns:
            Its result.

        Raises:
            TrainerDied: workers died again and again, without progress.
            PenstockError: what the work itself raised.
        """
        while True:
            try:
                return self._attempt()
            except self._ray.exceptions.RayActorError as error:
                self._deaths += 1
                reason = str(error).splitlines()[0]
                if self._deaths > _MOST_DEATHS:
                    raise TrainerDied(
                        f"a trainer died {self._deaths} times without another checkpoint in between: {reason}; where "
                        "it ran out of memory, use smaller batches or machines with more"
                    ) from error
                self._on_death(reason)
            finally:
                for actor in self.actors:
                    self._ray.kill(actor)

    def _attempt(self) -> Any:
        made = self._ray.remote(**self._options)(Trainer)
        self.actors = [made.remote() for _ in range(self.num_trainers)]
        if self.num_trainers > 1:
            place = self._ray.get(self.actors[0].meet_here.remote(self.num_trainers))
            group = (self.num_trainers, self._backend)
            self._ray.get([actor.join.remote(*place, rank, *group) for rank, actor in enumerate(self.actors)])
        work = self._ray.put(self._work)
        running = [actor.run.remote(work) for actor in self.actors]
        pending, seen, told = list(running), 0, False
        while pending:
            done, pending = self._ray.wait(pending, num_returns=1, timeout=_LISTEN_SECONDS)
            for reference in done:
                self._check(reference)
            seen = self._listen(seen)
            self._watch(self.actors)
            if self._stop() and not told:
                told = True
                self._ray.get([actor.stop.remote() for actor in self.actors])
        self._listen(seen)
        return self._ray.get(running[0])

    def _listen(self, seen: int) -> int:
        news = self._ray.get(self.actors[0].news.remote(seen))
        for record in news:
            if isinstance(record, _Warned):
                warnings.warn(record.text, record.category, stacklevel=4)
                continue
            if self._is_progress(record):
                self._deaths = 0
            self._on_record(record)
        return seen + len(news)

    def _check(self, reference: Any) -> None:
        """Raise what a worker has raised; that of one whose peer died is the peer's death."""
        try:
            self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            self._ray.get([actor.ping.remote() for actor in self.actors])
            if isinstance(error.cause, PenstockError):
                raise error.cause from None
            raise

"""Dask: for those who have a cluster of it already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.core.errors import PenstockError
from penstock.core.extras import require
from penstock.engine.base import fold_group, groups, in_order


class DaskEngine:
    """Runs on a Dask client: one given, one for a scheduler's address, or the current one.

    >>> from distributed import Client, LocalCluster
    >>> with LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster, Client(cluster) as client:
    ...     list(DaskEngine(client).map(abs, [-1, -2]))
    [1, 2]
    """

    def __init__(self, client: Any = None) -> None:
        distributed = require("distributed", "dask")
        if client is None:
            try:
                client = distributed.get_client()
            except ValueError:
                raise PenstockError(
                    "engine='dask' found no running Dask client; create one (distributed.Client()) or pass its address"
                ) from None
        elif isinstance(client, str):
            try:
                client = distributed.Client(client, timeout="10s", set_as_default=False)
            except OSError as error:
                raise PenstockError(f"no Dask scheduler answers at {client}: {error}") from error
        self.client = client

    @property
    def num_workers(self) -> int:
        return max(1, int(sum(self.client.nthreads().values())))

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], on_done: Callable[[int], Any] | None = None
    ) -> Iterator[Any]:
        # A task, not scattered data: when the worker that holds it dies, Dask computes it again.
        shared = self.client.submit(_itself, function, pure=False)

        def submit(item: Any) -> Any:
            return self.client.submit(_call, shared, item, pure=False)

        return in_order(submit, self._result, self.client.cancel, items, 2 * self.num_workers, on_done)

    def reduce(
        self,
        fold: Callable[..., Any],
        merge: Callable[[Any, Any], Any],
        items: Sequence[Any],
        on_done: Callable[[int], Any] | None = None,
    ) -> Any:
        if not items:
            return None
        from distributed import as_completed

        # A few groups a worker: enough to even out their lengths, few enough to keep the merges cheap.
        runs = groups(len(items), 2 * self.num_workers)
        shared = self.client.submit(_itself, fold, pure=False)  # sent once: it may carry vocabularies
        futures = {self.client.submit(fold_group, shared, [items[i] for i in run], pure=False): run for run in runs}
        try:
            for future in as_completed(list(futures)):
                if future.status == "error":
                    self._result(future)
                for index in futures[future]:
                    if on_done:
                        on_done(index)
            layer = list(futures)
            while len(layer) > 1:
                pairs = [layer[i : i + 2] for i in range(0, len(layer), 2)]
                layer = [self.client.submit(merge, *p, pure=False) if len(p) == 2 else p[0] for p in pairs]
            return self._result(layer[0])
        finally:
            self.client.cancel(list(futures))

    def _result(self, future: Any) -> Any:
        from distributed.client import FutureCancelledError
        from distributed.scheduler import KilledWorker

        try:
            return future.result()
        except (KilledWorker, FutureCancelledError) as error:
            raise PenstockError(
                f"a Dask worker died repeatedly on one partition ({error}); give workers more memory or lower part_size"
            ) from error


def _itself(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _call(function: Callable[..., Any], item: Any) -> Any:
    return function(item)

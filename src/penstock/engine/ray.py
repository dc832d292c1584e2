"""Ray: the same cluster that holds embedding shards and trainers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.core.errors import PenstockError
from penstock.core.extras import require
from penstock.engine.base import fold_group, groups, in_order


class RayEngine:
    """Runs as Ray tasks, on the running Ray, on the cluster at `address`, or on a local one that it starts."""

    def __init__(self, address: str | None = None) -> None:
        self.ray = require("ray", "ray")
        if not self.ray.is_initialized():
            try:
                self.ray.init(address=address, include_dashboard=False, log_to_driver=False, configure_logging=False)
            except ConnectionError as error:
                raise PenstockError(f"no Ray cluster answers at {address}: {error}") from error

    @property
    def num_workers(self) -> int:
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], on_done: Callable[[int], Any] | None = None
    ) -> Iterator[Any]:
        shared, task = self.ray.put(function), self.ray.remote(_call)

        def cancel(references: list[Any]) -> None:
            for reference in references:
                self.ray.cancel(reference)

        limit = 2 * self.num_workers
        return in_order(lambda item: task.remote(shared, item), self._get, cancel, items, limit, on_done)

    def reduce(
        self,
        fold: Callable[..., Any],
        merge: Callable[[Any, Any], Any],
        items: Sequence[Any],
        on_done: Callable[[int], Any] | None = None,
    ) -> Any:
        if not items:
            return None
        runs = groups(len(items), 2 * self.num_workers)
        shared_fold, shared_merge = self.ray.put(fold), self.ray.put(merge)
        fold_task, merge_task = self.ray.remote(fold_group), self.ray.remote(_call)
        running = {fold_task.remote(shared_fold, [items[i] for i in run]): run for run in runs}
        layer = list(running)
        try:
            while running:
                done, _ = self.ray.wait(list(running), num_returns=1)
                for index in running.pop(done[0]):
                    if on_done:
                        on_done(index)
        finally:
            for reference in running:
                self.ray.cancel(reference)
        while len(layer) > 1:
            pairs = [layer[i : i + 2] for i in range(0, len(layer), 2)]
            layer = [merge_task.remote(shared_merge, *p) if len(p) == 2 else p[0] for p in pairs]
        return self._get(layer[0])

    def _get(self, reference: Any) -> Any:
        from ray.exceptions import RayTaskError, WorkerCrashedError

        try:
            return self.ray.get(reference)
        except RayTaskError as error:
            # The error as the task raised it (naming file and column), not Ray's wrapper around it.
            cause = error.cause
            raise cause if isinstance(cause, PenstockError) else error from None
        except WorkerCrashedError as error:
            raise PenstockError(f"a Ray worker died while it worked on a partition: {error}") from error


def _call(function: Callable[..., Any], *items: Any) -> Any:
    return function(*items)

"""What the shards and trainers of a cluster do while a run goes on, as plain data for its page and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from penstock.core.latencies import Counts, since
from penstock.embedding import RayStore
from penstock.embedding.ray_probes import Probes

_FEWEST = 20  # commands since the last look, below which a mean says nothing
_SLOW = 2.0  # a straggler takes more than so many times what the others take
_COMPARED = ("lookup", "update")

Key = tuple[str, int, int]


class ClusterWatch:
    """Looks at the processes of a cluster, and tells what has changed.

    Args:
        store: whose shards are looked at; None where the run has no embeddings.
        tell: takes the figures: `shards` and `trainers`, a mapping each.
        every: seconds between two looks at the same process.
    """

    def __init__(self, store: RayStore | None, tell: Callable[[dict[str, Any]], None], every: float = 2.0) -> None:
        self._tell, self._probes = tell, Probes[Key](every)
        self._shards = {} if store is None else store.processes()
        self._before: dict[Key, Mapping[str, Counts]] = {}

    def __call__(self, trainers: Sequence[Any], wait: float = 0.0) -> None:
        """Look, and tell where there is news.

        Args:
            trainers: the actors that train, by rank.
            wait: how long for answers; by default they are heard at a later look.
        """
        shards = {("shard", *place): actor.figures.remote for place, actor in self._shards.items()}
        others = {("trainer", rank, 0): actor.figures.remote for rank, actor in enumerate(trainers)}
        if self._probes.look({**shards, **others}, wait):
            self._tell(self._figures())

    def _figures(self) -> dict[str, Any]:
        found = dict(sorted(self._probes.answers().items()))
        leading = {key: dict(said) for key, said in found.items() if said.get("role") == "primary"}
        recent = [self._since_last(key, said["seconds"]) for key, said in leading.items()]
        for said, slower in zip(leading.values(), stragglers(recent), strict=True):
            said["straggles"] = slower
        self._before = {key: said["seconds"] for key, said in leading.items()}
        found |= leading
        return {
            "shards": [{"shard": n, "replica": m, **said} for (kind, n, m), said in found.items() if kind == "shard"],
            "trainers": [{"trainer": n, **said} for (kind, n, _), said in found.items() if kind == "trainer"],
        }

    def _since_last(self, key: Key, seconds: Mapping[str, Counts]) -> dict[str, Counts]:
        before = self._before.get(key, {})
        return {command: since(counts, before.get(command)) for command, counts in seconds.items()}


def stragglers(shards: Sequence[Mapping[str, Counts]]) -> list[dict[str, float]]:
    """For each shard the commands for which it took more than twice as long as the others, and how many times.

    Args:
        shards: what each has counted lately, by command.

    Returns:
        By command, for each shard; empty for one that keeps up.

    >>> def shard(seconds):
    ...     return {"lookup": {"count": 100, "sum": 100 * seconds}}
    >>> stragglers([shard(0.001), shard(0.001), shard(0.009)])
    [{}, {}, {'lookup': 9.0}]
    """
    found: list[dict[str, float]] = [{} for _ in shards]
    for command in _COMPARED:
        counted = [(number, shard[command]) for number, shard in enumerate(shards) if command in shard]
        means = {number: counts["sum"] / counts["count"] for number, counts in counted if counts["count"] >= _FEWEST}
        for number, mean in means.items():
            usual = median([other for one, other in means.items() if one != number] or [mean])
            if mean > _SLOW * usual:
                found[number][command] = round(mean / usual, 2)
    return found

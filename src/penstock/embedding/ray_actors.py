"""The processes of a store on Ray: Ray itself, the coordinator, and those of every shard."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from penstock.core.errors import PenstockError
from penstock.core.extras import require
from penstock.embedding.locks import SecondWriterError
from penstock.embedding.policies import Eviction
from penstock.embedding.ray_coordinator import NAMESPACE, Coordinator, actor_name
from penstock.embedding.ray_replica import PULSE, ReplicatedShard
from penstock.embedding.ray_shard import Shard


def start_ray() -> Any:
    """The module, with a Ray that runs."""
    ray = require("ray", "ray")
    if not ray.is_initialized():
        ray.init(namespace=NAMESPACE, include_dashboard=False, log_to_driver=False)
    return ray


def create_actors(
    ray: Any, name: str, settings: dict[str, Any], num_shards: int, detached: bool, replicas: int
) -> tuple[Any, list[tuple[Any, ...]]]:
    """Start the coordinator and the processes of every shard; a name that is taken is refused."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    try:
        ray.get_actor(actor_name(name), namespace=NAMESPACE)
    except ValueError:
        pass
    else:
        raise SecondWriterError(f"a store named {name!r} exists already; use RayStore.attach({name!r}) to share it")
    # Ray restarts them all; it may repeat calls of the coordinator only, which may be repeated.
    options = {"num_cpus": 0, "max_restarts": -1, "namespace": NAMESPACE}
    if detached:
        options["lifetime"] = "detached"
    # Ray puts actors that ask for nothing on any machine, whatever is said of it: a byte makes it listen.
    made = ray.remote(memory=1, **options)(Shard)
    if replicas > 1:
        made = ray.remote(memory=1, concurrency_groups={PULSE: 1}, **options)(ReplicatedShard)
    nodes = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])

    def start(number: int, process: int) -> Any:
        """A process of a shard: shards go around the machines, a standby lies on the next one."""
        node = nodes[(number + process) % len(nodes)]
        place = NodeAffinitySchedulingStrategy(node, soft=True)
        actor = made.options(name=actor_name(name, number, process), scheduling_strategy=place)
        return actor.remote(number, num_shards, settings, *((name, process) if replicas > 1 else ()))

    shards = [tuple(start(number, process) for process in range(replicas)) for number in range(num_shards)]
    coordinator = ray.remote(max_task_retries=-1, **options)(Coordinator)
    about, key = ray.cloudpickle.dumps(settings), f"{actor_name(name)}-{uuid.uuid4().hex}"
    return coordinator.options(name=actor_name(name)).remote(about, num_shards, key, replicas=replicas), shards


def find_actors(ray: Any, name: str, timeout: float) -> tuple[Any, list[tuple[Any, ...]], dict[str, Any]]:
    """The coordinator of a store that is there, the processes of every shard, and the store's settings.

    Raises:
        PenstockError: there is none of that name.
    """
    try:
        coordinator = ray.get_actor(actor_name(name), namespace=NAMESPACE)
        about, num_shards, replicas = ray.get(coordinator.about.remote(), timeout=10 * timeout)
        shards = [
            tuple(ray.get_actor(actor_name(name, number, process), namespace=NAMESPACE) for process in range(replicas))
            for number in range(num_shards)
        ]
    except ValueError:
        raise PenstockError(f"there is no store named {name!r} in this Ray cluster; create it first") from None
    return coordinator, shards, ray.cloudpickle.loads(about)


def share_of(eviction: Eviction | None, num_shards: int) -> Eviction | None:
    """One shard's part of the whole store's budget."""
    if eviction is None:
        return None
    rows = None if eviction.max_rows is None else max(1, eviction.max_rows // num_shards)
    size = None if eviction.max_bytes is None else max(1, eviction.max_bytes // num_shards)
    return replace(eviction, max_rows=rows, max_bytes=size)


def whole_of(share: Eviction | None, num_shards: int) -> Eviction | None:
    """The whole store's budget, of which every shard has a part."""
    if share is None:
        return None
    rows = None if share.max_rows is None else share.max_rows * num_shards
    size = None if share.max_bytes is None else share.max_bytes * num_shards
    return replace(share, max_rows=rows, max_bytes=size)

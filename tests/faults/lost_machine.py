"""`python -m tests.faults.lost_machine`: a store on two machines (of Ray: two raylets here), one of which is lost."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster
from tests.faults.test_ray_standbys import SLOTS, rows, step, wait_for_standbys

from penstock.embedding import Adam, RayStore, Store
from penstock.embedding.ray_coordinator import NAMESPACE


def machines_of(store: RayStore) -> list[list[str]]:
    """Where the processes of each shard run."""
    calls: Any = store._calls
    return [[ray.get(process.__ray_call__.remote(_machine)) for process in pair] for pair in calls.processes]


def _machine(_: Any) -> str:
    return str(ray.get_runtime_context().get_node_id())


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    other = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    same = Store(SLOTS, Adam(lr=0.1))
    with RayStore(SLOTS, Adam(lr=0.1), num_shards=3, replicas=2, timeout=300) as store:
        wait_for_standbys(store)
        placed = machines_of(store)
        used = {machine for pair in placed for machine in pair}
        print("placed", [len(set(pair)) for pair in placed], used == {node["NodeID"] for node in ray.nodes()})
        for number in range(4):
            np.testing.assert_array_equal(step(store, number), step(same, number))
        cluster.remove_node(other, allow_graceful=False)
        began = time.monotonic()
        for number in range(4, 8):
            np.testing.assert_array_equal(step(store, number), step(same, number))
        print(f"paused {time.monotonic() - began:.1f} s")
        np.testing.assert_array_equal(rows(store), rows(same))
        wait_for_standbys(store)
        print("lost", sum(entry["updates_lost"] for entry in store.stats()["restarts"]))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()

"""The Ray that a run uses: one that runs already, one at an address, or one of this machine's processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.core.errors import PenstockError
from penstock.core.extras import require
from penstock.core.runtime.threads import available_cores
from penstock.embedding.ray_coordinator import NAMESPACE


@contextmanager
def connected(address: str | None, num_cpus: int) -> Iterator[None]:
    """Ray, while the block runs. Without an address it is started here, with as many CPUs as there are, or are needed.

    Where this process is connected already, that Ray serves, and stays.
    """
    ray = require("ray", "ray")
    if ray.is_initialized():
        yield
        return
    own: dict[str, Any] = {"num_cpus": max(num_cpus, available_cores())} if address is None else {"address": address}
    try:
        ray.init(namespace=NAMESPACE, include_dashboard=False, log_to_driver=False, configure_logging=False, **own)
    except ConnectionError as error:
        raise PenstockError(f"no Ray cluster answers at {address}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


def resources_of_trainers(num_trainers: int, device: str) -> dict[str, Any]:
    """What each trainer takes of the cluster, which must have it."""
    ray = require("ray", "ray")
    wanted = {"CPU": 1.0, **({"GPU": 1.0} if device == "cuda" else {})}
    there = ray.cluster_resources()
    for name, each in wanted.items():
        if there.get(name, 0.0) < num_trainers * each:
            raise PenstockError(
                f"{num_trainers} trainers take {num_trainers * each:g} {name}s, and the cluster has "
                f"{there.get(name, 0.0):g}; ask for fewer trainers, or add machines"
            )
    return {"num_cpus": 1, **({"num_gpus": 1} if device == "cuda" else {})}

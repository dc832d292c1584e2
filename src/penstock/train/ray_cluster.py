"""The Ray that a run uses: one that runs already, one at an address, or one of this machine's processes."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.core.errors import PenstockError
from penstock.core.extras import require
from penstock.core.runtime.threads import available_cores
from penstock.embedding.ray_coordinator import NAMESPACE

_ANSWER_SECONDS = 10.0


@contextmanager
def connected(address: str | None, num_cpus: int) -> Iterator[None]:
    """Ray, while the block runs. Without an address it is started here, with as many CPUs as there are, or are needed.

    Where this process is connected already, that Ray serves, and stays.
    """
    ray = require("ray", "ray")
    if ray.is_initialized():
        yield
        return
    if address is not None:
        _check_answers(address)
    own: dict[str, Any] = {"num_cpus": max(num_cpus, available_cores())} if address is None else {"address": address}
    try:
        ray.init(namespace=NAMESPACE, include_dashboard=False, log_to_driver=False, configure_logging=False, **own)
    except ConnectionError as error:
        raise PenstockError(f"no Ray cluster answers at {address}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Refuse an address where nobody answers at once: Ray would try for minutes, in words of its own."""
    host, _, port = address.removeprefix("ray://").partition("/")[0].rpartition(":")
    if not host or not port.isdigit():
        return  # "auto", or what Ray makes of it
    try:
        socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise PenstockError(
            f"no Ray cluster answers at {address}: {error}; is it running (ray start --head), and is the port right?"
        ) from error


def check_shared(paths: Iterable[str]) -> None:
    """Refuse files and folders that a machine of the cluster does not see under the same names as this one."""
    ray = require("ray", "ray")
    strategy = require("ray.util.scheduling_strategies", "ray").NodeAffinitySchedulingStrategy
    look, known = ray.remote(num_cpus=0, max_retries=0)(_missing), list(paths)
    asked = {
        node["NodeManagerAddress"]: look.options(scheduling_strategy=strategy(node["NodeID"], soft=False)).remote(known)
        for node in ray.nodes()
        if node["Alive"]
    }
    for machine, reference in asked.items():
        try:
            missing = ray.get(reference)
        except ray.exceptions.RayTaskError as error:  # it cannot even import this function
            raise PenstockError(
                f"machine {machine} of the cluster cannot run Penstock: {error.cause}; install the same version there"
            ) from None
        if missing:
            raise PenstockError(
                f"machine {machine} of the cluster does not see {missing[0]}; data and the run's folder must lie where "
                f"all machines reach them under the same name, as on a network file system (data may be at s3://… too)"
            )


def _missing(paths: list[str]) -> list[str]:
    return [path for path in paths if not Path(path).exists()]


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

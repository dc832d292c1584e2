"""A data loader and a trainer in one script: functions in place of processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from penstock.compat.persia import _config, env
from penstock.compat.persia._service import EMBEDDING_CONFIG, GLOBAL_CONFIG, service
from penstock.core.errors import ParameterError, PenstockError
from penstock.core.params import CALLABLE, NONE, Int, check_all
from penstock.core.runtime.threads import new_thread

__all__ = ["PersiaServiceCtx", "ensure_persia_service"]


class PersiaServiceCtx:
    """A block in which data loaders run beside it, with a configuration given as data or as a path.

    PERSIA started processes, servers among them; here `data_loader_func` runs on threads of this process (one for each
    of `data_loader_replica_num`), `nn_worker_func` on one more, and there are no servers: their numbers and ports are
    taken and not needed. An error of a data loader reaches the trainer that reads its batches, and one that nobody has
    read is raised at the end of the block. Leaving the block waits for `nn_worker_func`; data loaders that still send
    are let go.

    >>> with ensure_persia_service(embedding_config={"slots_config": {"age": {"dim": 8}}}):
    ...     service().slots().names
    ['age']
    """

    def __init__(
        self,
        data_loader_func: Callable[[], Any] | None = None,
        nn_worker_func: Callable[[], Any] | None = None,
        embedding_config: Mapping[str, Any] | None = None,
        embedding_config_path: str | None = None,
        global_config: Mapping[str, Any] | None = None,
        global_config_path: str | None = None,
        data_loader_replica_num: int = 1,
        nproc_per_node: int = 1,
        embedding_worker_replica_num: int = 1,
        embedding_parameter_replica_num: int = 1,
        embedding_worker_port: int = 7777,
        embedding_parameter_server_port: int = 8888,
        nats_server_port: int = 4222,
    ) -> None:
        constraints = {
            "data_loader_func": NONE | CALLABLE,
            "nn_worker_func": NONE | CALLABLE,
            "data_loader_replica_num": Int(min=1),
            "nproc_per_node": Int(min=1),
        }
        check_all(locals(), constraints, "ensure_persia_service")
        if nproc_per_node > 1:
            raise ParameterError("several trainers are several processes: use penstock persia-launcher")
        self.data_loader_func, self.nn_worker_func = data_loader_func, nn_worker_func
        self._replicas = data_loader_replica_num
        self._configs = {
            EMBEDDING_CONFIG: _given(embedding_config, embedding_config_path),
            GLOBAL_CONFIG: _given(global_config, global_config_path),
        }
        self._threads: list[threading.Thread] = []
        self._trainer: threading.Thread | None = None
        self._failures: list[tuple[str, BaseException]] = []

    def __enter__(self) -> PersiaServiceCtx:
        for variable, content in self._configs.items():
            if content is not None:
                service().configure(variable, content)
        service().slots()  # what is wrong with the configuration is said here, not on a thread
        service().global_config()
        service().stream.expect(self._replicas if self.data_loader_func else 0)
        if self.data_loader_func is not None:
            for number in range(self._replicas):
                self._threads.append(self._start(f"data loader {number}", self.data_loader_func, number))
        if self.nn_worker_func is not None:
            self._trainer = self._start("nn worker", self.nn_worker_func, None)
        return self

    def _start(self, name: str, work: Callable[[], Any], replica: int | None) -> threading.Thread:
        def run() -> None:
            if replica is not None:
                env.set_thread(replica, self._replicas)
            try:
                work()
            except SystemExit:
                pass  # a data loader whose trainer has enough
            except BaseException as error:
                self._failures.append((name, error))
                if replica is not None:
                    service().stream.fail(replica, name, f"{type(error).__name__}: {error}")

        thread = new_thread(name.replace(" ", "-"), run)
        thread.start()
        return thread

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if self._trainer is not None and error is None:
            self._trainer.join()
        service().stop_listening()
        for thread in self._threads:
            thread.join(10.0)
        for variable in self._configs:
            service().configure(variable, None)
        service().stream.expect(0)
        if error is None and self._failures:
            name, failure = self._failures[0]
            raise PenstockError(f"{name} failed: {type(failure).__name__}: {failure}") from failure


def _given(content: Mapping[str, Any] | None, path: str | None) -> Mapping[str, Any] | None:
    return _config.read_yaml(path) if content is None and path is not None else content


def ensure_persia_service(*args: Any, **kwargs: Any) -> PersiaServiceCtx:
    """A `PersiaServiceCtx`.

    >>> ensure_persia_service(embedding_config={}).nn_worker_func is None
    True
    """
    return PersiaServiceCtx(*args, **kwargs)

"""What stands for PERSIA's servers in this process: the configuration, the stream of batches, the embeddings.

PERSIA ran embedding workers, parameter servers and NATS beside the scripts. Here a data loader talks to its trainer
directly, and the embeddings live in the trainer's memory, or on Ray:

    PENSTOCK_PERSIA_ADDRESS  host:port of every trainer, by rank, separated by commas; a data loader needs the first
                             alone. Not set: data loader and trainer are one process.
    PENSTOCK_PERSIA_STORE    memory (default), or ray
    PENSTOCK_PERSIA_SERVERS  shards of a store on Ray
    PENSTOCK_PERSIA_JOB      name of the store on Ray
    PENSTOCK_PERSIA_TOKEN    what both ends of a connection must know
    PERSIA_EMBEDDING_CONFIG, PERSIA_GLOBAL_CONFIG   the two YAML files, as in PERSIA
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.compat.persia import _config, env
from penstock.compat.persia._sockets import Address, Server, parse_address
from penstock.compat.persia._stream import Stream
from penstock.compat.persia.logger import get_default_logger
from penstock.core.errors import ParameterError, PenstockError
from penstock.core.params import Int, OneOf, check
from penstock.embedding.optimizers import Optimizer
from penstock.embedding.policies import Admission, Eviction
from penstock.embedding.slots import EmbeddingConfig, Init

if TYPE_CHECKING:  # data loaders do without compiled kernels
    from penstock.embedding.store import EmbeddingStore


ADDRESS, TOKEN, JOB = "PENSTOCK_PERSIA_ADDRESS", "PENSTOCK_PERSIA_TOKEN", "PENSTOCK_PERSIA_JOB"
STORE, SERVERS = "PENSTOCK_PERSIA_STORE", "PENSTOCK_PERSIA_SERVERS"
EMBEDDING_CONFIG, GLOBAL_CONFIG = "PERSIA_EMBEDDING_CONFIG", "PERSIA_GLOBAL_CONFIG"
_FEW = 10  # batches of another process that may wait before the loop over them begins
_NAMES = {EMBEDDING_CONFIG: "embedding_config", GLOBAL_CONFIG: "global_config"}


def addresses() -> list[Address]:
    """Where the trainers listen, by rank; empty where data loader and trainer are one process."""
    for variable in (ADDRESS, "TRAINER_SERVICE"):
        if text := os.environ.get(variable, "").strip():
            return [parse_address(part, variable) for part in text.split(",")]
    return []


class Service:
    """The one of this process; see `service()`."""

    def __init__(self) -> None:
        self.stream = Stream()
        self.store: EmbeddingStore | None = None
        self._server: Server | None = None
        self._given: dict[str, Mapping[str, Any]] = {}
        self._made_from: tuple = ()

    # Configuration.

    def configure(self, variable: str, content: Mapping[str, Any] | None) -> None:
        """Use a configuration given as data; None goes back to the files."""
        if content is None:
            self._given.pop(variable, None)
        else:
            self._given[variable] = content

    def _content(self, variable: str) -> tuple[Mapping[str, Any] | None, str]:
        if variable in self._given:
            return self._given[variable], _NAMES[variable]
        if path := os.environ.get(variable):
            return _config.read_yaml(path), path
        stem = _NAMES[variable]  # where PERSIA's own examples keep them
        for place in (f"{folder}{stem}.{end}" for folder in ("", "config/") for end in ("yml", "yaml")):
            if Path(place).is_file():
                return _config.read_yaml(place), place
        return None, stem

    def global_config(self) -> _config.GlobalConfig:
        """`global_config.yml`, or what holds without one."""
        content, where = self._content(GLOBAL_CONFIG)
        slots, _ = self._content(EMBEDDING_CONFIG)  # where the buffer's size stood in August 2021
        return _config.global_config(content or {}, where, (slots or {}).get("forward_buffer_size", 1000))

    def slots(self, init: Init | None = None) -> EmbeddingConfig:
        """`embedding_config.yml`."""
        content, where = self._content(EMBEDDING_CONFIG)
        if content is None:
            raise ParameterError(
                "there is no embedding configuration: name the file in PERSIA_EMBEDDING_CONFIG or with "
                "penstock persia-launcher --embedding-config, or put embedding_config.yml beside the script"
            )
        return _config.embedding_config(content, where, init)

    def _capacity(self) -> int | None:
        content, _ = self._content(EMBEDDING_CONFIG)
        whole = self.global_config().capacity
        return _config.capacity_of(content or {}) if whole is None else whole * _servers()

    # Batches.

    def listen(self, port: int | None = None, capacity: int | None = None) -> None:
        """Take batches: from this process always, and from others where they have been given an address or a port."""
        rank, known = env.get_rank() or 0, addresses()
        before_training = _FEW if known else self.global_config().forward_buffer_size
        self.stream.capacity = capacity or before_training
        if self._server is not None or (not known and port is None):
            return
        if known and rank >= len(known):
            raise ParameterError(f"{ADDRESS} names {len(known)} trainers; there is none for rank {rank}")
        host, own = known[rank] if known else ("127.0.0.1", port)
        if not self.stream.has_senders:
            self._server = Server(self.stream, (host, int(own or 0)), rank, os.environ.get(TOKEN, ""), known)

    def stop_listening(self, failure: str | None = None) -> None:
        """Training is over, or failed: data loaders are told."""
        server, self._server = self._server, None
        if server is not None:
            server.close(failure)
        else:
            self.stream.close()

    # Embeddings.

    def train_with(
        self, optimizer: Optimizer, init: Init | None = None, admit_probability: float = 1.0
    ) -> EmbeddingStore:
        """The store, made when it is first asked for."""
        config = self.slots(init)
        wanted = (config.to_dict(), optimizer.to_dict(), admit_probability, self._capacity())
        if self.store is not None and wanted != self._made_from:
            if self.store.optimizer is not None and self.store.stats()["rows"]:
                raise PenstockError(
                    "this process already trains embeddings with another optimizer or configuration; call "
                    "ctx.clear_embeddings() to begin anew, or use another process"
                )
            self.store.close()
            self.store = None
        if self.store is None:
            self.store = self._make(config, optimizer, admit_probability)
            self._made_from = wanted
        return self.store

    def look_up_nothing(self) -> EmbeddingStore:
        """A store without rows, for look-ups before anything was trained or loaded: every embedding is zeros."""
        if self._content(EMBEDDING_CONFIG)[0] is None:
            raise PenstockError("there are no embeddings in this process; train some, or load_embedding(…) first")
        from penstock.embedding.store import Store

        get_default_logger().warning("no embeddings have been trained or loaded yet: all of them are zeros")
        self.serve(Store(self.slots()))
        assert self.store is not None
        return self.store

    def _make(self, config: EmbeddingConfig, optimizer: Optimizer, admit_probability: float) -> EmbeddingStore:
        kind, world = os.environ.get(STORE, "memory"), env.get_world_size() or 1
        check(STORE, kind, OneOf(("memory", "ray")))
        capacity = self._capacity()
        settings: dict[str, Any] = {
            "admission": Admission(probability=admit_probability),
            "eviction": Eviction("lru", max_rows=capacity) if capacity else None,
        }
        if kind == "memory" and world > 1:
            raise ParameterError(
                f"{world} trainers cannot share embeddings in one process's memory; set {STORE}=ray "
                "(penstock persia-launcher does)"
            )
        if kind == "memory":
            from penstock.embedding.store import Store

            return Store(config, optimizer, **settings)
        return _ray_store(config, optimizer, settings)

    def serve(self, store: EmbeddingStore) -> None:
        """Use a store that only looks up."""
        if self.store is not None and self.store is not store:
            self.store.close()
        self.store, self._made_from = store, ()

    def close(self) -> None:
        """Let go of everything."""
        self.stop_listening()
        self.stream.was_read = True  # what is left in it is left on purpose
        if self.store is not None:
            self.store.close()
        self.store, self._made_from = None, ()
        self._given.clear()


def _servers() -> int:
    text = os.environ.get(SERVERS, "1")
    check(SERVERS, int(text) if text.isdigit() else text, Int(min=1))
    return int(text)


def _ray_store(config: EmbeddingConfig, optimizer: Optimizer, settings: dict[str, Any]) -> EmbeddingStore:
    """The store on Ray: rank 0 makes it, the others attach to it by its name."""
    from penstock.embedding.ray_store import RayStore
    from penstock.train import distributed

    name = os.environ.get(JOB)
    if distributed.world_size() > 1 and not name:
        raise ParameterError(f"several trainers need {JOB}, the name of the store they share")
    store = cluster = None
    if distributed.rank() == 0:
        store = RayStore(config, optimizer, num_shards=_servers(), name=name, **settings)
        cluster = store._ray.get_runtime_context().gcs_address
    [cluster, *_] = distributed.all_gather(cluster)
    if store is not None:
        return store
    os.environ.setdefault("RAY_ADDRESS", str(cluster))
    return RayStore.attach(str(name))


_service: Service | None = None


def service() -> Service:
    """The services of this process."""
    global _service
    if _service is None:
        _service = Service()
    return _service


def reset() -> None:
    """Begin anew: nothing configured, nothing stored."""
    global _service
    if _service is not None:
        _service.close()
    _service = None


# Where services of 2021 were to be found, as the environment says. Nothing here asks them: there are no servers.


def get_embedding_worker_services() -> list[str]:
    """The addresses of embedding workers, which `InferCtx` takes.

    >>> get_embedding_worker_services()
    ['embedding_worker:8887']
    """
    return _services("EMBEDDING_WORKER_SERVICE", "embedding_worker:8887")


def get_middleware_services() -> list[str]:
    """What embedding workers were called before.

    >>> get_middleware_services()
    ['middleware:8000']
    """
    return _services("MIDDLEWARE_SERVICE", "middleware:8000")


def get_trainer_services() -> list[str]:
    """The addresses of trainers.

    >>> get_trainer_services()
    ['trainer:8000']
    """
    return _services("TRAINER_SERVICE", "trainer:8000")


def get_client_services() -> list[str]:
    """What trainers were called before.

    >>> get_client_services()
    ['trainer:8000']
    """
    return get_trainer_services()


def _services(variable: str, default: str) -> list[str]:
    return [os.environ.get(variable) or default]

"""Several trainers: each wraps its model in torch's `DistributedDataParallel`; all share one store on Ray."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from penstock.core.errors import ParameterError
from penstock.core.params import OneOf, check

__all__ = ["DDPOption", "DistributedBaseOption", "get_default_distributed_option"]


class DistributedBaseOption(ABC):
    """How a model becomes one of several that train together.

    >>> sorted(DistributedBaseOption.__abstractmethods__)
    ['convert2distributed_model', 'init_with_env_file']
    """

    def __init__(self, master_port: int, master_addr: str | None = None) -> None:
        self.master_addr, self.master_port = master_addr, master_port

    @abstractmethod
    def convert2distributed_model(
        self,
        model: Any,
        world_size: int,
        rank_id: int,
        device_id: int | None = None,
        master_addr: str | None = None,
        optimizer: Any = None,
    ) -> tuple[Any, Any]:
        """The model that trains together with the others, and its optimizer."""

    @abstractmethod
    def init_with_env_file(self) -> bool:
        """Whether the trainers find each other by a file."""


class DDPOption(DistributedBaseOption):
    """torch's `DistributedDataParallel`: `init_method` "tcp" or "file" (`sync_file=`), `backend` "nccl" or "gloo".

    Where MASTER_ADDR and MASTER_PORT are set (`penstock persia-launcher` and `torchrun` do), they say where rank 0 is.
    Gradients of the model are averaged; those of embeddings are applied as each trainer sends them.

    >>> DDPOption(backend="gloo").master_port
    23456
    >>> DDPOption(backend="mpi")
    Traceback (most recent call last):
    ...
    penstock.core.errors.ParameterError: DDPOption.backend must be one of 'nccl', 'gloo', got 'mpi'
    """

    def __init__(self, init_method: str = "tcp", backend: str | None = None, **options: Any) -> None:
        super().__init__(options.pop("master_port", 23456), options.pop("master_addr", None))
        backend = backend or _default_backend()
        check("DDPOption.init_method", init_method, OneOf(("tcp", "file")))
        check("DDPOption.backend", backend, OneOf(("nccl", "gloo")))
        self.init_method, self.backend, self.options = init_method, backend, options

    def convert2distributed_model(
        self,
        model: Any,
        world_size: int,
        rank_id: int,
        device_id: int | None = None,
        master_addr: str | None = None,
        optimizer: Any = None,
    ) -> tuple[Any, Any]:
        import torch

        self.connect(world_size, rank_id, master_addr)
        ids = None if device_id is None else [device_id]
        wrapped = torch.nn.parallel.DistributedDataParallel(model, device_ids=ids, find_unused_parameters=True)
        return wrapped, optimizer

    def connect(self, world_size: int, rank_id: int, master_addr: str | None = None) -> None:
        """Meet the other trainers."""
        from torch import distributed as dist

        if not dist.is_initialized():
            where = self._where(master_addr)
            dist.init_process_group(self.backend, init_method=where, rank=rank_id, world_size=world_size)

    def _where(self, master_addr: str | None) -> str:
        if self.init_method == "tcp":
            host = self.master_addr or master_addr or os.environ.get("MASTER_ADDR", "127.0.0.1")
            port = self.master_port if self.master_addr else os.environ.get("MASTER_PORT", self.master_port)
            return f"tcp://{host}:{port}"
        file = self.options.get("sync_file")
        if not file:
            raise ParameterError("DDPOption: init_method='file' needs sync_file, a path that all trainers can reach")
        return f"file://{Path(file).absolute()}"

    def init_with_env_file(self) -> bool:
        return self.init_method == "file"


def _default_backend() -> str:
    import torch

    return "nccl" if torch.cuda.is_available() else "gloo"


def get_default_distributed_option(device_id: int | None = None) -> DDPOption:
    """`DDPOption` with NCCL on a GPU and gloo on the CPU.

    >>> get_default_distributed_option().backend
    'gloo'
    """
    return DDPOption(backend="gloo" if device_id is None else _default_backend())

"""The trainer's context since August 2021, which gives way to the one before where its arguments say so."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from penstock.compat.persia import env
from penstock.compat.persia._contexts import PreprocessMode
from penstock.compat.persia._embedding_ctx import EmbeddingCtx, device_of
from penstock.compat.persia._service import service
from penstock.compat.persia.embedding import EmbeddingConfig, Optimizer
from penstock.compat.persia.logger import get_default_logger
from penstock.core.errors import ParameterError, PenstockError, suggest
from penstock.core.params import NONE, Instance, Int, OneOf, Real, check, check_all

# Arguments of 2021 that named or sized servers and buffers which are not here.
_NOT_NEEDED = frozenset(
    "enable_backward backend_worker_size middleware_services wait_server_ready output_addrs init_output "  # noqa: SIM905
    "deserialize_buffer_size backward_buffer_size nats_recv_buffer_size rank_id world_size num_forward_workers "
    "num_backward_workers block_when_exit catch_exception".split()
)


def refuse_unknown(given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Arguments of a context that no age had, with the nearest that one had."""
    for name in given.keys() - _NOT_NEEDED:
        raise ParameterError(
            f"TrainCtx has no argument {name!r}{suggest(name, [*known, *sorted(_NOT_NEEDED)], 'arguments')}"
        )


class _Trainer(EmbeddingCtx):
    """What both ages share: embeddings that are trained, and batches taken from data loaders."""

    embedding_optimizer: Optimizer
    _port: int | None = None
    _queue: int | None = None
    _writer: Any = None

    def _enter(self) -> None:
        from penstock.compat.persia._engine import Engine

        config = self.embedding_config
        native = self.embedding_optimizer.to_native(config.bound)
        store = service().train_with(native, config.to_init(), config.admit_probability)
        device, settings = device_of(self.device_id, self.model), service().global_config()
        service().listen(self._port, self._queue)
        if settings.incremental_dir:
            from penstock.compat.persia._checkpoints import IncrementalWriter

            self._writer = IncrementalWriter(store, settings)
        self._own_engine = Engine(store, device, self._writer)

    def _exit(self, error: BaseException | None) -> None:
        writer, self._writer = self._writer, None
        try:
            super()._exit(error)
            if writer is not None:
                writer.close()
        finally:
            service().stop_listening(None if error is None else f"{type(error).__name__}: {error}")

    def _send(self, scale: float) -> bool:
        batch, self.current_batch = self.current_batch, None
        if batch is None:
            raise PenstockError("there is no batch to send gradients of; prepare_features or forward it first")
        without = [name for name, leaf in batch.embeddings.items() if leaf.grad is None]
        if without:
            get_default_logger().warning(f"the loss does not reach the embeddings of {', '.join(without)}")
        return self._engine.send_gradients(batch, scale)


class TrainCtx(_Trainer):
    """Trains a model and embeddings together.

    `forward(batch)` gives `(output, labels)`, `backward(loss)` steps both optimizers. Every step's gradients are looked
    at: those of a feature that are not finite are dropped, and a dense step that is not finite is left out.
    `mixed_precision` needs a GPU; without one training is in float32.

    From August to November 2021 the first optimizer was called `sparse_optimizer`, which is taken too. Called with
    `sparse_optimizer=` alone it is the context of July 2021, with `on_after_backward`.

    >>> import torch
    >>> from penstock.compat.persia.embedding import Adagrad
    >>> model = torch.nn.Linear(2, 1)
    >>> ctx = TrainCtx(Adagrad(), torch.optim.SGD(model.parameters(), lr=0.1), model=model, mixed_precision=False)
    >>> ctx.preprocess_mode.name, type(TrainCtx(sparse_optimizer=Adagrad())).__name__
    ('TRAIN', 'TrainCtx2021')
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if cls is TrainCtx and "sparse_optimizer" in kwargs and "dense_optimizer" not in kwargs:
            from penstock.compat.persia._train_ctx_2021 import TrainCtx2021

            return super().__new__(TrainCtx2021)  # type: ignore[return-value]
        return super().__new__(cls)

    def __init__(
        self,
        embedding_optimizer: Optimizer | None = None,
        dense_optimizer: Any = None,
        grad_scalar_update_factor: float = 4,
        backward_buffer_size: int = 10,
        backward_workers_size: int = 8,
        grad_update_buffer_size: int = 60,
        lookup_emb_directly: bool = True,
        mixed_precision: bool = True,
        distributed_option: Any = None,
        model: Any = None,
        embedding_config: EmbeddingConfig | None = None,
        threadpool_worker_size: int = 10,
        device_id: int | None = None,
        *,
        sparse_optimizer: Optimizer | None = None,
        embedding_staleness: int | None = None,
        **not_needed: Any,
    ) -> None:
        import torch

        refuse_unknown(not_needed, ["embedding_optimizer", "dense_optimizer", "model", "device_id", "mixed_precision"])
        if sparse_optimizer is not None and embedding_optimizer is not None:
            raise ParameterError("embedding_optimizer is what sparse_optimizer was called in 2021; give one of them")
        embedding_optimizer = embedding_optimizer or sparse_optimizer
        constraints = {
            "embedding_optimizer": Instance(Optimizer, "an optimizer of persia.embedding.optim"),
            "dense_optimizer": Instance(torch.optim.Optimizer, "a torch optimizer"),
            "grad_scalar_update_factor": Real(min=1e-6),
            "model": NONE | Instance(torch.nn.Module, "a torch module"),
            "device_id": NONE | Int(),
            "embedding_staleness": NONE | Int(),
        }
        check_all(locals(), constraints, "TrainCtx")
        assert embedding_optimizer is not None
        mode = PreprocessMode.TRAIN
        super().__init__(mode, model, embedding_config, threadpool_worker_size, device_id)
        self.embedding_staleness = embedding_staleness if embedding_staleness and embedding_staleness > 0 else None
        self.world_size, self.rank_id = env.get_world_size() or 1, env.get_rank() or 0
        self.embedding_optimizer = self.sparse_optimizer = embedding_optimizer
        self.dense_optimizer = dense_optimizer
        self.grad_scalar_update_factor = grad_scalar_update_factor
        device = device_of(device_id, model)
        self.mixed_precision = mixed_precision and device.type == "cuda"
        if mixed_precision and not self.mixed_precision:
            get_default_logger().info("mixed_precision needs a GPU: training in float32")
        self.grad_scaler = torch.amp.GradScaler("cuda") if self.mixed_precision else None
        self.update_times = self.skipped_steps = 0
        if self.world_size > 1:
            self._distribute(distributed_option)

    def _distribute(self, option: Any) -> None:
        from penstock.compat.persia._train_ctx import get_default_distributed_option

        option = option or get_default_distributed_option(self.device_id)
        if self.model is None:  # the script wraps its own
            option.connect(self.world_size, self.rank_id)
            return
        self.model, self.dense_optimizer = option.convert2distributed_model(
            self.model, self.world_size, self.rank_id, self.device_id, optimizer=self.dense_optimizer
        )

    def wait_servers_ready(self) -> None:
        """Nothing to wait for: there are no servers."""

    def backward(self, loss: Any, embedding_gradient_check_frequency: int = 20) -> Any:
        """Step the model and send the embeddings' gradients; the loss, scaled where precision is mixed."""
        from penstock.train.gradients import dense_finite

        scaler, optimizer = self.grad_scaler, self.dense_optimizer
        scale = 1.0 if scaler is None else float(scaler.get_scale())
        loss = loss if scaler is None else scaler.scale(loss)
        loss.backward()
        finite = self._send(scale)
        if scaler is not None:
            scaler.step(optimizer)
            scaler.update(None if finite else scale / self.grad_scalar_update_factor)
        elif dense_finite(optimizer):
            optimizer.step()
        else:
            self.skipped_steps += 1
            get_default_logger().warning("gradients of the model are not finite: this step is left out")
        optimizer.zero_grad()
        self.update_times += 1
        return loss

    def dump_checkpoint(  # type: ignore[override]
        self,
        dst_dir: str,
        dense_model_filename: Any = "dense.pt",
        jit_dense_model_filename: Any = "jit_dense.pt",
        opt_filename: str = "opt.pt",
        blocking: bool = True,
        with_jit_model: bool = False,
    ) -> None:
        """Write model, its optimizer and the embeddings into a directory."""
        super().dump_checkpoint(dst_dir, dense_model_filename, jit_dense_model_filename, blocking, with_jit_model)
        if not hasattr(dense_model_filename, "state_dict"):
            self.dump_torch_state_dict(self.dense_optimizer, dst_dir, opt_filename)

    def load_checkpoint(  # type: ignore[override]
        self,
        src_dir: str,
        map_location: Any = None,
        dense_model_filename: Any = "dense.pt",
        opt_filename: str = "opt.pt",
        blocking: bool = True,
    ) -> None:
        """Restore model, its optimizer and the embeddings from a directory."""
        from penstock.compat.persia._checkpoints import load_state, local_folder

        super().load_checkpoint(src_dir, map_location, dense_model_filename, blocking)
        if not hasattr(map_location, "state_dict"):
            load_state(self.dense_optimizer, local_folder(src_dir) / opt_filename, map_location)


# Several trainers: each wraps its model in torch's `DistributedDataParallel`; all share one store on Ray.


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

"""The trainer's context of July 2021 and before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.compat.persia._contexts import PreprocessMode
from penstock.compat.persia._embedding_ctx import EmbeddingCtx
from penstock.compat.persia._message import PersiaTrainingBatch
from penstock.compat.persia._service import service
from penstock.compat.persia._train_ctx import TrainCtx, refuse_unknown
from penstock.compat.persia.embedding import EmbeddingConfig, Optimizer
from penstock.core.errors import PenstockError
from penstock.core.params import NONE, Instance, Int, check_all


class TrainCtx2021(TrainCtx):
    """The context of July 2021: the script runs model, loss and dense optimizer itself, this the embeddings.

    with TrainCtx(grad_scaler=scaler, sparse_optimizer=Adagrad(lr=1e-3), port=8000, data_queue_size=5) as ctx:
        for batch_idx, data in enumerate(ctx.data_loader()):
            (dense, embeddings), target = ctx.prepare_features(data)
            …
            finite = ctx.on_after_backward(scaler.get_scale(), batch_idx)
    """

    def __init__(
        self,
        grad_scaler: Any = None,
        emb_initialization: tuple[float, float] = (-0.01, 0.01),
        admit_probability: float = 1.0,
        sparse_optimizer: Optimizer | None = None,
        weight_bound: float = 10,
        is_training: bool = True,
        device_id: int | None = None,
        *,
        port: int | None = None,
        data_queue_size: int | None = None,
        forward_buffer_size: int = 10,
        embedding_checkpoint: str | None = None,
        **not_needed: Any,
    ) -> None:
        refuse_unknown(not_needed, ["grad_scaler", "sparse_optimizer", "port", "data_queue_size"])
        constraints = {
            "sparse_optimizer": Instance(Optimizer, "an optimizer of persia.sparse.optim"),
            "port": NONE | Int(1, 65535),
            "data_queue_size": NONE | Int(min=1),
            "forward_buffer_size": Int(min=1),
        }
        check_all(locals(), constraints, "TrainCtx")
        assert sparse_optimizer is not None
        config = EmbeddingConfig(emb_initialization, admit_probability, weight_bound)
        mode = PreprocessMode.TRAIN if is_training else PreprocessMode.EVAL
        EmbeddingCtx.__init__(self, mode, None, config, device_id=_first_gpu(device_id))
        self.grad_scaler, self.sparse_optimizer, self.embedding_optimizer = (
            grad_scaler,
            sparse_optimizer,
            sparse_optimizer,
        )
        self._port, self._queue, self._buffer = port, data_queue_size, forward_buffer_size
        self.embedding_checkpoint = embedding_checkpoint

    def _enter(self) -> None:
        super()._enter()
        if self.embedding_checkpoint is not None:
            path, self.embedding_checkpoint = self.embedding_checkpoint, None
            self.load_embedding(path)

    @property
    def is_training(self) -> bool:
        """Whether batches are trained on."""
        return self.preprocess_mode is PreprocessMode.TRAIN

    def train(self) -> None:
        """Train on the batches of coming loops."""
        self.preprocess_mode = PreprocessMode.TRAIN

    def eval(self) -> None:
        """Only look up in coming loops."""
        self.preprocess_mode = PreprocessMode.EVAL

    def data_loader(
        self,
        port: int | None = None,
        data_queue_size: int | None = None,
        timeout: int = 1000 * 60 * 10,
        disorder_tolerance: float = 1.0,
    ) -> Iterable[PersiaTrainingBatch]:
        """The batches that data loaders send, with their embeddings.

        With `disorder_tolerance=0` data loaders take turns and the order of everything is fixed.
        """
        from penstock.compat.persia.data import DataLoader, StreamingDataset

        room = data_queue_size or self._queue or service().stream.capacity
        service().listen(port or self._port, room)
        dataset = StreamingDataset(room)
        return DataLoader(dataset, self._buffer, timeout, reproducible=disorder_tolerance == 0)

    def prepare_features(  # type: ignore[override]
        self, persia_training_batch: PersiaTrainingBatch, is_training: bool = True
    ) -> Any:
        """`((dense, [embeddings …]), target)`; several dense arrays, or several targets, are lists."""
        return super().prepare_features(persia_training_batch, is_training)

    def backward(self, loss: Any, embedding_gradient_check_frequency: int = 20) -> Any:
        """Of the last release only."""
        raise PenstockError(
            "this is the context of July 2021 (it has a sparse_optimizer alone): use loss.backward(), "
            "ctx.on_after_backward(…) and the dense optimizer's step(), or make the context with dense_optimizer= too"
        )

    def on_after_backward(self, loss_scale: float, batch_idx: int, emb_grad_check_interval: int = 20) -> bool:
        """Send the embeddings' gradients, divided by `loss_scale`; whether all were finite.

        Gradients are looked at in every step, whatever the interval.
        """
        return self._send(float(loss_scale))


def _first_gpu(device_id: int | None) -> int | None:
    """2021 always trained on a GPU, the first by default; here the CPU does where there is none."""
    import torch

    return 0 if device_id is None and torch.cuda.is_available() else device_id

"""Contexts that look batches up: for evaluation, for inference, and as the ground that the trainer's stands on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.compat import cpu
from penstock.compat.persia._contexts import BaseCtx, PreprocessMode, cnt_ctx
from penstock.compat.persia._message import PersiaTrainingBatch, from_bytes
from penstock.compat.persia._service import service
from penstock.compat.persia.embedding import EmbeddingConfig, get_default_embedding_config
from penstock.compat.persia.embedding.data import message_of
from penstock.core.errors import ArtefactError, ParameterError, PenstockError
from penstock.embedding.slots import SlotConfig

if TYPE_CHECKING:
    from penstock.compat.persia._engine import Engine
    from penstock.embedding.store import EmbeddingStore


def current() -> EmbeddingCtx:
    """The context that batches are looked up in."""
    context = cnt_ctx()
    if not isinstance(context, EmbeddingCtx):
        raise PenstockError("batches are looked up inside a context: with TrainCtx(…), eval_ctx(…) or InferCtx(…)")
    return context


class EmbeddingCtx(BaseCtx):
    """Looks batches up and runs a model on them; `eval_ctx(model=…)` is the usual way to one.

    Inside a `TrainCtx` it sees the embeddings that are being trained; elsewhere `load_embedding` or `load_checkpoint`
    brings some.

    >>> with EmbeddingCtx(PreprocessMode.EVAL) as ctx:
    ...     ctx.preprocess_mode is PreprocessMode.EVAL
    True
    """

    looks_up = True
    embedding_staleness: int | None = None  # of data loaders that do not say

    def __init__(
        self,
        preprocess_mode: PreprocessMode,
        model: Any = None,
        embedding_config: EmbeddingConfig | None = None,
        threadpool_worker_size: int = 10,
        device_id: int | None = None,
    ) -> None:
        from penstock.compat.persia._checkpoints import Background

        super().__init__(threadpool_worker_size, device_id)
        self.preprocess_mode, self.model = preprocess_mode, model
        self.embedding_config = embedding_config or get_default_embedding_config()
        self.current_batch: PersiaTrainingBatch | None = None
        self._dumping, self._loading = Background(), Background()
        self._own_engine: Engine | None = None

    # The embeddings.

    @property
    def _store(self) -> EmbeddingStore:
        return service().store or service().look_up_nothing()

    @property
    def _engine(self) -> Engine:
        """That of the context around this one, where it is of the same embeddings: it knows what is still under way."""
        from penstock.compat.persia._engine import Engine

        outer: Any = self.origin_context
        if self._own_engine is None and isinstance(outer, EmbeddingCtx) and outer._own_engine is not None:
            return outer._own_engine
        if self._own_engine is None or self._own_engine.store is not self._store:
            self._own_engine = Engine(self._store, device_of(self.device_id, self.model))
        return self._own_engine

    def _exit(self, error: BaseException | None) -> None:
        engine, self._own_engine = self._own_engine, None
        if engine is not None:
            engine.close(error is not None)
        self._dumping.wait()

    def _batches(self, source: Any, staleness: int) -> Iterator[PersiaTrainingBatch]:
        """A data loader's batches with embeddings."""
        return self._engine.batches(source, self.preprocess_mode is PreprocessMode.TRAIN, staleness)

    def get_embedding_from_data(self, persia_batch: Any, device_id: int | None = None) -> PersiaTrainingBatch:
        """Look a batch up now."""
        training = self.preprocess_mode is PreprocessMode.TRAIN
        return self._engine.looked_up(message_of(persia_batch), training)

    def get_embedding_from_bytes(self, data: bytes, device_id: int | None = None) -> PersiaTrainingBatch:
        """Look up a batch that came as bytes (`PersiaBatch.to_bytes`)."""
        return self.get_embedding_from_data(from_bytes(data), device_id)

    def get_embedding_size(self) -> list[int]:
        """The embeddings there are, for each shard of the store."""
        stats = self._store.stats()
        return [shard["rows"] for shard in stats["shards"]] if "shards" in stats else [stats["rows"]]

    def clear_embeddings(self) -> None:
        """Forget all embeddings."""
        self._engine.drain()
        self._store.clear()

    # The model.

    def prepare_features(self, persia_training_batch: PersiaTrainingBatch, is_training: bool | None = None) -> Any:
        """`(numbers, embeddings, labels)`, each a list of tensors; labels are None for inference.

        An embedding is `(B, dim)`, or `(B, sample_fixed_size, dim + 1)` for features that are not summed: the last
        column is 1 where there is an id and 0 where it is padding.

        Of a `PyPersiaBatchData`, the batch of 2021, numbers and labels are the tensor itself where there is one. Who
        says whether it `is_training` (July 2021) gets `((numbers, embeddings), label)`.
        """
        batch = self.current_batch = persia_training_batch
        batch.id_type_feature_embedding_torch_tensors = embeddings = self._readable(batch)
        numbers: Any = batch.non_id_type_feature_torch_tensors
        labels: Any = None if self.preprocess_mode is PreprocessMode.INFERENCE else batch.label_torch_tensors
        if batch.message.one_each or is_training is not None:
            numbers, labels = _only(numbers), _only(labels or [])
        return (numbers, embeddings, labels) if is_training is None else ((numbers, embeddings), labels)

    def _readable(self, batch: PersiaTrainingBatch) -> list[Any]:
        import torch

        tensors, config = [], self._store.config
        for name, leaf in batch.embeddings.items():
            if (scale := stack_scale(config[name])) != 1.0:
                leaf = leaf * scale
            if name in batch.masks:
                leaf = torch.cat([leaf, batch.masks[name].unsqueeze(-1).to(leaf.dtype)], dim=2)
            tensors.append(leaf if self.preprocess_mode is PreprocessMode.TRAIN else leaf.detach())
        return tensors

    def forward(self, batch: PersiaTrainingBatch) -> tuple[Any, Any]:
        """The model's output on a batch, and the labels."""
        if self.model is None:
            raise ParameterError("this context has no model; make it with model=…")
        numbers, embeddings, labels = EmbeddingCtx.prepare_features(self, batch)
        return self.model(numbers, embeddings), labels

    # Checkpoints.

    def dump_checkpoint(
        self,
        dst_dir: str,
        dense_filename: Any = "dense.pt",
        jit_dense_filename: Any = "jit_dense.pt",
        blocking: bool = True,
        with_jit_model: bool = False,
    ) -> None:
        """Write model and embeddings into a directory (see `penstock.compat.persia._checkpoints`).

        In 2021 it was `dump_checkpoint(directory, model, optimizer)`; so it may be here.
        """
        if hasattr(dense_filename, "state_dict"):
            from penstock.compat.persia._checkpoints import dump_given

            dump_given(self, dst_dir, _unwrapped(dense_filename), jit_dense_filename, blocking)
            return
        if self.model is None:
            raise ParameterError("this context has no model; make it with model=…")
        if with_jit_model:
            self.dump_torch_state_dict(self.model, dst_dir, jit_dense_filename, is_jit=True)
        self.dump_torch_state_dict(self.model, dst_dir, dense_filename)
        self.dump_embedding(dst_dir, blocking=blocking)

    def load_checkpoint(
        self, src_dir: str, map_location: Any = None, dense_filename: Any = "dense.pt", blocking: bool = True
    ) -> None:
        """Restore model and embeddings from a directory; in 2021: `load_checkpoint(directory, model, optimizer)`."""
        from penstock.compat.persia._checkpoints import load_given, load_state, local_folder

        if hasattr(map_location, "state_dict"):
            load_given(self, src_dir, _unwrapped(map_location), dense_filename, blocking)
            return
        if self.model is None:
            raise ParameterError("this context has no model; make it with model=…")
        load_state(_unwrapped(self.model), local_folder(src_dir) / dense_filename, map_location)
        self.load_embedding(src_dir, blocking=blocking)

    def dump_embedding(self, dst_dir: str, blocking: bool = True) -> None:
        """Write the embeddings with their optimizer state; with `blocking=False` beside the training that goes on."""
        from penstock.compat.persia._checkpoints import EMBEDDINGS, local_folder

        place = local_folder(dst_dir) / EMBEDDINGS
        engine, store = self._engine, self._store
        engine.drain()
        self._dumping.run(lambda: store.save(place, overwrite=True), blocking)
        engine.look_up_again()

    def load_embedding(self, src_dir: str, blocking: bool = True) -> None:
        """Replace the embeddings by those of a directory, however many shards wrote them."""
        from penstock.compat.persia._checkpoints import EMBEDDINGS, local_folder

        place = local_folder(src_dir) / EMBEDDINGS
        if not place.is_dir():
            raise ArtefactError(
                f"{src_dir} holds no embeddings written by Penstock (there is no {place}); those of PERSIA are not read"
            )
        if service().store is None:
            self._loading.run(lambda: _serve_from(place), blocking)
        else:
            self._engine.drain()
            self._loading.run(lambda: self._store.load(place), blocking)
            self._engine.look_up_again()

    def wait_for_dump_embedding(self) -> None:
        """Wait for a `dump_embedding(blocking=False)`; its error is raised here."""
        self._dumping.wait()

    def wait_for_load_embedding(self) -> None:
        """Wait for a `load_embedding(blocking=False)`; its error is raised here."""
        self._loading.wait()

    def dump_torch_state_dict(self, torch_instance: Any, dst_dir: str, file_name: str, is_jit: bool = False) -> None:
        """Write the state of a model or optimizer, or a model as TorchScript."""
        from penstock.compat.persia._checkpoints import dump_script, dump_state

        write = dump_script if is_jit else dump_state
        write(_unwrapped(torch_instance), dst_dir, file_name)

    def load_torch_state_dict(self, torch_instance: Any, src_dir: str, map_location: Any = None) -> None:
        """Restore a model or optimizer from the file (or folder) that `src_dir` names."""
        from penstock.compat.persia._checkpoints import load_state

        if not load_state(_unwrapped(torch_instance), src_dir, map_location):
            raise ArtefactError(f"{src_dir} is not there")


def _only(items: list[Any]) -> Any:
    """The item itself where there is one."""
    return items[0] if len(items) == 1 else items or None


def stack_scale(slot: SlotConfig) -> float:
    """What `sqrt_scaling` leaves to do where ids are hashed several times: PERSIA counted every hash as an id.

    >>> from penstock.embedding import HashStack
    >>> stack_scale(SlotConfig("user", 8, pooling="sqrt_n", hash_stack=HashStack(4, 100)))
    0.5
    """
    stack = slot.hash_stack if slot.pooling == "sqrt_n" else None
    return 1.0 if stack is None else stack.rounds**-0.5


def _serve_from(place: Path) -> None:
    from penstock.embedding.store import Store

    service().serve(Store.open(place, serving=True))


def _unwrapped(holder: Any) -> Any:
    """The model inside `DistributedDataParallel`."""
    return getattr(holder, "module", holder)


def device_of(device_id: int | None, model: Any = None) -> Any:
    import torch

    if device_id is None or device_id < 0:
        parameters = model.parameters() if model is not None else iter(())
        return next((parameter.device for parameter in parameters), torch.device("cpu"))
    if device_id >= torch.cuda.device_count():
        if cpu.mapped():
            return torch.device("cpu")
        raise ParameterError(
            f"device_id={device_id}, and this machine has {torch.cuda.device_count()} GPUs; use device_id=None for the "
            "CPU, or penstock run --cpu"
        )
    return torch.device("cuda", device_id)


def eval_ctx(*args: Any, **kwargs: Any) -> EmbeddingCtx:
    """A context for evaluation: look-ups never insert, and an id that is not known is zeros.

    >>> eval_ctx().preprocess_mode
    <PreprocessMode.EVAL: 2>
    """
    return EmbeddingCtx(PreprocessMode.EVAL, *args, **kwargs)


def inference_ctx(*args: Any, **kwargs: Any) -> InferCtx:
    """A context for look-ups without labels, as it was called in 2021.

    >>> inference_ctx().preprocess_mode
    <PreprocessMode.INFERENCE: 3>
    """
    return InferCtx(None, *args, **kwargs)


class InferCtx(EmbeddingCtx):
    """Looks up without training anything, inside its block or without one.

    There are no embedding workers to ask: `embedding_worker_address_list` is taken and not needed. The embeddings are
    those of this process, or of the checkpoint that `infer_config.embedding_checkpoint` in the global configuration
    names (or of `load_embedding`), and follow `incremental_dir` where `enable_incremental_update` is on.

    >>> InferCtx(["localhost:8888"]).preprocess_mode
    <PreprocessMode.INFERENCE: 3>
    """

    def __init__(self, embedding_worker_address_list: list[str] | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(PreprocessMode.INFERENCE, *args, **kwargs)
        self._following: Any = None
        self._is_ready = False

    def _enter(self) -> None:
        self.wait_for_serving()

    def _exit(self, error: BaseException | None) -> None:
        super()._exit(error)
        self._following, self._is_ready = None, False

    def wait_for_serving(self) -> None:
        """Have the embeddings there: those of this process, or of the checkpoint that the configuration names."""
        if self._is_ready:
            return
        self._is_ready = True
        config = service().global_config()
        if service().store is None and config.embedding_checkpoint:
            self.load_embedding(config.embedding_checkpoint)
        store = service().store
        if config.incremental_dir and store is not None and store.optimizer is None:
            from penstock.compat.persia._checkpoints import IncrementalReader

            self._following = IncrementalReader(store, config.incremental_dir)  # type: ignore[arg-type]

    def get_embedding_from_data(self, persia_batch: Any, device_id: int | None = None) -> PersiaTrainingBatch:
        self.wait_for_serving()
        if self._following is not None:
            self._following.poll()
        return super().get_embedding_from_data(persia_batch, device_id)

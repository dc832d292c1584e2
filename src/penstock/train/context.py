"""Hybrid training: a dense model that steps synchronously beside embeddings that are looked up and updated ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn

from penstock.core.errors import PenstockError
from penstock.core.params import CALLABLE, NONE, Instance, Int, Real, Satisfies, check_all
from penstock.embedding.protocol import Embeddings, updates_in_backward
from penstock.train import begun, distributed
from penstock.train.batch import TrainBatch
from penstock.train.begun import Later
from penstock.train.feeder import Feeder, Source, check_columns, module_on_device
from penstock.train.gradients import Outcome, broken, dense_finite, dropped_counts, embedding_gradients
from penstock.train.loops import Loops
from penstock.train.timing import Timings
from penstock.train.transfer import Transfer


class TrainContext:
    """Trains `model` and its `embeddings` together.

    Look-ups of coming batches and updates of past ones run on a thread beside the dense step. At most `staleness`
    batches are in flight: with 1 every look-up sees all updates before it (exact, the same bits on every run); with k
    it lacks those of the k - 1 batches before. The order of look-ups and updates is fixed, so runs in one process
    repeat themselves at any staleness.

    Args:
        model: called as `model(continuous, embeddings)`; those of `penstock.nn`, or any module with that signature.
        embeddings: any `penstock.embedding.Embeddings`: a store, tables on the device, your own; or an `nn.Module` that
            makes embeddings from ids, whose parameters the dense optimizer steps; or None without categories.
        dense_optimizer: a torch optimizer; None where nothing is trained.
        staleness: most batches in flight.
        loss_fn: what `ctx.loss(output, labels)` computes; binary cross-entropy of logits by default.
        grad_scaler: a `torch.amp.GradScaler`.
        autocast: a dtype (`torch.bfloat16`) for the model's forward pass.
        scheduler: a torch learning-rate scheduler, stepped after every step that was taken.
        device: where the model runs; that of its parameters by default.
        exit_timeout: seconds that leaving the block may take at most.

    Under `torch.distributed` the model is wrapped in `DistributedDataParallel`, and gradients of embeddings are divided
    by the number of workers, as those of the model are; all workers share one store (`RayStore.attach(name)`).

    >>> from penstock import ColumnSchema, Schema
    >>> from penstock.embedding import SGD, SlotConfig, Store
    >>> from penstock.loader.torch import Loader
    >>> from penstock.nn import MLP
    >>> data = {"user": [1, 2, 3, 4], "click": [0, 1, 0, 1]}
    >>> loader = Loader(data, 2, categorical=["user"], labels=["click"])
    >>> model, store = MLP(loader.schema, 4, hidden=()), Store([SlotConfig("user", dim=4)], SGD(lr=0.1))
    >>> with TrainContext(model, store, torch.optim.SGD(model.parameters(), lr=0.1)) as ctx:
    ...     for batch in ctx.batches(loader):
    ...         output, labels = ctx.forward(batch)
    ...         finite = ctx.backward(ctx.loss(output, labels))
    >>> bool(finite), ctx.steps, store.stats()["rows"]
    (True, 2, 4)
    """

    def __init__(
        self,
        model: nn.Module,
        embeddings: Source,
        dense_optimizer: torch.optim.Optimizer | None,
        *,
        staleness: int = 1,
        loss_fn: Callable[[Any, Any], Tensor] | None = None,
        grad_scaler: torch.amp.GradScaler | None = None,
        autocast: torch.dtype | None = None,
        scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
        device: torch.device | str | int | None = None,
        exit_timeout: float = 60.0,
    ) -> None:
        optimizers = NONE | Instance(torch.optim.Optimizer, "a torch optimizer")
        homes = NONE | Instance(
            (Embeddings, nn.Module), "embeddings (penstock.embedding.Embeddings), or a module that makes them"
        )
        constraints = {
            "model": Instance(nn.Module, "a torch module"),
            "embeddings": homes,
            "dense_optimizer": optimizers,
            "staleness": Int(min=1),
            "loss_fn": NONE | CALLABLE,
            "autocast": NONE | Instance(torch.dtype, "a torch dtype"),
            "scheduler": NONE | Satisfies(lambda v: hasattr(v, "step"), "a learning-rate scheduler"),
            "exit_timeout": Real(min=0),
        }
        check_all(locals(), constraints, "TrainContext")
        self.device = torch.device(device) if device is not None else _device_of(model)
        self.embeddings, self.dense_optimizer, self.staleness = embeddings, dense_optimizer, staleness
        self.loss = loss_fn or nn.functional.binary_cross_entropy_with_logits
        self.grad_scaler, self.autocast, self.scheduler = grad_scaler, autocast, scheduler
        self.exit_timeout = exit_timeout
        tables = module_on_device(embeddings)
        self.tables = None if tables is None else tables.to(self.device)
        self.module = model.to(self.device)
        self.world = distributed.world_size()
        self.model = distributed.wrapped(self.module, self.device)
        self.module = getattr(self.model, "module", self.model) if self.world > 1 else self.module
        self._network_tables = None if self.tables is None else distributed.wrapped(self.tables, self.device)
        check_columns(self.module, embeddings)
        self._transfer = Transfer(self.device)
        self.timings = Timings()
        self._feeder = Feeder(self.module, embeddings, self._transfer, staleness, self.timings)
        self._loops = Loops(exit_timeout)
        self._current: TrainBatch | None = None
        self._evaluating = self._entered = False
        self.steps = self.rows = self.skipped_steps = 0
        self.dropped_gradients: dict[str, int] = {}
        self.position: Any = None  # the loader's state after the last batch that was trained

    # The block.

    def __enter__(self) -> Self:
        self._entered = True
        self.module.train()
        return self

    def __exit__(self, kind: Any, error: Any, _: Any) -> None:
        self._entered = False
        self._current = None
        self._loops.close(failed=kind is not None)

    # The loop.

    def batches(self, loader: Iterable[Any]) -> Iterator[TrainBatch]:
        """The loader's batches with their embeddings: for training, or for evaluation inside `evaluating()`.

        Args:
            loader: an iterable of batches.

        Returns:
            Batches on the device.

        Raises:
            PenstockError: outside the block, or while another loop runs.
        """
        if not self._entered:
            raise PenstockError("use the context in a with block: with TrainContext(…) as ctx:")
        training = not self._evaluating
        if training:
            self._loops.check_free()
        thread = self._feeder.store_thread(loader, training)
        try:
            with closing(self._loops.run(thread, training)) as batches:  # type: ignore[type-var]
                for batch in batches:
                    self._feeder.arrived(batch)
                    yield batch
                    self._current = None  # a batch that saw no backward pass is let go
                    del batch
        finally:
            if training and self._loops.training is None:
                self._current = None

    def forward(self, batch: TrainBatch) -> tuple[Any, Any]:
        """The model's output and the labels, both on the device.

        Args:
            batch: one of `batches`.

        Returns:
            Both.
        """
        embeddings = batch.embeddings
        casting = torch.autocast(self.device.type, dtype=self.autocast) if self.autocast is not None else nullcontext()
        with casting, self.timings.timed(None if self._evaluating else "forward"):
            # Evaluation goes past DistributedDataParallel: workers may have unequal numbers of batches there.
            tables = self.tables if self._evaluating else self._network_tables
            model = self.module if self._evaluating else self.model
            if tables is not None:
                embeddings = tables(batch.ids)
            more = {"masks": batch.masks} if batch.masks else {}
            output = model(batch.continuous, embeddings, **more)
        if not self._evaluating:
            self._current = batch
        return output.float() if isinstance(output, Tensor) else output, batch.labels

    def backward(self, loss: Tensor) -> Outcome:
        """Step the model and send the embeddings' gradients; true when all gradients were finite.

        Gradients are un-scaled by the loss scale. Those of an embedding column that are not finite are skipped, and so
        is the whole dense step where one of its gradients is not; both are counted (`dropped_gradients`,
        `skipped_steps`), on every step.

        Args:
            loss: of the batch that `forward` had last.

        Returns:
            What became of the step; asking whether it is true may wait.

        Raises:
            PenstockError: there is no batch to train on.
        """
        batch, self._current = self._current, None
        if batch is None:
            raise PenstockError("backward needs a forward pass first: output, labels = ctx.forward(batch)")
        scaler = self.grad_scaler
        if updates_in_backward(self.tables):  # its backward pass is its update
            self.tables.loss_scale = 1.0 if scaler is None else scaler.scale(torch.ones((), device=self.device))
        with self.timings.timed("backward"):
            (loss if scaler is None else scaler.scale(loss)).backward()
        scale = 1.0 if scaler is None else float(scaler.get_scale())
        gradients, dropped = embedding_gradients(batch.leaves, batch.dims), []
        # A scaler needs the answer now, and a GPU finds it fast. Else the store will find out: it reads them anyway.
        look_now = batch.lookup is not None and (scaler is not None or self.device.type != "cpu")
        if look_now:
            dropped = broken(batch.leaves, gradients)
        outcome = Outcome(True, dropped)
        if batch.lookup is not None:
            self._send(batch, gradients, scale, outcome, wait=not look_now)
        with self.timings.timed("optimizer"):
            outcome.dense_finite = self._dense_step(scale, not dropped)
        self.steps += 1
        self.rows += batch.num_rows
        self.position = batch.position
        return outcome

    def _send(
        self, batch: TrainBatch, gradients: dict[str, Tensor], scale: float, outcome: Outcome, wait: bool
    ) -> None:
        """Order the update; what it drops is counted, and told to `outcome`."""
        lookup, ready, transfer = batch.lookup, self._transfer.mark(), self._transfer
        home: Any = self.embeddings
        batch.lookup, batch.embeddings, batch.leaves = None, None, {}
        thread = self._loops.training
        share = scale * self.world  # divided by the workers, as the model's gradients are
        assert thread is not None

        clock = partial(self.timings.timed, "update")

        def applied(apply: Callable[[], None]) -> None:
            before = dropped_counts(home)
            with clock():
                apply()
            dropped = [name for name, count in dropped_counts(home).items() if count > before.get(name, 0)]
            for name in dropped:
                self.dropped_gradients[name] = self.dropped_gradients.get(name, 0) + 1
            outcome._dropped = dropped

        def update() -> Later[None] | None:
            return begun.update(home, lookup, transfer.to_host(gradients, ready), share, applied, clock)

        if wait:
            outcome._wait = thread.drain
        thread.submit(update)

    def _dense_step(self, scale: float, embeddings_finite: bool) -> bool:
        optimizer, scaler = self.dense_optimizer, self.grad_scaler
        if optimizer is None:
            return True
        if scaler is not None:
            scaler.unscale_(optimizer)
        finite = dense_finite(optimizer)
        if finite:
            optimizer.step() if scaler is None else scaler.step(optimizer)
            if self.scheduler is not None:
                self.scheduler.step()
        else:
            self.skipped_steps += 1
        if scaler is not None:
            # The scaler has seen the dense gradients only; all workers must go on with the same scale.
            good = distributed.all_reduce_and(finite and embeddings_finite, self.device)
            scaler.update(None if good else scale * scaler.get_backoff_factor())
        optimizer.zero_grad(set_to_none=True)
        return finite

    # Evaluation and checkpoints.

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """A block in which look-ups never insert, nothing is trained, and the model is in evaluation mode.

        Returns:
            A block.
        """
        self.drain()
        modules = [m for m in (self.module, self.tables) if m is not None]
        before, was = [m.training for m in modules], self._evaluating
        current, self._current = self._current, None
        self._evaluating = True
        try:
            for module in modules:
                module.eval()
            with torch.no_grad():
                yield
        finally:
            self._evaluating, self._current = was, current
            for module, mode in zip(modules, before, strict=True):
                module.train(mode)

    def drain(self) -> None:
        """Wait until the updates of all batches trained so far are in the store."""
        self._loops.drain()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A block in which the store stands still, with all updates done: for saving it.

        Batches that were looked up ahead are looked up again behind it, so that going on and resuming from what was
        saved see the same.

        Returns:
            A block.
        """
        self.drain()
        yield
        if self.staleness > 1:
            self._loops.look_up_again()

    def stats(self) -> dict[str, Any]:
        """What the loop has done so far.

        Returns:
            Figures by name.
        """
        return {
            "steps": self.steps,
            "rows": self.rows,
            "skipped_steps": self.skipped_steps,
            "dropped_gradients": dict(self.dropped_gradients),
            "seconds_waited_for_batches": self._loops.waited,
            "seconds": dict(self.timings.seconds),
        }


def _device_of(model: nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))

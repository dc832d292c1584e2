"""The loop of a model whose tables live on its device: batches in, steps ordered, nothing waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn

from penstock.core.errors import ParameterError
from penstock.core.params import NONE, Satisfies, check_all
from penstock.embedding.cached.in_flight import prefetched
from penstock.embedding.dims import plain_dim
from penstock.embedding.protocol import updates_in_backward
from penstock.nn.base import Model
from penstock.train import distributed
from penstock.train.batch import floats
from penstock.train.beginning import RowLosses
from penstock.train.checkpoint import Checkpointer
from penstock.train.evaluation import TRAIN_METRICS, Metrics, measured
from penstock.train.executors.device_reader import DeviceReader
from penstock.train.executors.device_step import DeviceStep
from penstock.train.feeder import expected_dims

_WAYS = ("fused", "capturable", "foreach")  # of an optimizer to step: this machine's, whatever a checkpoint says


def trains_on_device(model: Any, store: Any) -> bool:
    """Whether the backward pass is the embeddings' update: of those in the model, or of those given beside it."""
    holds = isinstance(model, nn.Module) and any(updates_in_backward(m) for m in model.modules())
    if holds and store is not None:
        raise ParameterError(
            "the model holds embeddings of its own, which train themselves, and fit was given a store as well; "
            "leave the store out, or take the tables out of the model"
        )
    return holds or updates_in_backward(store)


class CapturedExecutor:
    """What `fit` drives for models with `FusedEmbeddings`: the counterpart of a `TrainContext`.

    The names that a checkpoint reads (`module`, `tables`, `steps`, …) are those of `TrainContext`.
    """

    embeddings = None  # on the host there are none

    def __init__(
        self,
        model: nn.Module,
        tables: Any,
        optimizer: torch.optim.Optimizer | None,
        *,
        scheduler: Any = None,
        device: Any = None,
        metrics: Metrics | None = None,
        **settings: Any,
    ) -> None:
        schedulers = NONE | Satisfies(lambda v: hasattr(v, "step"), "a learning-rate scheduler")
        check_all({"scheduler": scheduler}, {"scheduler": schedulers}, "fit")
        _check(model, tables, device)
        if device is not None:
            model.to(device)
        if tables is not None:
            held = (t.device for t in (*model.parameters(), *model.buffers()))
            tables.to(next(held, tables.device) if device is None else device)
        self.module, self.tables, self.scheduler = model, tables, scheduler
        own = TRAIN_METRICS if metrics is None else metrics
        self.step, self._metrics = DeviceStep(model, optimizer, tables=tables, metrics=own, **settings), metrics
        self.device, self.dense_optimizer = self.step.device, self.step.optimizer
        self.grad_scaler = self.step.grad_scaler
        self.rows, self.skipped_steps, self.dropped_gradients = 0, 0, dict[str, int]()
        self.position: Any = None
        modules = [model] if tables is None else [model, tables]
        self._prefetchers: list[Any] = [m for module in modules for m in module.modules() if hasattr(m, "prefetch")]
        self._began, self._since_rows, self._timed_rows = time.perf_counter(), 0, 0
        self._seconds = {"wait": 0.0, "step": 0.0, "compile": 0.0}
        self._told = dict(self._seconds)

    @property
    def training(self) -> Self:
        return self

    @property
    def steps(self) -> int:
        return self.step.steps

    @steps.setter
    def steps(self, number: int) -> None:
        self.step.steps = number

    def __enter__(self) -> Self:
        self._train(True)
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def train_steps(self, loader: Any) -> Generator[int, None, None]:
        """Train on a loader's batches; after each step its number of rows."""
        read = self._reader(loader)
        for batch, position in self._ahead(loader, read):
            rows, began, preparing = len(batch[1]), time.perf_counter(), self.step.preparing
            if not rows:
                continue
            self.step(*batch)
            if self.scheduler is not None and self.step.stepped:
                self.scheduler.step()
            spent = time.perf_counter() - began
            if preparing:
                self.leave_out(spent)
            else:
                self._timed_rows += rows
            self._seconds["compile" if preparing else "step"] += spent
            self.rows += rows
            self._since_rows += rows
            self.position = position
            yield rows

    def _ahead(self, loader: Any, read: Callable[[Any], Any]) -> Iterator[tuple[Any, Any]]:
        """Batches, each with the loader's place behind it; those who ask for it are told the ids of coming ones."""
        source, place = iter(loader), getattr(loader, "state_dict", None)

        def fetched() -> Iterator[tuple[Any, Any]]:
            while True:
                began = time.perf_counter()
                raw = next(source, None)
                self._seconds["wait"] += time.perf_counter() - began
                if raw is None:
                    return
                yield read(raw), None if place is None else place()

        return prefetched(fetched(), *self._prefetchers, ids=lambda found: found[0][0])

    def evaluate(self, loader: Iterable[Any], row_losses: RowLosses | None = None) -> dict[str, Any]:
        """Loss, metrics and rows of a loader's batches; nothing is trained."""
        self._train(False)
        try:
            figures = measured(self.device, self._outputs(loader), self._metrics, row_losses)
        finally:
            self._train(True)
        self._check_ids()
        return figures

    def _outputs(self, loader: Iterable[Any]) -> Iterator[tuple[Tensor, Any, Any, int]]:
        read = self._reader(loader)
        for raw in loader:
            ids, continuous, labels = read(raw)
            if len(continuous):
                output, labels = self.step.logits(ids, continuous), floats(labels)
                yield self.step.loss_fn(output, labels), output, labels, len(continuous)

    def collect_figures(self) -> dict[str, Any]:
        """What was measured since this was last asked; empty if nothing was. Waits for the device, and checks ids."""
        if not self._since_rows:
            return {}
        figures = self.step.metrics.collect()
        self._check_ids()
        now = time.perf_counter()
        seconds = {stage: round(total - self._told[stage], 6) for stage, total in self._seconds.items()}
        counted, took = self._timed_rows, now - self._began
        if not counted:  # all of it was preparation
            counted, took = self._since_rows, took + seconds["compile"]
        figures |= {"rows": self.rows, "rows_per_second": counted / took}
        figures["seconds"] = {"total": now - self._began, **seconds}
        self._began, self._since_rows, self._timed_rows, self._told = now, 0, 0, dict(self._seconds)
        return figures

    def leave_out(self, seconds: float) -> None:
        """Time in which nothing was trained: that of an evaluation, a checkpoint, the compiler."""
        self._began += seconds

    def save(self, saver: Checkpointer, loader: Any, extra: dict[str, Any]) -> Any:
        """Write a checkpoint."""
        self.skipped_steps = int(self.step.skipped)
        return saver.save(self, loader, extra)

    def load(self, saver: Checkpointer, loader: Any) -> dict[str, Any]:
        """Go on from the newest checkpoint."""
        ways = [{key: group[key] for key in _WAYS if key in group} for group in self._groups]
        extra = saver.load(self, loader)
        self.step.skipped.fill_(self.skipped_steps)
        for group, own in zip(self._groups, ways, strict=True):
            group["lr"] = float(group["lr"])  # a captured training has it on its device
            group.update(own)
            self._place_counters(group)
        return extra

    def load_weights(self, saver: Checkpointer, step: int) -> None:
        """Put the weights of a checkpoint back."""
        saver.load_weights(self, step)

    @property
    def _groups(self) -> list[dict[str, Any]]:
        return [] if self.dense_optimizer is None else self.dense_optimizer.param_groups

    def _place_counters(self, group: dict[str, Any]) -> None:
        """The optimizer's own steps, where its way of stepping reads them."""
        assert self.dense_optimizer is not None
        on_device = group.get("fused") or group.get("capturable")
        for parameter in group["params"]:
            state = self.dense_optimizer.state.get(parameter, {})
            if isinstance(state.get("step"), Tensor):
                state["step"] = state["step"].to(parameter.device if on_device else "cpu")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A block for saving: what it copies waits for the device by itself."""
        yield

    def stats(self) -> dict[str, Any]:
        """What the loop has done so far."""
        return {
            **self._list_figures(),
            "steps": self.steps,
            "rows": self.rows,
            "skipped_steps": int(self.step.skipped),
            "skipped_embedding_rows": sum(tables.skipped_rows for tables in self.step.fused),
            "captured": self.step.captured,
            "seconds_waited_for_batches": self._seconds["wait"],
            "seconds": dict(self._seconds),
        }

    def _list_figures(self) -> dict[str, Any]:
        """The room that list columns have in a captured step, and how often it was captured, or why it was not."""
        if self.step.not_captured:
            return {"lists": {"not_captured": self.step.not_captured}}
        memory = self.step.list_memory
        return {} if memory is None else {"lists": {"bounds": dict(memory.bounds), "captures": self.step.captures}}

    def _train(self, mode: bool) -> None:
        for module in (self.module, self.tables):
            if module is not None:
                module.train(mode)

    def _check_ids(self) -> None:
        for tables in self.step.fused:
            tables.check_ids()

    def _reader(self, loader: Any) -> DeviceReader:
        """A model with tables of its own reads the loader's columns; tables and models with a schema say which."""
        schema, names = getattr(loader, "schema", None), None
        if self.tables is not None and self.tables.named:
            names = self.tables.names
        continuous = self.module.continuous if isinstance(self.module, Model) else None
        return DeviceReader(schema, self.device, names, continuous)


def _check(model: nn.Module, tables: Any, device: Any) -> None:
    if distributed.active():
        raise ParameterError(
            "FusedEmbeddings belong to one process: under torch.distributed each worker would train tables of its own. "
            "Keep the embeddings in a store that all workers share (penstock.embedding.RayStore)"
        )
    if device is not None and torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise ParameterError(
            f"device={str(device)!r}: torch sees no CUDA device here; leave device out to train on the CPU"
        )
    if tables is None:
        return
    side_by_side = not tables.is_one_dim and tables.width() == tables.embedded_width
    if tables.output != "stack" and not side_by_side:
        raise ParameterError(
            f'tables given beside a model need output="stack", and these have output={tables.output!r}; put them into '
            "the model, as model(ids, continuous), if it reads embeddings and numbers side by side. Tables of several "
            "dims need align=1"
        )
    wanted, expected = getattr(model, "categorical", None), expected_dims(model)
    if wanted is not None and tables.named and wanted != tables.names:
        raise ParameterError(
            f"the model reads embeddings of {wanted}, and the tables are {tables.names}; they must agree, in order"
        )
    if expected is not None and list(expected.values()) != list(tables.dims.values()):
        raise ParameterError(
            f"the tables have dim={tables.dim}, the model embedding_dim={plain_dim(expected)}; they must agree"
        )

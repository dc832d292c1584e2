"""Training that never leaves the device: a captured step, figures that stay on the GPU, a loop that does not wait.

The host only hands over batches. Losses and the histograms of the AUC are added up on the device and read when a record
is made; on a GPU the step is compiled and replayed as a CUDA graph, because at these rates launching its kernels one by
one takes longer than running them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from penstock.core.errors import DataError, ParameterError
from penstock.core.params import BOOL, NONE, Instance, Int, check_all
from penstock.core.progress import bar
from penstock.nn.fused import FusedEmbeddings
from penstock.train.history import History
from penstock.train.metrics import _DROPPED_BITS, StreamingAUC

_WARM_UP = 3  # steps before a capture: libraries allocate and kernels are compiled in them


class DeviceMetrics:
    """Loss and AUC of the batches since the last `take`, added up where the batches are.

    >>> metrics = DeviceMetrics(torch.device("cpu"))
    >>> metrics.add(torch.tensor(0.5), torch.tensor([-1.0, 2.0]), torch.tensor([0.0, 1.0]))
    >>> metrics.take()
    {'loss': 0.5, 'rows': 2, 'auc': 1.0}
    """

    def __init__(self, device: torch.device) -> None:
        self._auc = StreamingAUC()
        self.sums = torch.zeros(2, dtype=torch.float64, device=device)  # of the losses of all rows, and the rows
        self.counts = torch.zeros(self._auc.counts.size, dtype=torch.int64, device=device)
        self._bins = self._auc.counts.shape[1]

    def add(self, loss: Tensor, scores: Tensor, labels: Tensor) -> None:
        """Count a batch: its mean loss, its scores and its labels (0 or 1)."""
        rows = len(scores)
        self.sums[0] += loss.detach().double() * rows
        self.sums[1] += rows
        # StreamingAUC's bins: the order of floats as integers, negative ones counted downwards in their bits.
        bits = (torch.nan_to_num(scores.detach().float()) + 0.0).view(torch.int32).long()
        ordered = torch.where(bits < 0, -1 - bits, bits + 2**31)
        place = (labels > 0.5).long() * self._bins + (ordered >> _DROPPED_BITS)
        self.counts.index_add_(0, place, torch.ones_like(place))

    def take(self) -> dict[str, Any]:
        """The figures; begins anew. Waits for the device."""
        total, rows = self.sums.tolist()
        self._auc.counts[:] = self.counts.view(2, -1).cpu().numpy()
        self.sums.zero_()
        self.counts.zero_()
        loss = total / rows if rows else float("nan")
        return {"loss": loss, "rows": int(rows), "auc": self._auc.compute()}


class DeviceStep:
    """One training step of `model(ids, numbers) → logits`, compiled and captured where that is possible.

    Args:
        model: holds its embeddings (`FusedEmbeddings` train themselves) and is on its device already.
        optimizer: of the model's parameters; Adam with a rate of 0.001 by default.
        loss_fn: `loss_fn(logits, labels)`; binary cross-entropy of logits by default.
        autocast: a dtype for the model's arithmetic, such as `torch.bfloat16`.
        compile: whether to use `torch.compile`; None: on a GPU.
        graph: whether to capture a CUDA graph; None: on a GPU, if the optimizer allows it and no rate is a callable.

    Batches of another size than the first run without compiling or capturing.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        loss_fn: Callable[[Tensor, Tensor], Tensor] | None = None,
        autocast: torch.dtype | None = None,
        compile: bool | None = None,
        graph: bool | None = None,
    ) -> None:
        given = {"model": model, "autocast": autocast, "compile": compile, "graph": graph}
        constraints = {"model": Instance(nn.Module, "a torch module"), "compile": NONE | BOOL, "graph": NONE | BOOL,
                       "autocast": NONE | Instance(torch.dtype, "a torch dtype")}  # fmt: skip
        check_all(given, constraints, "DeviceStep")
        self.model, self.autocast = model, autocast
        self.device = next((t.device for t in (*model.parameters(), *model.buffers())), torch.device("cpu"))
        on_gpu = self.device.type == "cuda"
        self.optimizer = optimizer or _adam(model, on_gpu)
        self.loss_fn = loss_fn or nn.functional.binary_cross_entropy_with_logits
        compiled = on_gpu if compile is None else compile
        self._fast = torch.compile(model, dynamic=False) if compiled else model
        self._capture = self._can_capture() if graph is None else graph
        if self._capture and not on_gpu:
            raise ParameterError("DeviceStep.graph: CUDA graphs need a model on a GPU")
        self.metrics = DeviceMetrics(self.device)
        self.steps = 0
        self._shape: Any = None
        self._graph: Any = None
        self._inputs: tuple[Tensor, ...] = ()

    def __call__(self, ids: Tensor, numbers: Tensor, labels: Tensor) -> None:
        """Train on a batch. Nothing is returned: figures are in `metrics`."""
        shape = ids.shape, ids.dtype, numbers.shape, labels.shape
        self._shape = self._shape or shape
        batch = ids, numbers, labels
        if shape != self._shape:
            self._step(self.model, *batch)
        elif not self._capture:
            self._step(self._fast, *batch)
        elif self._graph is not None:
            self._replay(batch)
        elif self.steps < _WARM_UP:
            self._on_side_stream(batch)
        else:
            self._record(batch)
        self.steps += 1

    def logits(self, ids: Tensor, numbers: Tensor) -> Tensor:
        """The model's output without training."""
        with torch.no_grad(), self._casting():
            return self.model(ids, numbers).float()

    def _step(self, model: Any, ids: Tensor, numbers: Tensor, labels: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with self._casting():
            logits = model(ids, numbers)
        logits, labels = logits.float(), labels.float()
        loss = self.loss_fn(logits, labels)
        loss.backward()
        self.optimizer.step()
        self.metrics.add(loss, logits, labels)

    def _casting(self) -> Any:
        return torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None)

    def _on_side_stream(self, batch: tuple[Tensor, ...]) -> None:
        """A step as a capture will see it: on another stream than the default one."""
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            self._step(self._fast, *batch)
        main.wait_stream(side)

    def _record(self, batch: tuple[Tensor, ...]) -> None:
        # Column by column, as the loader's batches lie.
        self._inputs = tuple(t.t().contiguous().t() if t.dim() == 2 else t.clone() for t in batch)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._step(self._fast, *self._inputs)
        self._replay(batch)

    def _replay(self, batch: tuple[Tensor, ...]) -> None:
        for target, source in zip(self._inputs, batch, strict=True):
            target.copy_(source, non_blocking=True)
        self._graph.replay()

    def _can_capture(self) -> bool:
        fixed = all(group.get("capturable", True) for group in self.optimizer.param_groups)
        tables = [m for m in self.model.modules() if isinstance(m, FusedEmbeddings)]
        return self.device.type == "cuda" and fixed and not any(callable(t.optimizer.lr) for t in tables)


def fit_on_device(
    model: nn.Module,
    loader: Any,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    epochs: int = 1,
    valid: Iterable[Any] | None = None,
    log_every: int | None = None,
    max_steps: int | None = None,
    progress: bool | None = None,
    callbacks: Iterable[Callable[[Mapping[str, Any]], Any]] = (),
    **settings: Any,
) -> History:
    """Train `model(ids, numbers) → logits` on packed batches at the device's pace; what was measured on the way.

    Args:
        loader: `penstock.loader.torch.Loader` with `layout="packed"` and the model's device.
        valid: a loader to evaluate on after each epoch.
        log_every: steps between training records; None: one an epoch. A record waits for the device.
        settings: those of `DeviceStep`.

    >>> from penstock.loader.torch import Loader
    >>> class Clicks(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.tables = FusedEmbeddings([5], 4, optimizer="adagrad", lr=0.5, output="concat")
    ...         self.layer = nn.Linear(4, 1)
    ...     def forward(self, ids, numbers):
    ...         return self.layer(self.tables(ids)).squeeze(1)
    >>> data = {"user": [1, 2, 3, 4] * 50, "click": [0, 1, 0, 1] * 50}
    >>> loader = Loader(data, 20, categorical=["user"], labels=["click"], layout="packed", shuffle=True)
    >>> fit_on_device(Clicks(), loader, epochs=3, valid=loader).last("valid")["auc"]
    1.0
    """
    step_count = NONE | Int(min=1)
    given = {"epochs": epochs, "log_every": log_every, "max_steps": max_steps}
    check_all(given, {"epochs": Int(min=0), "log_every": step_count, "max_steps": step_count}, "fit_on_device")
    step = DeviceStep(model, optimizer, **settings)
    history, callbacks, began, stopped = History(), list(callbacks), time.perf_counter(), False

    def record(kind: str, figures: dict[str, Any]) -> bool:
        history.records.append({"kind": kind, "step": step.steps, **figures})
        answers = [callback(history.records[-1]) for callback in callbacks]  # all are told
        return any(map(bool, answers))

    def measured() -> dict[str, Any]:
        nonlocal began
        figures = step.metrics.take()
        now = time.perf_counter()
        figures["rows_per_second"], began = figures["rows"] / (now - began), now
        for tables in model.modules():
            if isinstance(tables, FusedEmbeddings):
                tables.check_ids()
        return figures

    with bar("training", epochs * getattr(loader, "num_rows", 0) or None, show=progress) as drawn:
        for epoch in range(epochs):
            model.train()
            for batch in loader:
                step(*_packed(batch))
                drawn.advance(len(batch[1]))
                if log_every is not None and step.steps % log_every == 0:
                    stopped = record("train", measured()) or stopped
                stopped = stopped or step.steps == max_steps
                if stopped:
                    break
            if log_every is None or step.steps % log_every:
                stopped = record("train", measured()) or stopped
            if valid is not None:
                stopped = record("valid", {"epoch": epoch, **evaluate_on_device(step, valid)}) or stopped
                began = time.perf_counter()
            if stopped:
                break
    return history


def evaluate_on_device(step: DeviceStep, loader: Iterable[Any]) -> dict[str, Any]:
    """Loss and AUC of a loader's batches; nothing is trained."""
    metrics, training = DeviceMetrics(step.device), step.model.training
    step.model.eval()
    for batch in loader:
        ids, numbers, labels = _packed(batch)
        scores = step.logits(ids, numbers)
        metrics.add(step.loss_fn(scores, labels.float()), scores, labels)
    step.model.train(training)
    return metrics.take()


def _packed(batch: Any) -> tuple[Tensor, Tensor, Tensor]:
    if not isinstance(batch, tuple) or len(batch) != 3 or not isinstance(batch[0], Tensor):
        raise DataError(
            'training on the device reads packed batches (ids, numbers, labels): give the loader layout="packed" and '
            "no list columns, or use penstock.train.fit"
        )
    return batch


def _adam(model: nn.Module, on_gpu: bool) -> torch.optim.Optimizer:
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ParameterError("the model has no parameters besides its tables: give it a layer, or use fit")
    return torch.optim.Adam(parameters, lr=1e-3, fused=on_gpu, capturable=on_gpu)

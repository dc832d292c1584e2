"""A training step that never leaves the device: compiled, captured as a CUDA graph, its figures added up on the GPU.

At these rates launching the kernels of a step one by one takes longer than running them, and asking the device for a
number stops it. `penstock.train.fit` uses this step; a loop of your own can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from penstock.core.errors import ParameterError
from penstock.core.params import BOOL, CALLABLE, NONE, Instance, check_all
from penstock.embedding.protocol import TrainsInBackward, updates_in_backward
from penstock.metrics import Meter
from penstock.train.batch import copied, floats, tensors_of
from penstock.train.dense_optimizer import default_optimizer
from penstock.train.evaluation import TRAIN_METRICS, Metrics
from penstock.train.executors.adam_step import AdamStep
from penstock.train.executors.list_memory import ListMemory
from penstock.train.executors.step_graph import GraphRecorder, Recorder
from penstock.train.gradients import dense_finite
from penstock.train.losses import log_loss
from penstock.train.tf32 import products_in_tf32

_MOST_VERSIONS = 64  # of one function, that torch's compiler keeps
_WARM_UP = 3  # steps before a capture: libraries allocate and kernels are compiled in them
_CONSTRAINTS = {
    "model": Instance(nn.Module, "a torch module"),
    "optimizer": NONE | Instance(torch.optim.Optimizer, "a torch optimizer"),
    "tables": NONE | Instance(nn.Module, "a module that makes embeddings from ids"),
    "loss_fn": NONE | CALLABLE,
    "autocast": NONE | Instance(torch.dtype, "a torch dtype"),
    "compile": NONE | BOOL,
    "graph": NONE | BOOL,
    "tf32": BOOL,
}


class DeviceStep:
    """One training step of `model(ids, continuous) → logits`, compiled and captured where that is possible.

    Args:
        model: holds its embeddings (`FusedEmbeddings` train themselves) and is on its device already.
        optimizer: of the model's parameters; Adam with a rate of 0.001 by default (fused and capturable on a GPU).
        tables: `FusedEmbeddings` beside the model, which is then called as `model(continuous, tables(ids))`.
        loss_fn: `loss_fn(logits, labels)`; binary cross-entropy of logits by default.
        grad_scaler: a `torch.amp.GradScaler`; the tables divide by its scale as well.
        autocast: a dtype for the model's arithmetic, such as `torch.bfloat16`.
        compile: whether to use `torch.compile`; None: on a GPU.
        graph: whether to capture a CUDA graph; None: on a GPU, if optimizer and tables allow it.
        tf32: whether products of float32 matrices may read TF32 in a step, on a GPU.

    Batches of another size than the first run without compiling or capturing. Of ids with lists (a tuple of a matrix
    and `{name: (values, offsets)}`, or padded lists `(B, n)`) the number of values may change from batch to batch: a
    captured step has room for a bound on it (`list_memory`), and is captured again with twice the room where a batch
    has more. A model that looks into the lists by itself, instead of leaving that to its tables, would see that room;
    it is not captured (`not_captured` says so). A dense step whose
    gradients are not finite is skipped and counted, if the optimizer can do that without asking the host: on the CPU,
    and on a GPU with `fused=True`.

    >>> from penstock.embedding import FusedEmbeddings
    >>> tables = FusedEmbeddings([5, 3], 4)
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(8, 1), nn.Flatten(0))
    >>> class Clicks(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.tables, self.dense = tables, model
    ...     def forward(self, ids, continuous):
    ...         return self.dense(self.tables(ids))
    >>> step = DeviceStep(Clicks())
    >>> step(torch.tensor([[4, 0], [1, 2]]), torch.empty(2, 0), torch.tensor([0, 1]))
    >>> step.steps, sorted(step.metrics.collect())
    (1, ['auc', 'loss', 'rows'])
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        tables: nn.Module | None = None,
        loss_fn: Callable[[Any, Any], Tensor] | None = None,
        grad_scaler: torch.amp.GradScaler | None = None,
        autocast: torch.dtype | None = None,
        compile: bool | None = None,
        graph: bool | None = None,
        tf32: bool = False,
        metrics: Metrics = TRAIN_METRICS,
    ) -> None:
        check_all(locals(), _CONSTRAINTS, "DeviceStep")
        self.model, self.tables, self.grad_scaler, self.autocast = model, tables, grad_scaler, autocast
        modules = [model] if tables is None else [model, tables]
        held = (t for module in modules for t in (*module.parameters(), *module.buffers()))
        self.device = next((t.device for t in held), torch.device("cpu"))
        on_gpu = self.device.type == "cuda"
        self.fused: list[TrainsInBackward] = [m for one in modules for m in one.modules() if updates_in_backward(m)]
        self._growing: list[Any] = [tables for tables in self.fused if hasattr(tables, "make_room")]
        for tables_inside in self.fused:
            tables_inside.loss_scale = 1.0  # an earlier training may have had a scaler
        self.optimizer = optimizer or default_optimizer(modules, on_gpu)
        self.loss_fn = loss_fn or log_loss
        self._compile = on_gpu if compile is None else compile
        self._tf32 = tf32 and on_gpu
        if graph and not on_gpu:
            raise ParameterError("DeviceStep.graph: CUDA graphs need a model on a GPU")
        self._graph_wanted = graph
        self.metrics = Meter(self.device, metrics)
        self.skipped = torch.zeros((), dtype=torch.int64, device=self.device)  # dense steps left out
        self._adam = AdamStep.of(self.optimizer, self.skipped)
        self.steps = 0
        self.stepped = True  # whether the last dense step was taken, as far as the host knows: on a GPU it does not ask
        self.captured = self._capture = False
        self.captures = 0  # how often; more than once where lists outgrew their room
        self.not_captured = ""  # why a step that was to be captured is not
        self.list_memory: ListMemory | None = None
        self._recorder: Recorder = GraphRecorder(self.device)
        self._warm = 0
        self._fast: Any = None
        self._shape: Any = None
        self._inputs: Any = None
        self._told = any(hasattr(m, "prefetch") for module in modules for m in module.modules())
        self._rates: list[Any] = []  # of the optimizer's groups, as the graph knows them

    @property
    def preparing(self) -> bool:
        """Whether the next step is compiled or captured, which takes seconds, once."""
        return (self._compile and self._fast is None) or (self._capture and not self.captured)

    def __call__(self, ids: Any, continuous: Tensor, labels: Any) -> None:
        """Train on a batch. Nothing is returned: figures are in `metrics`. An empty batch is no step."""
        if not len(continuous):
            return
        batch = ids, continuous, labels
        shape = [(t.shape, t.dtype) for t in tensors_of((continuous, labels) if isinstance(ids, tuple) else batch)]
        if self._fast is None:
            self._prepare(ids, shape)
        if shape != self._shape:
            self._step(self.model, *batch)
        else:
            self._regular(batch)
        self.steps += 1

    def _regular(self, batch: Any) -> None:
        """A step on a batch of the usual size."""
        if self.captured and not self._follows_rates():  # one that is frozen into the graph has changed
            self._capture = False
            self._forget()
        settled = self._settled(batch)
        if not self._capture or settled is None:  # lists of another form than the first batch's are not captured
            self._step(self._fast, *(settled or batch))
        elif self.captured and not self._memory_moves():
            self._replay(settled)
        elif self._warm < _WARM_UP or (self.list_memory is not None and self._warm == _WARM_UP + 1):
            self._warm += 1
            self._recorder.warm_up(lambda: self._step(self._fast, *settled))
        elif self.list_memory is not None and self._warm == _WARM_UP:
            self._warm += 1
            self._recorder.warm_up(lambda: self._try(settled, batch))
        else:
            self._record(settled)

    def logits(self, ids: Any, continuous: Tensor) -> Any:
        """The model's output without training.

        Args:
            ids: of the batch.
            continuous: its continuous columns.

        Returns:
            The output, as the model gives it.
        """
        with torch.no_grad():
            return self._output(self.model, ids, continuous)

    def _prepare(self, ids: Any, shape: Any) -> None:
        """Settle, by the first batch, what is compiled and whether a step will be captured."""
        lists = isinstance(ids, tuple)
        self._shape = shape
        self._capture = self._can_capture() if self._graph_wanted is None else self._graph_wanted
        self.list_memory = ListMemory() if lists and self._capture else None
        # With lists the compiler must learn that one size changes; else it may rely on all of them.
        self._fast = _compiled(self.model, dynamic=None if lists else False) if self._compile else self.model

    def _can_capture(self) -> bool:
        """Nothing of a step may depend on the host: no counter of the optimizer's, no rate that is a function."""
        if self.device.type != "cuda" or not all(tables.capturable for tables in self.fused):
            return False
        if not all(group.get("capturable", True) for group in self._groups):
            return False
        return self.grad_scaler is None or self._takes_found_inf

    @property
    def _groups(self) -> list[dict[str, Any]]:
        return [] if self.optimizer is None else self.optimizer.param_groups

    @property
    def _takes_found_inf(self) -> bool:
        """Whether the optimizer skips a step by itself, on the device: torch's fused ones do."""
        return bool(getattr(self.optimizer, "_step_supports_amp_scaling", False))

    # One step.

    def _step(self, model: Any, ids: Any, continuous: Tensor, labels: Any) -> None:
        if self.optimizer is not None:
            self.optimizer.zero_grad(set_to_none=True)
        with products_in_tf32(self._tf32):
            self._learn(self._output(model, ids, continuous), labels, len(continuous))

    def _learn(self, output: Any, labels: Any, rows: int) -> None:
        self.stepped = True
        labels = floats(labels)
        loss = self.loss_fn(output, labels)
        if self.grad_scaler is None:
            loss.backward()
            self._dense_step()
        else:
            self._scaled_step(loss)
        self.metrics.add(loss, output, labels, rows)

    def _output(self, model: Any, ids: Any, continuous: Tensor) -> Any:
        with torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None):
            output = model(ids, continuous) if self.tables is None else model(continuous, self.tables(ids))
        return floats(output)

    def _dense_step(self) -> None:
        optimizer: Any = self.optimizer
        if optimizer is None:
            return
        if self._capture and self._adam is not None and self._adam.step():
            return
        if self.device.type == "cuda" and self._takes_found_inf:
            gradients = self._gradients()
            norms = torch.stack([norm.float() for norm in torch._foreach_norm(gradients)])
            found = (~torch.isfinite(norms)).any()
            optimizer.grad_scale, optimizer.found_inf = None, found.float()
            try:
                optimizer.step()
            finally:
                del optimizer.grad_scale, optimizer.found_inf
            self.skipped += found
        elif self.device.type == "cuda" or dense_finite(optimizer):
            optimizer.step()
        else:
            self.skipped += 1
            self.stepped = False

    def _gradients(self) -> list[Tensor]:
        return [p.grad for group in self._groups for p in group["params"] if p.grad is not None]

    def _scaled_step(self, loss: Tensor) -> None:
        """The backward pass of a scaled loss, and all that a `GradScaler` does, without asking the device."""
        assert self.grad_scaler is not None
        scaler, before = self.grad_scaler, [tables.skipped.clone() for tables in self.fused]
        for tables in self.fused:
            tables.loss_scale = scaler.scale(torch.ones((), device=self.device))
        scaler.scale(loss).backward()
        if self.optimizer is None:
            return
        # A row's gradient that overflowed must lower the scale as well: the scaler sees it in a dense one.
        lost = [tables.skipped > count for tables, count in zip(self.fused, before, strict=True)]
        if lost and (gradients := self._gradients()):
            gradients[0].masked_fill_(torch.cat(lost).any(), float("inf"))
        scale = scaler.scale(torch.ones((), device=self.device))
        scaler.step(self.optimizer)
        scaler.update()
        lowered = scaler.scale(torch.ones((), device=self.device)) < scale
        self.skipped += lowered
        self.stepped = self.device.type == "cuda" or not lowered

    # Capturing it.

    def _try(self, settled: Any, batch: Any) -> None:
        """The first step on lists with room behind their values, uncompiled: a model that looks into them fails here.

        Nothing has been trained by then, so the batch can be trained on as it came.
        """
        ids, continuous, labels = settled
        if self.optimizer is not None:
            self.optimizer.zero_grad(set_to_none=True)
        try:
            output = self._output(self.model, ids, continuous)
        except Exception as error:
            if self._graph_wanted:
                raise ParameterError(
                    "DeviceStep.graph: the model reads its list columns by itself, and in a captured step they have "
                    "room behind their values; leave the lists to the model's tables, or leave graph out"
                ) from error
            self._capture, self.list_memory = False, None
            self.not_captured = f"the model reads list columns by itself ({type(error).__name__}: {error})"
            self._step(self._fast, *batch)
        else:
            self._learn(output, labels, len(continuous))

    def _record(self, batch: Any) -> None:
        for group in self._groups:
            # A rate that a scheduler changes must be on the device: a plain number would be frozen into the graph.
            if group.get("capturable"):
                group["lr"] = torch.tensor(float(group["lr"]), dtype=torch.float32, device=self.device)
        self._rates = [group["lr"] for group in self._groups]
        moved = True
        while moved:  # now that it is known what the step asks of its tables, they may have to make room for it
            self._recorder.record(lambda: self._step(self._fast, *batch))
            if self._adam is not None:
                self._adam.settle()
            moved = self._memory_moves()
        self.captured = True
        self.captures += 1
        self._replay(batch)

    def _memory_moves(self) -> bool:
        """Let tables that grow make room for one more step; whether a graph would find them no more."""
        moved = [tables.make_room() for tables in self._growing]
        return any(moved)

    def _replay(self, batch: Any) -> None:
        self.metrics.reserve(len(batch[1]))  # the graph adds the batch by itself
        self._recorder.replay()

    def _forget(self) -> None:
        self._recorder.forget()
        self.captured = False

    def _follows_rates(self) -> bool:
        """Whether the graph steps with the optimizer's rates; those on the device are brought up to date."""
        for group, rate in zip(self._groups, self._rates, strict=True):
            if isinstance(rate, Tensor) and group["lr"] is not rate:
                rate.fill_(float(group["lr"]))
                group["lr"] = rate
            elif not isinstance(rate, Tensor) and group["lr"] != rate:
                return False
        return True

    def _settled(self, batch: Any) -> Any:
        """The batch in memory that stays the same: a graph reads from there, and the compiler relies on its strides.

        A loader's batches are slices of chunks, as far apart in memory as those are long. Lists stay as they are unless
        they are captured, and so do ids where a module was told of them (`prefetch`) and may look for the same tensor.
        None where lists have a form that cannot be captured.
        """
        if not self._compile and not self._capture:
            return batch
        ids, continuous, labels = batch
        matrix, lists = ids if isinstance(ids, tuple) else (ids, None)
        if lists is not None and (lists := self._settled_lists(lists)) is None:
            return None
        fixed = matrix, continuous, labels
        if self._inputs is None:
            self._inputs = copied(fixed)
        else:
            for target, source in zip(tensors_of(self._inputs), tensors_of(fixed), strict=True):
                target.copy_(source, non_blocking=True)
        matrix, continuous, labels = self._inputs
        if self._told and not self._capture:
            return ids, continuous, labels
        return matrix if lists is None else (matrix, lists), continuous, labels

    def _settled_lists(self, lists: Any) -> Any:
        """A batch's lists as its step reads them: as they are until enough were seen, then in their memory."""
        memory = self.list_memory
        if memory is None or not self._capture:
            return lists
        if self._warm < _WARM_UP:
            memory.watch(lists)
            return lists
        before = memory.growths
        lists = memory.filled(lists)
        if memory.growths > before:  # a graph reads from memory that is too small now
            self._forget()
            self._warm = min(self._warm, _WARM_UP + 1)
        return lists


def _compiled(model: nn.Module, dynamic: bool | None) -> Any:
    """The model behind torch's compiler, whatever was compiled before.

    A process may compile a function eight times by default, for all batch sizes and all models of a class together;
    after that torch goes on uncompiled, several times slower, with a line in the log.
    """
    import torch._dynamo.config as limits

    name = "recompile_limit" if hasattr(limits, "recompile_limit") else "cache_size_limit"
    setattr(limits, name, max(getattr(limits, name), _MOST_VERSIONS))
    return torch.compile(model, dynamic=dynamic)

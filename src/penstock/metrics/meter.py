"""Loss and metrics of training and evaluation, kept on the device until they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.core.errors import ParameterError
from penstock.core.extras import require
from penstock.metrics.protocol import Metric
from penstock.metrics.registry import create_metric
from penstock.metrics.row_buffer import RowBuffer

if TYPE_CHECKING:
    from torch import Tensor, device

Outputs: TypeAlias = "Tensor | Mapping[str, Tensor] | None"  # one, or several by name
_CAPACITY = {"cuda": 2**22}  # rows that wait on a device, so that counting them is one large sort
_SMALL_CAPACITY = 2**16  # and in the host's memory


class Meter:
    """The mean loss by rows and the metrics of the batches since the last `collect`.

    Batches wait in a buffer at fixed addresses, so `add` may be part of a captured CUDA graph. A graph that is replayed
    does not run this code: tell of each replay with `reserve` before it. Outputs and labels given as dicts have their
    figures named `output/metric`. Metrics of binary labels are left out where an output has not one score and one label
    of 0 or 1 a row. With `torch.distributed` all workers must `collect` together, and get the figures of all.

    Args:
        device: where the batches are.
        metrics: names in `METRICS`, or classes or functions that make a metric.
        capacity: how many rows wait before the metrics read them.

    >>> import torch
    >>> meter = Meter(torch.device("cpu"), ["auc", "log_loss"])
    >>> meter.add(torch.tensor(0.5), torch.tensor([0.0, 0.0]), torch.tensor([0.0, 1.0]), 2)
    >>> meter.collect()
    {'loss': 0.5, 'rows': 2, 'auc': 0.5, 'log_loss': 0.6931471805599453}
    """

    def __init__(
        self,
        device: device | str,
        metrics: Sequence[str | Callable[[], Metric]] = ("auc",),
        *,
        capacity: int | None = None,
    ) -> None:
        self._torch: Any = require("torch", "torch")
        self.device = self._torch.device(device)
        self._makers = list(metrics)
        for metric in map(create_metric, self._makers):
            if metric.needs_groups:
                raise ParameterError(
                    f"a Meter has no groups, which {metric.name} needs; update a {type(metric).__name__} with them"
                )
        self._capacity = capacity or _CAPACITY.get(self.device.type, _SMALL_CAPACITY)
        self._sums = self._torch.zeros(2, dtype=self._torch.float64, device=self.device)  # of losses, and of rows
        self._buffers: dict[str, RowBuffer] = {}
        self._metrics: dict[str, list[Metric]] = {}
        self._left_out: set[str] = set()  # outputs without one score and one label a row
        self._not_binary: set[str] = set()
        self._reserved = 0

    def add(self, loss: Tensor, scores: Outputs, labels: Outputs, rows: int, weights: Tensor | None = None) -> None:
        """Count a batch: its mean loss, its scores and its labels, tensors or dicts of them by output.

        Args:
            loss: the mean of the batch.
            scores: logits, one a row.
            labels: one a row.
            rows: how many.
            weights: of the rows; all 1 by default.

        Raises:
            ParameterError: a graph is being captured, and such a batch was not seen before.
        """
        outputs = _outputs(scores, labels)
        self._left_out |= ({name for name, pair in outputs.items() if pair is None} if outputs else {""}) | (
            set(self._metrics) - set(outputs)
        )
        pairs = {name: pair for name, pair in outputs.items() if pair is not None}
        weights = None if weights is None else weights.detach().reshape(-1)
        if self._is_capturing():
            if not self._fit(pairs, weights):
                raise ParameterError("Meter.add: a batch of this kind must be added once before a graph is captured")
        else:
            self._prepare(pairs, weights)
            if not self._fit(pairs, weights):  # larger than the buffer, or of another kind: read at once
                self._count(loss, rows)
                self._drain()
                for name, (found, truth) in pairs.items():
                    self._read(name, found, truth, weights)
                return
            self.reserve(rows)
        if len(pairs) == 1 and weights is None:
            ((name, (found, truth)),) = pairs.items()
            if self._buffers[name].append(found, truth, loss.detach(), self._sums):
                return
        self._count(loss, rows)
        for name, (found, truth) in pairs.items():
            self._buffers[name].write(found, truth, weights)

    def _count(self, loss: Tensor, rows: int) -> None:
        """Add a batch's loss up."""
        self._sums += self._torch.stack([loss.detach().double() * rows, self._sums.new_full((), float(rows))])

    def reserve(self, rows: int) -> None:
        """Make room for a batch that a replayed graph is about to add.

        Args:
            rows: of that batch.
        """
        if self._reserved + rows > self._capacity:
            self._drain()
        self._reserved += rows

    def collect(self) -> dict[str, Any]:
        """The figures since this was last asked; begins anew. Waits for the device, and for the other workers.

        Returns:
            `loss`, the mean by rows; `rows`; every metric by its name; `nan_scores`, where a score was NaN.
        """
        self._drain()
        loss, rows = self._sums.tolist()
        self._sums.zero_()
        loss, rows = self._reduce(loss, rows)
        figures: dict[str, Any] = {"loss": loss / rows if rows else float("nan"), "rows": int(rows)}
        nan_scores = 0
        if not rows and not self._metrics:
            figures |= {metric.name: float("nan") for metric in map(create_metric, self._makers)}
        for name, metrics in self._metrics.items():
            for metric in metrics:
                nan_scores = max(nan_scores, metric.num_nan)
                if name not in self._left_out and not (metric.binary and name in self._not_binary):
                    figures[f"{name}/{metric.name}" if name else metric.name] = metric.compute()
                metric.reset()
        self._left_out, self._not_binary = set(), set()
        return {**figures, "nan_scores": nan_scores} if nan_scores else figures

    def _is_capturing(self) -> bool:
        return self.device.type == "cuda" and bool(self._torch.cuda.is_current_stream_capturing())

    def _fit(self, pairs: Mapping[str, tuple[Tensor, Tensor]], weights: Tensor | None) -> bool:
        return all(name in self._buffers and self._buffers[name].fits(s, weights) for name, (s, _) in pairs.items())

    def _prepare(self, pairs: Mapping[str, tuple[Tensor, Tensor]], weights: Tensor | None) -> None:
        """Buffers and metrics of outputs that are new; nothing that a graph may know is moved."""
        new = [name for name in pairs if name not in self._buffers]
        if new and not self._buffers:
            self._capacity = max(self._capacity, *(len(pairs[name][0]) for name in new))
        elif new:
            self._drain()  # the outputs' buffers are filled together
        for name in new:
            self._buffers[name] = RowBuffer(pairs[name][0], self._capacity, weights is not None)
            self._metrics[name] = [create_metric(maker) for maker in self._makers]

    def _drain(self) -> None:
        """Give the rows that wait to the metrics."""
        rows, self._reserved = self._reserved, 0
        if rows:
            for name, buffer in self._buffers.items():
                found = buffer.read(rows)
                if name not in self._left_out:
                    self._read(name, *found)

    def _read(self, name: str, scores: Tensor, labels: Tensor, weights: Tensor | None) -> None:
        if name not in self._not_binary and not bool(((labels == 0) | (labels == 1)).all()):
            self._not_binary.add(name)
        for metric in self._metrics[name]:
            if not (metric.binary and name in self._not_binary):
                metric.update(scores, labels, weights)

    def _reduce(self, loss: float, rows: float) -> tuple[float, float]:
        """The sums and metrics of all workers, on every one of them."""
        dist = self._torch.distributed
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return loss, rows
        states = {name: [metric.state() for metric in metrics] for name, metrics in self._metrics.items()}
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, (loss, rows, states, self._left_out, self._not_binary))
        for name in {name for _, _, theirs, _, _ in everyone for name in theirs}:
            self._metrics[name] = [create_metric(maker) for maker in self._makers]
            for _, _, theirs, _, _ in everyone:  # by rank, so that all workers add in one order
                for metric, maker, state in zip(self._metrics[name], self._makers, theirs.get(name, ()), strict=False):
                    other = create_metric(maker)
                    other.load_state(state)
                    metric.merge(other)
        for _, _, _, left_out, not_binary in everyone:
            self._left_out |= left_out
            self._not_binary |= not_binary
        return sum(one[0] for one in everyone), sum(one[1] for one in everyone)


def _outputs(scores: Any, labels: Any) -> dict[str, tuple[Tensor, Tensor] | None]:
    """Scores and labels by output, None where they are not one of each a row; an only output has no name."""
    if isinstance(scores, Mapping) and isinstance(labels, Mapping):
        return {str(name): _pair(scores[name], labels.get(name)) for name in scores}
    return {"": _pair(scores, labels)}


def _pair(scores: Any, labels: Any) -> tuple[Tensor, Tensor] | None:
    if not (hasattr(scores, "detach") and hasattr(labels, "detach")):
        return None
    for values in (scores, labels):
        if not (values.dim() == 1 or (values.dim() == 2 and values.shape[1] == 1)):
            return None
    scores, labels = scores.detach().reshape(-1), labels.detach().reshape(-1)
    return (scores, labels) if len(scores) == len(labels) else None

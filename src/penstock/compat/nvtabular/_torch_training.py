"""A loop over batches, and batches of one form as another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.compat.merlin.dag.utils import OFFSETS, VALUES
from penstock.core.extras import require

torch = require("torch", "torch")


def process_epoch(
    dataloader: Any,
    model: Any,
    train: bool = False,
    optimizer: Any = None,
    loss_func: Any = None,
    transform: Callable[[Any], Any] | None = None,
    amp: bool = True,
    device: Any = None,
) -> tuple[float, Any, Any]:
    """One pass over a loader of `(x_cat, x_cont, y)`: trains, or predicts; gives `(loss, predictions, labels)`.

    `transform` makes such a triple of another kind of batch: a function, or a class such as `DictTransform` that is
    made of the loader; batches of columns by name need none. `amp` computes in half precision where the batches are on
    a GPU.

    >>> batches = [(None, torch.ones(2, 1), torch.ones(2))]
    >>> process_epoch(batches, lambda cats, conts: conts[:, 0])[0]
    0.0
    """
    loss_of = torch.nn.MSELoss() if loss_func is None else loss_func
    if hasattr(model, "train"):
        model.train(mode=train)
    loader = getattr(dataloader, "dataset", dataloader) if hasattr(dataloader, "collate_fn") else dataloader
    if isinstance(transform, type):
        transform = transform(loader).transform
    labels, predictions = [], []
    with torch.set_grad_enabled(train):
        for batch in dataloader:
            if transform is None and len(batch) == 2:  # columns by name, of a loader that knows their roles
                transform = dict_transform(loader).transform
            x_cat, x_cont, y = transform(batch) if transform is not None else batch
            y = y.to(torch.float32) if loss_func is None else y  # which the mean of squares needs
            if device is not None:
                x_cat, x_cont, y = (_moved(part, device) for part in (x_cat, x_cont, y))
            with torch.autocast(y.device.type, enabled=amp and y.device.type == "cuda"):
                y_pred = model(x_cat, x_cont)
                loss = loss_of(y_pred, y)
            if train:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            labels.append(y.detach())
            predictions.append(y_pred.detach())
    y, y_pred = torch.cat(labels), torch.cat(predictions)
    return loss_of(y_pred, y).item(), y_pred, y


def _moved(part: Any, device: Any) -> Any:
    if part is None:
        return None
    if isinstance(part, tuple):
        return tuple(_moved(p, device) for p in part)
    if isinstance(part, dict):
        return {name: _moved(p, device) for name, p in part.items()}
    return part.to(device)


class dict_transform:
    """Batches `({name: column}, labels)` as `(cats, conts, labels)`.

    >>> from penstock.compat import settings
    >>> from penstock.compat.nvtabular import Dataset
    >>> from penstock.compat.nvtabular.loader.torch import TorchAsyncItr
    >>> with settings.using(nvtabular="1.0"):
    ...     loader = TorchAsyncItr(Dataset({"a": [1, 2], "y": [0.0, 1.0]}), ["a"], [], ["y"], batch_size=2)
    >>> (cats, lists), conts, labels = dict_transform(loader).transform(next(iter(loader)))
    >>> cats.tolist(), conts, labels.tolist()
    ([[1], [2]], None, [0.0, 1.0])
    """

    def __init__(self, dataloader: Any) -> None:
        self.cats, self.conts, self.labels = dataloader.cat_names, dataloader.cont_names, dataloader.label_names

    def transform(self, batch: Any) -> tuple[Any, Any, Any]:
        columns, labels = batch
        cats = self.create_stack(columns, self.cats) if self.cats else None
        conts = self.create_stack(columns, self.conts)[0].to(torch.float32) if self.conts else None
        return cats, conts, labels

    def create_stack(self, batch: dict[str, Any], target_columns: list[str]) -> tuple[Any, dict[str, Any]]:
        """The columns side by side, and those that hold lists by name."""
        flat = {n: (batch[n + VALUES], batch[n + OFFSETS][:-1]) for n in target_columns if n + VALUES in batch}
        known = {**batch, **flat}
        lists = {n: known[n] for n in target_columns if isinstance(known[n], tuple) or known[n].is_sparse}
        columns = [known[n] if known[n].ndim > 1 else known[n].unsqueeze(1) for n in target_columns if n not in lists]
        return torch.cat(columns, 1) if columns else None, lists


class FastaiTransform:
    """Batches `({name: column}, labels)` as FastAI's tabular model takes them."""

    def __init__(self, dataloader: Any) -> None:
        self.data = dict_transform(dataloader)

    def transform(self, batch: Any) -> tuple[Any, Any, Any]:
        cats, conts, labels = self.data.transform(batch)
        return cats[0].long(), conts, labels.long()

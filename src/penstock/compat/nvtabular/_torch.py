"""`nvtabular.framework_utils.torch`: layers, models and epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from penstock.compat.merlin.dag import OFFSETS, VALUES
from penstock.core.errors import ColumnNotFoundError, ParameterError
from penstock.core.extras import require

# Embeddings of several columns, side by side, and a perceptron over them and numbers.

torch = require("torch", "torch")


Shapes = Mapping[str, tuple[int, int]]


class ConcatenatedEmbeddings(torch.nn.Module):  # type: ignore[name-defined]
    """A table for each column of `(B, columns)` ids; the vectors side by side.

    `embedding_table_shapes` is what `get_embedding_sizes` gives, in the order of the ids' columns. The columns named in
    `sparse_columns` have sparse gradients.

    >>> ConcatenatedEmbeddings({"a": (10, 4), "b": (5, 2)})(torch.tensor([[1, 2], [9, 4]])).shape
    torch.Size([2, 6])
    """

    def __init__(
        self, embedding_table_shapes: Shapes, dropout: float = 0.0, sparse_columns: Sequence[str] = ()
    ) -> None:
        super().__init__()
        for name in sparse_columns:
            if name not in embedding_table_shapes:
                raise ColumnNotFoundError(name, embedding_table_shapes, "embedding_table_shapes")
        self.embedding_layers = torch.nn.ModuleList(
            torch.nn.Embedding(rows, width, sparse=name in sparse_columns)
            for name, (rows, width) in embedding_table_shapes.items()
        )
        self.dropout = torch.nn.Dropout(p=dropout)

    def forward(self, x: Any) -> Any:
        ids = x[None] if x.dim() == 1 else x
        vectors = [layer(ids[:, i]) for i, layer in enumerate(self.embedding_layers)]
        return self.dropout(torch.cat(vectors, dim=1))


class MultiHotEmbeddings(torch.nn.Module):  # type: ignore[name-defined]
    """A table for each list column of `{name: (values, offsets)}`; a row's vectors summed (or as `mode` says).

    >>> lists = {"genres": (torch.tensor([1, 2, 3]), torch.tensor([[0], [2]]))}
    >>> MultiHotEmbeddings({"genres": (10, 4)})(lists).shape
    torch.Size([2, 4])
    """

    def __init__(self, embedding_table_shapes: Shapes, dropout: float = 0.0, mode: str = "sum") -> None:
        super().__init__()
        self.embedding_names = list(embedding_table_shapes)
        self.embedding_layers = torch.nn.ModuleList(
            torch.nn.EmbeddingBag(rows, width, mode=mode) for rows, width in embedding_table_shapes.values()
        )
        self.dropout = torch.nn.Dropout(p=dropout)

    def forward(self, x: Mapping[str, Any]) -> Any:
        vectors = []
        for name, layer in zip(self.embedding_names, self.embedding_layers, strict=True):
            values, offsets = x[name]
            vectors.append(layer(values.reshape(-1), offsets.reshape(-1)))
        return self.dropout(torch.cat(vectors, dim=1))


class Model(torch.nn.Module):  # type: ignore[name-defined]
    """`Model(...)(x_cat, x_cont)` gives one number a row, `(B,)`.

    Args:
        embedding_table_shapes: what `get_embedding_sizes` gives; with list columns a pair `(single-hot, multi-hot)`.
        num_continuous: how many numbers there are.
        emb_dropout: of the embeddings.
        layer_hidden_dims, layer_dropout_rates: of the hidden layers, as many of one as of the other.
        max_output: bounds the output: `max_output · sigmoid(x)`.
        bag_mode: how the vectors of a list become one: `"sum"`, `"mean"` or `"max"`.

    >>> model = Model({"a": (10, 4)}, 2, 0.0, [8], [0.1])
    >>> model(torch.tensor([[1], [2]]), torch.rand(2, 2)).shape
    torch.Size([2])
    """

    def __init__(
        self,
        embedding_table_shapes: Any,
        num_continuous: int,
        emb_dropout: float,
        layer_hidden_dims: Sequence[int],
        layer_dropout_rates: Sequence[float],
        max_output: float | None = None,
        bag_mode: str = "sum",
    ) -> None:
        super().__init__()
        if not layer_hidden_dims or len(layer_hidden_dims) != len(layer_dropout_rates):
            raise ParameterError("layer_hidden_dims and layer_dropout_rates must be as long, and not empty")
        shapes = embedding_table_shapes
        single, multi = shapes if isinstance(shapes, tuple) else (shapes, {})
        self.max_output, self.num_continuous = max_output, num_continuous
        self.initial_cat_layer = ConcatenatedEmbeddings(single, emb_dropout) if single else None
        self.mh_cat_layer = MultiHotEmbeddings(multi, emb_dropout, bag_mode) if multi else None
        self.initial_cont_layer = torch.nn.BatchNorm1d(num_continuous) if num_continuous else None
        inputs = num_continuous + sum(width for _, width in (*single.values(), *multi.values()))
        self.layers = torch.nn.ModuleList(
            torch.nn.Sequential(
                torch.nn.Linear(before, after), torch.nn.ReLU(), torch.nn.BatchNorm1d(after), torch.nn.Dropout(rate)
            )
            for (before, after), rate in zip(pairwise([inputs, *layer_hidden_dims]), layer_dropout_rates, strict=True)
        )
        self.output_layer = torch.nn.Linear(layer_hidden_dims[-1], 1)

    def forward(self, x_cat: Any, x_cont: Any) -> Any:
        single, multi = x_cat if isinstance(x_cat, tuple) else (x_cat, None)
        parts = []
        if self.mh_cat_layer is not None and multi:
            parts.append(self.mh_cat_layer(multi))
        if self.initial_cat_layer is not None and single is not None:
            parts.append(self.initial_cat_layer(single))
        if self.initial_cont_layer is not None and x_cont is not None:
            parts.append(self.initial_cont_layer(x_cont))
        x = torch.cat(parts, 1)
        for layer in self.layers:
            x = layer(x)
        x = self.output_layer(x).view(-1)
        return x if self.max_output is None else self.max_output * torch.sigmoid(x)


# A loop over batches, and batches of one form as another.


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

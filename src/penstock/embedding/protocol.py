"""What training and serving know of embeddings, wherever their rows live: the protocol `Embeddings`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from penstock.embedding.store import Store

    Vectors = np.ndarray | Tensor


@runtime_checkable
class Embeddings(Protocol):
    """Embeddings of a batch's ids, and their training.

    A home of rows is one of two kinds, and `on_host` tells which. One on the host (`Store`, `RayStore`) is asked by
    `lookup` ahead of the model's step and given the gradients by `update` behind it. One on the device
    (`FusedEmbeddings`, `HashedEmbeddings`, `CachedEmbeddings`, `EmbeddingTables`, `FrozenEmbeddings`) is a torch module
    besides: the step calls it with the ids, its state is in `state_dict()`, and its rows train in the model's backward
    pass, by itself (`updates_in_backward`) or by the dense optimizer. `lookup` and `update` are the same two moves by
    hand.

    A class of your own that has these members trains through `penstock.train.fit`; it need not inherit anything.

    >>> from penstock.embedding import SGD, SlotConfig, Store
    >>> store = Store([SlotConfig("user", dim=4)], SGD(lr=0.1))
    >>> isinstance(store, Embeddings), store.on_host, store.dims
    (True, True, {'user': 4})
    """

    @property
    def names(self) -> list[str]:
        """The columns that have embeddings, in order."""
        ...

    @property
    def dims(self) -> dict[str, int]:
        """The width of each column's embeddings."""
        ...

    @property
    def on_host(self) -> bool:
        """Whether rows are looked up and updated by the host, beside the model's step."""
        ...

    @property
    def updates_in_backward(self) -> bool:
        """Whether the backward pass through its embeddings is the update of its rows."""
        ...

    @property
    def capturable(self) -> bool:
        """Whether a training step can run inside a captured CUDA graph."""
        ...

    def lookup(self, batch: Mapping[str, Any], train: bool = True) -> Mapping[str, Vectors]:
        """Embeddings of a batch, `(B, dim)` by column.

        Args:
            batch: ids by column: `(B,)`, padded `(B, n)`, or ragged `(values, offsets)`.
            train: whether `update` will follow; if not, nothing may change.

        Returns:
            A mapping. It may carry `packed`, all columns side by side in one array, and `masks` of columns that are
            sequences `(B, length, dim)`.
        """
        ...

    def update(self, lookup: Any, gradients: Mapping[str, Any], scale: float = 1.0) -> None:
        """Apply the gradients of a training look-up.

        Args:
            lookup: what `lookup(batch, train=True)` returned.
            gradients: by column, of the embeddings' shape; a column that is left out is not trained.
            scale: what the loss was multiplied by.
        """
        ...

    def save(self, path: str | Path, overwrite: bool = False, base: str | Path | None = None) -> None:
        """Write everything, optimizer state as well, to `path`; with `base`, the last one, changes may do.

        Args:
            path: a folder that is not there yet.
            overwrite: replace one that is.
            base: the checkpoint saved or loaded last, on which this one may build.
        """
        ...

    def load(self, path: str | Path) -> None:
        """Replace everything by what `save` wrote.

        Args:
            path: a folder that `save` wrote.

        Raises:
            ArtefactError: it is damaged, or of other tables.
        """
        ...

    def stats(self) -> dict[str, Any]:
        """Plain figures; `rows` at least.

        Returns:
            Figures by name.
        """
        ...

    def close(self) -> None:
        """Release threads, actors and the like."""
        ...


class Begun(Protocol):
    """A call that was sent to where rows are, and is finished later: in the order in which calls were begun."""

    def is_ready(self) -> bool:
        """Whether `finish` would not have to wait."""
        ...

    def finish(self) -> Any:
        """Wait for what the call gives."""
        ...


@runtime_checkable
class BeginsCalls(Protocol):
    """Embeddings on the host whose rows are elsewhere: several calls may be in flight, and count in their order."""

    def begin_lookup(self, batch: Mapping[str, Any], train: bool = True) -> Begun:
        """As `lookup`, which it gives when it is finished."""
        ...

    def begin_update(self, lookup: Any, gradients: Any = None, scale: float = 1.0) -> Begun:
        """As `update`; gradients are read before this returns."""
        ...


class TrainsInBackward(Protocol):
    """What a step on the device asks of embeddings whose backward pass is the update of their rows."""

    @property
    def capturable(self) -> bool:
        """Whether a training step can run inside a captured CUDA graph."""
        ...

    @property
    def loss_scale(self) -> float:
        """What losses are multiplied by before `backward()`."""
        ...

    @loss_scale.setter
    def loss_scale(self, scale: float | Tensor) -> None: ...

    @property
    def skipped(self) -> Tensor:
        """How many updates of rows were left out because a gradient was not finite, on the device."""
        ...

    @property
    def skipped_rows(self) -> int:
        """The same on the host; waits for the device."""
        ...

    def check_ids(self) -> None:
        """Raise what ids outside their tables have led to since the last call; waits for the device."""
        ...


@runtime_checkable
class HasStore(Protocol):
    """Embeddings on the device whose rows a saved model or a feed may hold as a store."""

    @property
    def is_served_by_store(self) -> bool:
        """Whether they do; else the tables are saved as such."""
        ...

    def store_for_serving(self) -> AbstractContextManager[Store]:
        """A store with the rows that there are, to be left when it has been read."""
        ...


def is_served_by_store(embeddings: object) -> TypeGuard[HasStore]:
    """Whether a saved model or a feed holds these embeddings as a store that they give.

    >>> is_served_by_store(None)
    False
    """
    return isinstance(embeddings, HasStore) and embeddings.is_served_by_store


def is_on_host(embeddings: object) -> TypeGuard[Embeddings]:
    """Whether look-ups run beside the step; a plain module that makes embeddings from ids runs inside it.

    >>> is_on_host(None)
    False
    """
    return bool(getattr(embeddings, "on_host", False))


def updates_in_backward(module: object) -> TypeGuard[TrainsInBackward]:
    """Whether a module is embeddings whose backward pass is their update."""
    return bool(getattr(module, "updates_in_backward", False))

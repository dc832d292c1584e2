"""What a look-up gives: embeddings by slot, masks, and the thread back to the rows they came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from penstock.core.errors import DataError
from penstock.core.extras import require
from penstock.core.runtime.buffers import BufferPool
from penstock.embedding.batches import IdBatch
from penstock.embedding.slots import EmbeddingConfig
from penstock.kernels import cpu_embedding_batch as layout
from penstock.kernels.cpu_intrinsics import address_of, rows_input

if TYPE_CHECKING:
    from torch import Tensor

Gradients: TypeAlias = "Mapping[str, np.ndarray | Tensor | None] | np.ndarray | Tensor"  # by slot, or packed
_STREAM_ABOVE = 1 << 22  # bytes of output from which writing past the cache is faster, for what it leaves in it


class Lookup(Mapping[str, np.ndarray]):
    """Embeddings of one batch, by slot: `(B, dim)`, or `(B, length, dim)` for raw slots, whose masks are in `masks`.

    All pooled slots lie side by side in `packed`, `(B, sum of dims)`, in the order of the configuration. `tensors()`
    are views of the same memory that collect gradients; `store.update(lookup)` takes those gradients. The memory is
    used again once the look-up and everything made from it is gone.

    Args:
        config: the slots.
        batch: the ids, checked.
        pool: where memory comes from.
        train: whether gradients will come back.
    """

    def __init__(self, config: EmbeddingConfig, batch: IdBatch, pool: BufferPool, train: bool) -> None:
        self.num_samples, self.train = batch.num_samples, train
        self._config, self._work, self._tensors = config, None, {}  # type: tuple[EmbeddingConfig, Any, dict[str, Any]]
        samples = self.num_samples
        pooled = [slot for slot in config if slot.length is None]
        width = sum(slot.dim for slot in pooled)
        self.packed = pool.array((samples, width), np.float32)
        self.masks: dict[str, np.ndarray] = {}
        self._arrays: dict[str, np.ndarray] = {}
        large, column, lines = self.packed.nbytes > _STREAM_ABOVE and width % 16 == 0, 0, []
        base = address_of(self.packed)
        for slot in config:
            if slot.length is None:
                self._arrays[slot.name] = self.packed[:, column : column + slot.dim]
                stream = large and column % 16 == 0 and slot.dim % 16 == 0
                lines.append((base + 4 * column, 4 * width, 0, 0, 0, int(stream)))
                column += slot.dim
            else:
                array = pool.array((samples, slot.length, slot.dim), np.float32)
                mask = pool.array((samples, slot.length), np.bool_)
                self._arrays[slot.name], self.masks[slot.name] = array, mask
                lines.append((address_of(array), 4 * slot.width, address_of(mask), 0, 0, 0))
        batch.inputs[:, layout.OUTPUT :] = lines

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._arrays:
            self._config[name]
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def tensors(self, requires_grad: bool | None = None) -> dict[str, Any]:
        """One torch tensor a slot, sharing this memory; leaves that collect gradients after a training look-up.

        Args:
            requires_grad: whether they collect gradients; as the look-up says by default.

        Returns:
            Tensors by slot.
        """
        torch = require("torch", "torch")
        wanted = self.train if requires_grad is None else requires_grad
        self._tensors = {n: torch.from_numpy(a).requires_grad_(wanted) for n, a in self._arrays.items()}
        return self._tensors

    def packed_tensor(self, requires_grad: bool | None = None) -> Any:
        """All pooled slots as one leaf tensor `(B, sum of dims)`: one gradient comes back instead of one a slot.

        Args:
            requires_grad: whether it collects gradients; as the look-up says by default.

        Returns:
            The tensor.
        """
        torch = require("torch", "torch")
        wanted = self.train if requires_grad is None else requires_grad
        tensor = torch.from_numpy(self.packed).requires_grad_(wanted)
        self._tensors = {"": tensor}
        return tensor

    def collected(self) -> Mapping[str, Any] | Any:
        """The gradients that the tensors given out have collected.

        Returns:
            By slot, or packed.

        Raises:
            DataError: no tensors were given out.
        """
        if not self._tensors:
            raise DataError("update(lookup) without gradients takes those of lookup.tensors(), which was never called")
        if "" in self._tensors:
            return self._tensors[""].grad
        return {name: tensor.grad for name, tensor in self._tensors.items()}

    def place_gradients(self, inputs: np.ndarray, gradients: Gradients | None) -> list[np.ndarray]:
        """Write the gradients' addresses into `inputs`; the arrays that must stay alive meanwhile.

        Args:
            inputs: the kernels' description of the batch.
            gradients: by slot, or packed.

        Returns:
            Arrays.

        Raises:
            DataError: a gradient has another shape than its embeddings.
        """
        inputs[:, layout.GRADIENT : layout.GRADIENT_STRIDE + 1] = 0
        if gradients is None:
            return []
        if not isinstance(gradients, Mapping):
            return self._place_packed(inputs, gradients)
        for name in gradients:
            self._config[name]
        kept = []
        for i, slot in enumerate(self._config):
            given = gradients.get(slot.name)
            if given is None:
                continue
            array = _as_float32(given)
            if array.shape != self._arrays[slot.name].shape:
                raise DataError(
                    f"slot {slot.name!r}: its gradient must have the shape of its embeddings, "
                    f"{self._arrays[slot.name].shape}, got {array.shape}"
                )
            array, address, stride = rows_input(array, np.float32)
            kept.append(array)
            inputs[i, layout.GRADIENT], inputs[i, layout.GRADIENT_STRIDE] = address, stride
        return kept

    def _place_packed(self, inputs: np.ndarray, gradient: Any) -> list[np.ndarray]:
        array = _as_float32(gradient)
        if array.shape != self.packed.shape:
            raise DataError(f"a packed gradient must have the shape {self.packed.shape}, got {array.shape}")
        if array.size:
            array, address, stride = rows_input(array, np.float32)
            # The gradient of a slot lies where its embeddings do.
            at = (inputs[:, layout.OUTPUT] - np.uint64(address_of(self.packed))) + np.uint64(address)
            raw = inputs[:, layout.MASK_OUT] > 0
            inputs[:, layout.GRADIENT] = np.where(raw, np.uint64(0), at)
            inputs[:, layout.GRADIENT_STRIDE] = stride
        return [array]


def _as_float32(gradient: Any) -> np.ndarray:
    if hasattr(gradient, "detach"):  # a torch tensor, on whichever device and in whichever precision
        gradient = gradient.detach().float().cpu().numpy()
    return np.asarray(gradient, np.float32)

"""Tables of one dim, one above the other in one weight: what the kernels look up and update at once."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from penstock.embedding.fused.feature_places import FeaturePlaces
from penstock.embedding.fused.ids import Ids
from penstock.embedding.fused.key_sorter import KeySorter
from penstock.embedding.fused.replayed_update import ReplayedUpdates, RoomClaim
from penstock.embedding.fused.row_home import RowHome
from penstock.kernels.gpu_triton import is_interpreted

if TYPE_CHECKING:
    from penstock.embedding.fused.table_module import TableModule
    from penstock.embedding.optimizers import Optimizer

STATES = ("weight", "first_state", "second_state")


class TableGroup:
    """The tables of a `TableModule` that have one dim. Weight and state are the module's buffers, and move with it.

    Args:
        module: whose tables they are.
        sizes: rows by column.
        owners: the column whose rows each column has; columns of one vocabulary share theirs.
        dim: of all of them.
        numbers: each table's number among all of the module.
        columns: where each table's embeddings begin in the module's output.
        suffix: of the buffers' names; modules of one dim have none.
        home: of the rows.
    """

    def __init__(
        self,
        module: TableModule,
        sizes: Mapping[str, int],
        owners: Mapping[str, str],
        dim: int,
        numbers: Sequence[int],
        columns: Sequence[int],
        suffix: str,
        home: RowHome,
    ) -> None:
        self._module = weakref.ref(module)  # which has this group: its memory goes with it, not when somebody looks
        self.dim, self.suffix, self.home = dim, suffix, home
        self.names, self.numbers = list(sizes), list(numbers)
        self.sizes = {name: rows for name, rows in sizes.items() if owners[name] == name}  # each table once
        begins = dict(zip(self.sizes, accumulate(self.sizes.values(), initial=0), strict=False))
        self.starts = {name: begins[owners[name]] for name in sizes}
        self._features = FeaturePlaces(list(sizes.values()), numbers, columns, list(self.starts.values()))
        self._sorter, self._replayed = KeySorter(), ReplayedUpdates()

    @property
    def module(self) -> TableModule:
        """Whose tables they are."""
        module = self._module()
        assert module is not None
        return module

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_module": self.module}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= {**state, "_module": weakref.ref(state["_module"])}

    def register(self, kind: torch.dtype, scale: float, device: torch.device | str | int | None) -> None:
        """Make the buffers."""
        total, dim, module = self.home.rows_on_device(self.num_rows), self.dim, self.module
        weight = torch.zeros((total, dim), device=device)
        if scale:  # else zeros would come with either sign
            weight.uniform_(-scale, scale)
        weight = weight.to(kind)
        module.register_buffer(self.key("weight"), weight)
        start = getattr(self.optimizer, "initial_accumulator", 0.0)
        for name, shape in zip(STATES[1:], module.rule.states(dim), strict=True):
            state = None if shape is None else torch.full((total, *shape), start, dtype=torch.float32, device=device)
            module.register_buffer(self.key(name), state)

    def key(self, name: str) -> str:
        """What the module calls this group's `weight`, `first_state` or `second_state`."""
        return name + self.suffix

    @property
    def weight(self) -> Tensor:
        """The rows on the device."""
        found: Tensor = getattr(self.module, self.key("weight"))
        return found

    @property
    def states(self) -> tuple[Tensor | None, Tensor | None]:
        """What the optimizer keeps of each row."""
        return getattr(self.module, self.key("first_state")), getattr(self.module, self.key("second_state"))

    @property
    def num_rows(self) -> int:
        """Rows of these tables."""
        return sum(self.sizes.values())

    @property
    def optimizer(self) -> Optimizer:
        """The module's."""
        return self.module.optimizer

    @property
    def errors(self) -> Tensor:
        """The code of a wrong id, of any table of the module."""
        return self.module.errors

    @property
    def steps(self) -> Tensor:
        """Steps of the module."""
        return self.module.steps

    def check_ids(self) -> None:
        """See `TableModule.check_ids`."""
        self.module.check_wrong_ids()

    def look_up(self, ids: Ids, out: Tensor, training: bool, given: Any) -> tuple[Any, Any]:
        """Write the embeddings into their columns of `out`; for training, what `step` needs."""
        located, token = self.home.locate(self, ids, given, training)
        saved = self._look_up_rows(located, out, training)
        self.home.looked_up(self, token, training)
        return saved, token

    def _look_up_rows(self, ids: Ids, out: Tensor, training: bool) -> Any:
        """For training, sorted keys (or the claim of room with unsorted ones) and the bags' sources."""
        saved = claim = None
        weight, kernels = self.weight, self._kernels
        if training:
            claim = self._claim(ids, out)
            saved = self._room_for_update(ids, claim)
        places = self._places(ids.bags)
        kernels.look_up(
            weight, places, ids.singles, ids.lists, self.module.pooling, out, self.errors, saved, self._features.unit
        )
        if weight.device.type == "cpu" and not is_interpreted():
            self.check_ids()
        return None if saved is None else (claim or self._sorter.sorted(kernels, saved[0]), saved[1:])

    def _claim(self, ids: Ids, out: Tensor) -> RoomClaim | None:
        """Room for an update that is replayed: for plain ids of rows that have their places, and all of one dim."""
        if ids.lists is not None or self.home.joint or self.suffix or not self.module.capturable:
            return None
        memory = (self.weight, *self.states, self.module.rates)
        return self._replayed.claim(ids.num_occurrences, self._key_dtype, out, memory)

    def _room_for_update(self, ids: Ids, claim: RoomClaim | None) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, and of lists the sources and scales, for the look-up to fill."""
        weight = self.weight
        device = weight.device
        if claim is not None:
            return claim.room.keys, _empty(torch.int32, device), _empty(torch.float32, device)
        keys = self._sorter.empty(ids.num_occurrences, self._key_dtype, device)
        if ids.lists is None:
            return keys, _empty(torch.int32, device), _empty(torch.float32, device)
        keys[ids.singles.numel() :] = len(weight)  # those that no bag claims
        values = len(ids.lists[0])
        sources = torch.empty(values, dtype=torch.int32, device=device)
        # Kernels of a GPU leave scales out where all are one.
        plain = device.type == "cuda" and self.module.pooling == "sum" and ids.lists[2] is None
        return keys, sources, torch.empty(0 if plain else values, dtype=torch.float32, device=device)

    def check_step(self, saved: Any) -> None:
        """Raise if `step` cannot follow any more: before anything of any group is trained."""
        (in_order, _), token = saved
        self.home.before_step(token)
        if isinstance(in_order, RoomClaim):
            in_order.room.check(in_order)

    def step(self, ids: Ids, saved: Any, gradient: Tensor, counts: bool) -> None:
        """Apply the optimizer for a gradient of the module's output; one of its groups counts the step."""
        (in_order, bags), _ = saved
        if isinstance(in_order, RoomClaim):
            in_order.done, keys = True, in_order.room.keys
            in_order.room.update(
                gradient, lambda given: self._update(ids, self._kernels.sort(keys), None, given, counts)
            )
            return
        self._sorter.wait(self.weight.device)
        self._update(ids, in_order, bags if ids.bags else None, gradient, counts)

    def _update(self, ids: Ids, in_order: Any, bags: Any, gradient: Tensor, counts: bool) -> None:
        module = self.module
        if counts:
            module.advance()
        self._kernels.update(
            module.rule, self.weight, self.states, self._places(ids.bags), in_order, bags, gradient,
            ids.singles.shape[1], module.rates, module.steps, module.unscale, module.skipped,
            self._features.unit,
        )  # fmt: skip

    def table_places(self, bags: tuple[int, ...]) -> Tensor:
        """`fused_contract`'s features for a batch in which these features are bags, on the device."""
        return self._features.tables(bags, self.weight.device)

    def _places(self, bags: tuple[int, ...]) -> Tensor:
        """What the kernels read the weight by."""
        if self.home.joint:
            return self._features.joint(bags, self.weight.device, len(self.weight))
        return self.table_places(bags)

    @property
    def _kernels(self) -> Any:
        if self.weight.device.type == "cuda" or is_interpreted():
            from penstock.kernels import gpu_embedding

            return gpu_embedding
        from penstock.embedding.fused import cpu_kernels

        return cpu_kernels

    @property
    def _key_dtype(self) -> torch.dtype:
        return torch.int32 if len(self.weight) < 2**31 - 1 else torch.int64


@cache
def _empty(kind: torch.dtype, device: torch.device) -> Tensor:
    """Nothing, for arguments that are not read."""
    return torch.empty(0, dtype=kind, device=device)

"""Tables on the device that need no vocabulary: any id has a row as soon as it is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from penstock.core.errors import DataError
from penstock.core.params import NONE, Int, Real, check_all
from penstock.core.schema import Schema
from penstock.embedding.dims import DIM
from penstock.embedding.fused.table_group import STATES
from penstock.embedding.fused.table_module import TableModule
from penstock.embedding.hashed.hashed_rows import HashedRows
from penstock.embedding.hashed.listed_rows import LISTS, hashed_columns, is_listed, wrong_id
from penstock.embedding.optimizers import Optimizer
from penstock.embedding.row_seeds import row_seed, stable_number
from penstock.kernels.fused_contract import table_and_id
from penstock.kernels.hashed_contract import BY_TABLE, CLOCK, FREE, USED

if TYPE_CHECKING:
    from penstock.embedding.store import Store

_LOW32 = 0xFFFFFFFF


class HashedEmbeddings(TableModule):
    """`FusedEmbeddings` for ids without a vocabulary: a row appears when its id is first trained on, as in a store.

    An index on the device finds the rows, inside the step and without asking the host, so steps can be captured. Rows
    start as those of a `Store` with the same seed do, and the numbers are a store's; repeated runs give the same bits,
    whatever the order in which a GPU inserts. Weight and index grow by doubling, between steps. With `max_rows` the
    least recently used rows go, as with a store's `Eviction("lru", max_rows=…)`. An id that was never trained on is
    zeros. Ids are any int64 but -1.

    Args:
        tables: a schema, whose categorical columns count, or names.
        dim, optimizer, lr, dtype, output, output_dtype, pooling, align, device: as `FusedEmbeddings` has them.
        capacity: rows to begin with. One that is never exceeded spares the moves to a larger weight.
        max_rows: rows that stay; none are evicted by default. While a batch comes in its own may come on top.
        scale: rows start uniform in ±scale.
        seed: of the rows, as a store's.

    >>> tables = HashedEmbeddings(["user", "item"], dim=4, lr=0.5)
    >>> found = tables(torch.tensor([[7, 2**60], [-5, 3]]))
    >>> found.sum().backward()
    >>> tables.stats()["rows"]
    4
    >>> with torch.no_grad():
    ...     tables(torch.tensor([[8, 3]]))[0, 0].tolist()  # evaluation never inserts
    [0.0, 0.0, 0.0, 0.0]
    """

    home: HashedRows

    def __init__(
        self,
        tables: Schema | Sequence[str],
        dim: int = 16,
        *,
        capacity: int = 1 << 16,
        max_rows: int | None = None,
        optimizer: str | Optimizer = "rowwise_adagrad",
        lr: float | None = None,
        dtype: str | torch.dtype = "float32",
        output: str = "stack",
        output_dtype: str | torch.dtype | None = None,
        pooling: str = "sum",
        scale: float = 0.01,
        align: int = 1,
        seed: int = 0,
        device: torch.device | str | int | None = None,
    ) -> None:
        given = {"dim": dim, "capacity": capacity, "max_rows": max_rows, "seed": seed, "scale": scale}
        positive = Int(min=1, max=2**32 - 2)
        constraints = {
            "dim": DIM,
            "capacity": positive,
            "max_rows": NONE | positive,
            "seed": Int(0, 2**63),
            "scale": Real(min=0),
        }
        check_all(given, constraints, "HashedEmbeddings")
        columns, sizes = hashed_columns(tables, "HashedEmbeddings")
        super().__init__(
            columns, dim, lambda _: HashedRows(capacity, max_rows, scale), optimizer=optimizer, lr=lr, dtype=dtype,
            output=output, output_dtype=output_dtype, pooling=pooling, scale=0.0, align=align,
            device=device, share=False, sizes=sizes,
        )  # fmt: skip
        self.seed, home = seed, self.groups[0].home
        assert isinstance(home, HashedRows)
        self.home = home
        home.open(self.groups[0], [row_seed(seed + stable_number(name)) for name in self.names])
        self.index = self.home.index  # moves with the weight

    @property
    def num_rows(self) -> int:
        """Rows of all tables, so far. Waits for the GPU."""
        if "index" not in self._modules:  # being made
            return 0
        return int(self.index.counters[USED] - self.index.counters[FREE])

    def make_room(self) -> bool:
        """Make room for one more run of the step that was captured last in a CUDA graph.

        To be called before each replay (`fit` does). Where it waits for the GPU and for what is in the docs.

        Returns:
            Whether memory has moved, so that the step must be captured anew.
        """
        return self.home.make_room_for_replay()

    def check_ids(self) -> None:
        """Raise `DataError` if any id since the last call was -1, or found no room in a captured step. Waits.

        Raises:
            DataError: there was one; its table is named.
        """
        self.check_wrong_ids()

    def check_wrong_ids(self) -> None:
        """See `check_ids`."""
        self.errors.zero_()  # kernels report what was given no row, which is said here
        if code := int(self.index.wrong):
            self.index.wrong.zero_()
            raise wrong_id(self.names[table_and_id(code)[0]])
        refused = self.index.counters[BY_TABLE + len(self.names) :]
        counts = refused.tolist()
        if any(counts):
            refused.zero_()
            name = self.names[max(range(len(counts)), key=counts.__getitem__)]
            raise DataError(
                f"table {name!r} had no room for new ids in a captured step, which were zeros and not trained: call "
                f"HashedEmbeddings.make_room() before each replay and capture anew where it says so, or give more "
                f"capacity (rows: {self.home.capacity})"
            )

    def as_store(self) -> Store:
        """A store in this process's memory with these rows and their state: to serve, or to go on training there.

        Stores refuse ids below 0 in signed columns; they are there under the same bits as unsigned ones.

        Returns:
            A new store, with the tables' optimizer, seed and `max_rows`.
        """
        from penstock.embedding.hashed.as_store import store_of

        return store_of(self, self.seed)

    is_served_by_store = True

    def store_for_serving(self) -> Store:
        """What a saved model holds: `as_store`.

        Returns:
            A new store.
        """
        return self.as_store()

    def stats(self) -> dict[str, Any]:
        """Plain figures: rows (and by table), room for rows, bytes with the index, evictions. Waits for the GPU."""
        self.home.trim()
        _, tables, _ = self.index.listed()
        counts = torch.bincount(tables, minlength=len(self.names)).tolist()
        found = super().stats()
        found["bytes"] += self.index.entries.numel() * 8
        by_table = dict(zip(self.names, counts, strict=True))
        return {**found, "rows_by_table": by_table, "capacity": self.home.capacity, "evicted": self.home.evicted}

    def _apply(self, *arguments: Any, **named: Any) -> Any:
        before = self.weight.device
        super()._apply(*arguments, **named)  # type: ignore[no-untyped-call]
        if self.weight.device != before:
            self.home.begin_anew()
        return self

    # State: rows in the order of their numbers, and whose they are.

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, tensor in self._listed().items():
            destination[prefix + name] = tensor

    def _listed(self) -> dict[str, Tensor]:
        """Rows that were ever given out, their ids and tables (-1 for one that is free), and what goes on counting."""
        self.home.trim()
        counters, device = self.index.counters, self.weight.device
        used, free = int(counters[USED]), int(counters[FREE])
        signs, numbers, values = self.index.listed()
        rows = values & _LOW32
        ids, touched = torch.full((2, used), -1, dtype=torch.int64, device=device)
        tables = torch.full((used,), -1, dtype=torch.int32, device=device)
        ids[rows], touched[rows], tables[rows] = signs - 1, values >> 32, numbers.int()
        held = {name: getattr(self, name)[:used] for name in STATES if getattr(self, name) is not None}
        rest = {"ids": ids, "tables": tables, "touched": touched, "free": self.index.free[:free]}
        return {**held, **rest, "clock": counters[CLOCK].clone()}

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, metadata: Any, strict: bool, missing: Any, unexpected: Any,
        errors: list[str],
    ) -> None:  # fmt: skip
        rest = dict(state_dict)
        given = {name: rest.pop(prefix + name) for name in LISTS if prefix + name in rest}
        held = {name: getattr(self, name) for name in STATES if getattr(self, name) is not None}
        rows = {name: rest[prefix + name] for name in held if prefix + name in rest}
        if not is_listed(given, rows, held, len(self.names)):
            errors.append(f"this is not the state of hashed tables {self.names} of dim {self.dim} and their optimizer")
        else:
            self._fill(given, rows)
            rest.update({prefix + name: getattr(self, name) for name in held})
        super()._load_from_state_dict(rest, prefix, metadata, strict, missing, unexpected, errors)
        unexpected[:] = [key for key in unexpected if key.removeprefix(prefix) not in LISTS]

    def _fill(self, given: dict[str, Tensor], rows: dict[str, Tensor]) -> None:
        """Replace all rows."""
        home, index, device = self.home, self.index, self.weight.device
        lists = {name: tensor.to(device) for name, tensor in given.items()}
        used, tables = len(lists["ids"]), lists["tables"].long()
        index.clear()
        if used > home.capacity:
            home.resize(used)
        with torch.no_grad():
            for name, tensor in rows.items():
                getattr(self, name)[:used].copy_(tensor)
        taken = (tables >= 0).nonzero().flatten()
        counts = torch.bincount(tables[taken], minlength=len(self.names)).cpu().numpy()
        index.grow(home._kernels, counts)
        values = taken | (lists["touched"][taken] << 32)
        index.enter(home._kernels, lists["ids"][taken] + 1, tables[taken], values)
        index.free[: len(lists["free"])] = lists["free"]
        index.counters[USED], index.counters[FREE] = used, len(lists["free"])
        index.counters[CLOCK] = lists["clock"]
        home.begin_anew()

    def extra_repr(self) -> str:
        name = type(self.optimizer).__name__
        return f"{len(self.names)} hashed tables, room for {self.home.capacity} rows, dim={self.dim}, {name}"

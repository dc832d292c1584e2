"""What all loaders share: the plan of an epoch, the threads behind it, position and resumption."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from penstock.core.batch import Batch, BlockSpec
from penstock.core.errors import ParameterError, PenstockError
from penstock.core.params import BOOL, NONE, Int, OneOf, check_all
from penstock.core.schema import Role, Schema
from penstock.data import Dataset
from penstock.data.formats.row_groups import whole_row_groups
from penstock.data.partition import FramePartition, Partition, unselected
from penstock.data.sources import DataLike
from penstock.loader import settings
from penstock.loader.blocks import SlabLayout
from penstock.loader.plan import LAST_BATCH, EpochPlan, LastBatch, units_of
from penstock.loader.runtime import Runtime, batches_from
from penstock.loader.sampling import WeightedSampling
from penstock.loader.stats import Stats
from penstock.loader.transforms import Transform, with_transform

STATE_VERSION = 1
_SAME = ("seed", "batch_size", "shuffle", "last_batch", "rank", "world", "chunk_rows", "num_rows")


class BaseLoader:
    """Iterates batches of a data set. Adapters say how a batch looks (`_convert`).

    Args:
        data: files, frames or columns, or a `Dataset`.
        batch_size: rows of a batch.
        categorical, continuous, labels: columns by role; what the schema says by default.
        shuffle, seed, last_batch: the order of an epoch and its end.
        layout, dtypes, lists, fill: what a batch holds.
        transform, sampling: what is done to rows before they are delivered.
        cache, chunk_rows, parts_per_chunk: what is kept and read at a time.
        rank, world: which share of the rows is this process's.
        num_threads: that read.
    """

    _list_choices: tuple[str, ...] = ("ragged",)
    _substitutes: Mapping[str, str] = {}  # stored dtypes that the framework does not take, and what it gets instead
    _constraints = {
        "batch_size": Int(min=1),
        "shuffle": BOOL,
        "seed": Int(min=0),
        "last_batch": OneOf(LAST_BATCH),
        "chunk_rows": Int(min=1) | NONE,
        "parts_per_chunk": Int(min=1) | NONE,
        "layout": OneOf(("dict", "packed")),
        "cache": OneOf((None, "memory", "disk")),
        "num_threads": Int(min=1) | NONE,
        "rank": Int(min=0),
        "world": Int(min=1),
    }

    def __init__(
        self,
        data: DataLike,
        batch_size: int = 65_536,
        *,
        categorical: Sequence[str] | None = None,
        continuous: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        shuffle: bool = False,
        seed: int = 0,
        last_batch: LastBatch = "keep",
        layout: str = "dict",
        dtypes: Mapping[str, Any] | None = None,
        lists: settings.ListLayouts = "ragged",
        fill: float | Mapping[str, float] | None = None,
        transform: Transform | None = None,
        sampling: WeightedSampling | None = None,
        cache: str | None = None,
        chunk_rows: int | None = None,
        parts_per_chunk: int | None = None,
        rank: int = 0,
        world: int = 1,
        num_threads: int | None = None,
    ) -> None:
        check_all(locals(), self._constraints, type(self).__name__)
        data = data if isinstance(data, Dataset) else Dataset(data, part_size="1MB")
        whole = Dataset.from_partitions(whole_row_groups(data.partitions), data.schema)
        self.dataset = with_transform(whole, transform)
        self.batch_size, self.shuffle, self.seed, self.last_batch = batch_size, shuffle, seed, last_batch
        self.rank, self.world, self.layout, self.cache, self.num_threads = rank, world, layout, cache, num_threads
        self.sampling = sampling
        self._schema = settings.chosen_columns(self.dataset.schema, categorical, continuous, labels)
        self._read_schema = self._schema
        if sampling is not None and sampling.column not in self._schema:
            self._read_schema = self._schema.with_column(self.dataset.schema[sampling.column])
        self._fill = settings.checked_fill(fill, self._read_schema)
        self._dtypes = settings.delivered_dtypes(self._schema, layout, dtypes, self._substitutes)
        self._lists = settings.checked_lists(lists, self._schema, self._list_choices, self._dtypes)
        self._layout = SlabLayout.of(self._schema, self._dtypes, batch_size)
        if parts_per_chunk is not None:
            if chunk_rows is not None:
                raise ParameterError("chunk_rows and parts_per_chunk say the same thing; give one of them")
            chunk_rows = parts_per_chunk * max(1, *self._row_counts())
        self.chunk_rows = chunk_rows or settings.default_chunk_rows(self._stored_bytes())
        self.epoch = 0
        self.num_rows_processed = 0
        self._batch = self._resume = 0
        self._maps: tuple[Callable[[Any], Any], ...] = ()
        self._runtime: Runtime | None = None
        self._plans: dict[int, EpochPlan] = {}
        if rank >= world:
            raise ParameterError(f"rank must be from 0 to world - 1 = {world - 1}, got {rank}")

    # What an adapter defines.

    def _convert(self, batch: Batch) -> Any:
        """The batch as the framework's user sees it."""
        raise TypeError(f"{type(self).__name__} does not say what a batch looks like")

    def _source(self, runtime: Runtime, plan: EpochPlan, start: int, stop: int) -> Iterator[Batch]:
        """Batches `[start, stop)` before they are converted: a generator that ends its threads when it is closed."""
        return batches_from(runtime.reader(plan, self._layout, self.sampling, start, stop), plan, start, stop)

    def _epoch_seed(self, epoch: int) -> int:
        """The seed of an epoch's order, asked for once when the epoch is planned; must be the same on every rank."""
        return self.seed

    def _make_runtime(self) -> Runtime:
        return Runtime(self)

    # Size and order.

    def plan(self, epoch: int | None = None) -> EpochPlan:
        """The order of an epoch (the present one by default).

        Args:
            epoch: its number.

        Returns:
            The plan of this rank.
        """
        epoch = self.epoch if epoch is None else epoch
        if epoch not in self._plans:
            self.seed = self._epoch_seed(epoch)
            rows = self._row_counts()
            divisible = [isinstance(p, FramePartition) for p in self._partitions()]
            made = EpochPlan.build(
                units_of(rows, divisible, self.chunk_rows),
                batch_size=self.batch_size,
                chunk_rows=self.chunk_rows,
                shuffle=self.shuffle,
                seed=self.seed,
                epoch=epoch,
                rank=self.rank,
                world=self.world,
                last_batch=self.last_batch,
            )
            self._plans = {number: plan for number, plan in self._plans.items() if number == epoch - 1} | {epoch: made}
        return self._plans[epoch]

    def _partitions(self) -> list[Partition]:
        """The partitions to read; the columns are named when they are read, so it does not matter who chose them."""
        return [unselected(part) for part in self.dataset.partitions]

    def _stored_bytes(self) -> int:
        """Bytes of a row with all columns there are: the order of rows must not depend on those that are loaded."""
        return max((part.row_bytes for part in self._partitions()), default=1)

    def _row_counts(self) -> list[int]:
        return [part.count() if part.num_rows is None else part.num_rows for part in self._partitions()]

    def __len__(self) -> int:
        """Batches in an epoch of this rank."""
        return self.plan().num_batches

    @property
    def schema(self) -> Schema:
        """The columns that come in a batch, with their roles."""
        return self._schema

    @property
    def num_rows(self) -> int:
        """Rows in an epoch of this rank."""
        return self.plan().num_rows

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next iteration delivers, from its start.

        Args:
            epoch: its number, from 0.
        """
        self.epoch, self._batch, self._resume = epoch, 0, 0

    def expect_epochs(self, count: int) -> None:
        """Say how many epochs will be asked for: where batches go to a device, the next is read before one ends.

        Args:
            count: with the one that comes now; with 0, what was begun is dropped.
        """

    # Iteration.

    def __iter__(self) -> Iterator[Any]:
        plan = self.plan()
        return self._iterate(plan, self._start(), plan.num_batches)

    def _start(self) -> int:
        """The batch to begin with: the one a loaded state names, once; else the first, also after a broken-off loop."""
        start, self._resume = self._resume, 0
        return start

    def _iterate(self, plan: EpochPlan, start: int, stop: int) -> Iterator[Any]:
        """Batches `[start, stop)`. A generator, so that leaving the loop early ends the threads."""
        self.epoch, self._batch = plan.epoch, start
        if start >= stop:
            return
        runtime = self._running()
        stats = runtime.source.stats
        waiting, working = stats.stages["wait_for_loader"], stats.stages["wait_for_consumer"]
        asked = time.perf_counter()
        batches = self._source(runtime, plan, start, stop)
        try:
            for position, batch in enumerate(batches, start + 1):
                out = self._finished(self._convert(batch))
                # With the last batch the next epoch begins: many trainers count batches and ask for no more.
                self.epoch, self._batch = (plan.epoch, position) if position < plan.num_batches else (plan.epoch + 1, 0)
                self.num_rows_processed += batch.num_rows
                stats.rows += batch.num_rows
                stats.batches += 1
                del batch
                given = time.perf_counter()
                waiting.seconds += given - asked
                yield out
                del out
                asked = time.perf_counter()
                working.seconds += asked - given
        finally:
            batches.close()  # type: ignore[attr-defined]

    def _finished(self, batch: Any) -> Any:
        for function in self._maps:
            batch = function(batch)
        return batch

    def epochs(self, count: int) -> Iterator[Any]:
        """The batches of `count` epochs in a row.

        Args:
            count: how many.

        Returns:
            Batches.
        """
        for _ in range(count):
            yield from self

    def peek(self) -> Any:
        """The batch that comes next, without moving on.

        Returns:
            A batch, as iterating gives it.

        Raises:
            PenstockError: there is no batch left.
        """
        before = self.epoch, self._batch, self._resume, self.num_rows_processed
        iterator = iter(self)
        try:
            return next(iterator)
        except StopIteration:
            raise PenstockError("there is no batch: the data set is empty, or smaller than one batch") from None
        finally:
            iterator.close()  # type: ignore[attr-defined]
            self.epoch, self._batch, self._resume, self.num_rows_processed = before

    def map(self, function: Callable[[Any], Any]) -> Any:
        """A loader of the same batches with `function` run on each.

        Args:
            function: takes and gives a batch.

        Returns:
            The loader.
        """
        mapped = copy.copy(self)
        mapped._maps = (*self._maps, function)
        return mapped

    # Resumption.

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands: after this many batches of this epoch, in this order.

        Returns:
            Plain data.
        """
        return {"version": STATE_VERSION, "epoch": self.epoch, "batch": self._batch, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with exactly the batch that would have come next.

        Args:
            state: what `state_dict` gave.

        Raises:
            ParameterError: it is of another loader; the message says what differs.
        """
        if state.get("version") != STATE_VERSION:
            raise ParameterError(f"this is not the state of a loader (version {state.get('version')!r})")
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise ParameterError(
                    f"the state was saved with {name}={state.get(name)!r} and this loader has {name}={value!r}; "
                    f"the batches would not be the same: use the same {name}"
                )
        self.epoch, self._batch = int(state["epoch"]), int(state["batch"])
        self._resume = self._batch

    def share_of(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The state of a loader of another number of ranks as one of this loader's, at the same share of the epoch.

        Args:
            state: what `state_dict` gave there, on the first rank.

        Returns:
            A state for `load_state_dict`; the same one where the number of ranks is the same.
        """
        if state.get("world") == self.world:
            return dict(state)
        batches = -(-int(state["num_rows"]) // int(state["batch_size"]))
        batch = min(round(int(state["batch"]) * len(self) / max(batches, 1)), len(self) - 1)
        divided = ("rank", "world", "batch_size", "num_rows")
        return {**state, **{name: getattr(self, name) for name in divided}, "batch": batch}

    def _identity(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _SAME}

    # What runs behind.

    def stats(self) -> Stats:
        """Where the time went since the loader was made; `print(loader.stats())` ends with a verdict.

        Returns:
            Counters, which go on.
        """
        return self._running().source.stats

    def _running(self) -> Runtime:
        if self._runtime is None or not self._runtime.process.is_this():
            self._runtime = self._make_runtime()
        return self._runtime

    def __getstate__(self) -> dict[str, Any]:  # buffers, caches and locks stay behind
        return {**self.__dict__, "_runtime": None, "_plans": {}}

    def _roles(self, role: Role) -> Schema:
        return self._schema.select(roles=role)

    def __repr__(self) -> str:
        kind = f"{type(self).__module__}.{type(self).__name__}"
        return (
            f"{kind}({len(self)} batches of {self.batch_size} rows, {len(self._schema)} columns, "
            f"shuffle={self.shuffle})"
        )


def labels_of(columns: dict[str, Any], specs: Sequence[BlockSpec], lists: Sequence[str]) -> tuple[dict[str, Any], Any]:
    """`(features, labels)`: one label is an array, several are a dict, none is None."""
    names = [n for spec in specs if spec.role is Role.LABEL for n in spec.names] + list(lists)
    labels = {name: columns.pop(name) for name in names}
    if len(labels) == 1:
        return columns, labels.popitem()[1]
    return columns, labels or None

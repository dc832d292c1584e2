"""Categories that training has not seen: counted as rows are predicted on, by column."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.core.batch import Ragged
from penstock.embedding.lookup import Lookup
from penstock.etl import Workflow
from penstock.etl.ops import Categorify
from penstock.nn import Model


class UnknownCategories:
    """Counts, by column of the model, the values that training had no code or no embedding for.

    Where `Categorify` made the column, a value outside its vocabulary is unknown. Elsewhere (ids that go to the store
    as they are, hashes) it is a value whose embedding is all zeros, which is what a store gives an id it has no row
    for; a list counts once, if all of it is unknown. Where embeddings are in tables, whose `sizes` are given, an id
    outside its table is unknown.
    """

    def __init__(self, workflow: Workflow | None, model: Model, sizes: Mapping[str, int] | None = None) -> None:
        self.columns = list(model.categorical)
        self.counts = np.zeros(len(self.columns), np.int64)
        self._low = np.zeros(len(self.columns), np.int64)
        self._high = np.zeros(len(self.columns), np.int64)  # codes in [low, high) are out of vocabulary
        layouts = {} if workflow is None else _layouts(workflow)
        for i, name in enumerate(self.columns):
            self._low[i], self._high[i] = layouts.get(name, (0, 0))
        self._coded = self._high > self._low
        self._sizes = None if sizes is None else np.array([sizes[name] for name in self.columns])
        self._lock = threading.Lock()  # batches may be scored side by side

    def to_dict(self) -> dict[str, int]:
        """Columns with unknown values so far, and how many."""
        return {name: int(count) for name, count in zip(self.columns, self.counts, strict=True) if count}

    def count(self, ids: Mapping[str, Any], found: Lookup | None) -> None:
        """Add a batch: the model's categorical columns, and what the store said (None: there is no store)."""
        self.add(self.outside(ids), ids, found)

    def outside(self, ids: Mapping[str, Any]) -> np.ndarray:
        """How many ids of each column are out of its vocabulary or table; changes nothing."""
        arrays = [ids[name] for name in self.columns]
        if arrays and not any(isinstance(array, Ragged) for array in arrays):
            counts: np.ndarray = self._are_unknown(np.array(arrays), np.s_[:, None]).sum(1)
            return counts
        codes = (array.values if isinstance(array, Ragged) else array for array in arrays)
        return np.array([np.count_nonzero(self._are_unknown(each, i)) for i, each in enumerate(codes)], np.int64)

    def bounds(self) -> np.ndarray:
        """`(columns, 3)`: ids in `[low, high)`, or outside `[0, size)`, are what `outside` counts; for tables."""
        assert self._sizes is not None
        return np.stack([self._low, self._high, self._sizes], 1)

    def add(self, outside: np.ndarray, ids: Mapping[str, Any], found: Lookup | None) -> None:
        """Add what `outside` gave for a batch, and what the store had no row for."""
        counts = outside.copy()
        if found is not None and not self._coded.all():
            self._count_zeros([ids[name] for name in self.columns], found, counts)
        with self._lock:
            self.counts += counts

    def _are_unknown(self, codes: np.ndarray, columns: Any) -> np.ndarray:
        unknown: np.ndarray = (codes >= self._low[columns]) & (codes < self._high[columns])
        if self._sizes is not None:
            unknown = unknown | (codes < 0) | (codes >= self._sizes[columns])
        return unknown

    def _count_zeros(self, arrays: list[Any], found: Lookup, counts: np.ndarray) -> None:
        for i in np.flatnonzero(~self._coded):
            rows = found[self.columns[i]]
            empty = ~rows.reshape(len(rows), -1).any(1)
            if isinstance(arrays[i], Ragged):
                empty &= np.diff(arrays[i].offsets) > 0
            counts[i] += np.count_nonzero(empty)


def _layouts(workflow: Workflow) -> dict[str, tuple[int, int]]:
    """The codes that stand for values out of vocabulary, by the workflow's output column."""
    plan = workflow._fitted_plan()
    by_vocabulary: dict[str, tuple[int, int]] = {}
    for node in plan.nodes:
        if isinstance(node.operator, Categorify):
            for name in node.operator.vocabularies_:
                codes = node.operator.codes(name).shifted(node.operator.shifts_[name])
                by_vocabulary[name] = (codes.oov, codes.oov + codes.num_buckets)
    named = {column.name: column.properties.get("vocabulary") for column in workflow.output_schema}
    return {name: by_vocabulary[v] for name, v in named.items() if v in by_vocabulary}

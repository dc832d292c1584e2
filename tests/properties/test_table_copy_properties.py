"""A checkpoint beside training holds what was there when it began, however copying and training take turns.

Two threads run one at a time: one trains, the other copies and writes. Hypothesis draws when they take turns, at every
point where it could matter: between two pieces that are copied, and between what an update looks up about the copy,
keeps for it, and changes.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from penstock.embedding import FTRL, SGD, Adagrad, Adam, Admission, Eviction, LazyAdam, SlotConfig
from penstock.embedding.optimizers import DecayedAdagrad, RowWiseAdam
from penstock.embedding.row_files import copied_shard, write_shard
from penstock.embedding.slots import EmbeddingConfig
from penstock.embedding.table_copies import TableCopy
from penstock.embedding.tables import TableSet
from penstock.kernels import cpu_embedding_keep as kernel

CONFIG = EmbeddingConfig([SlotConfig("wide", 60), SlotConfig("narrow", 7)])
IDS = np.array([4_000, 300])  # by slot; those of the first table take several pieces
SETTINGS: list[dict[str, Any]] = [
    {"optimizer": SGD(lr=0.1)},
    {"optimizer": Adagrad(lr=0.1)},
    {"optimizer": Adagrad(lr=0.1, row_wise=True), "storage": "float16"},
    {"optimizer": DecayedAdagrad(lr=0.1), "storage": "bfloat16"},
    {"optimizer": LazyAdam(lr=0.1)},
    {"optimizer": RowWiseAdam(lr=0.1)},
    {"optimizer": FTRL(lr=0.1)},
    {"optimizer": Adam(lr=0.1)},
    {"optimizer": Adagrad(lr=0.1), "admission": Admission(min_count=2, probability=0.9)},
    {"optimizer": Adagrad(lr=0.1), "eviction": Eviction(max_rows=3_000, policy="lfu")},
    {"optimizer": SGD(lr=0.1), "eviction": Eviction(policy="ttl", steps=6)},
]


class Turns:
    """Lets one of two threads run at a time, and the other one when as many points are passed as was drawn."""

    def __init__(self, lengths: list[int]) -> None:
        self._lengths = iter([*lengths, *repeat(1, 1000)])
        self._left = next(self._lengths)
        self._writer: threading.Thread | None = None
        self._writes = self._is_over = False  # whose turn it is
        self._condition = threading.Condition()

    def point(self) -> None:
        """Here the other thread may go on."""
        if self._writer is None:  # what is copied before training goes on
            return
        with self._condition:
            self._left -= 1
            if self._left <= 0:
                self._left, self._writes = next(self._lengths, 1), not self._writes
                self._condition.notify_all()
            self._wait()

    def _wait(self) -> None:
        mine = threading.current_thread() is self._writer
        assert self._condition.wait_for(lambda: self._is_over or self._writes == mine, timeout=60)

    def beside(self, write: Callable[[], None], train: Callable[[], None]) -> None:
        """Write on a thread while this one trains; whoever is done first leaves the rest to the other."""
        errors: list[BaseException] = []

        def writing() -> None:
            try:
                with self._condition:
                    self._wait()
                write()
            except BaseException as error:
                errors.append(error)
            finally:
                self._end()

        self._writer = threading.Thread(target=writing)
        self._writer.start()
        try:
            train()
        finally:
            self._end()
            self._writer.join()
        assert not errors, errors

    def _end(self) -> None:
        with self._condition:
            self._is_over = True
            self._condition.notify_all()


def with_points(turns: Turns, patch: pytest.MonkeyPatch) -> None:
    """Let the threads take turns wherever a copy and an update meet."""

    def between(owner: Any, name: str) -> None:
        whole = getattr(owner, name)

        def with_point(*given: Any) -> Any:
            turns.point()
            answer = whole(*given)
            turns.point()
            return answer

        patch.setattr(owner, name, with_point)

    def set_copied(copy: Any, rows: int) -> None:
        copy._rows_copied = rows
        if rows:
            turns.point()

    patch.setattr(TableCopy, "copied", property(lambda copy: copy._rows_copied, set_copied), raising=False)
    patch.setattr("penstock.embedding.table_copies._CHUNKS_AT_ONCE", 1)
    between(TableCopy, "keep")
    between(kernel, "keep_rows")
    between(kernel, "put_rows")


class Trainer:
    """Looks up ahead and updates behind, as a client of a shard does."""

    def __init__(self, tables: TableSet, seed: int) -> None:
        self._tables, self._rng = tables, np.random.default_rng(seed)
        self._ahead: list[tuple[np.ndarray, np.ndarray]] = []

    def look_up(self, first: int = 1) -> None:
        """Rows of a batch, which is updated later."""
        parts = [first + self._rng.choice(ids, min(ids, 700), replace=False) for ids in IDS]
        counts, signs = np.array([len(part) for part in parts]), np.concatenate(parts).astype(np.uint64)
        self._tables.lookup_signs(counts, signs, True)
        self._ahead.append((counts, signs))

    def update(self) -> None:
        """Change the rows that were looked up first."""
        if not self._ahead:
            self.look_up()
        counts, signs = self._ahead.pop(0)
        sums = self._rng.normal(size=int(counts @ [60, 7])).astype(np.float32)
        self._tables.update_signs(counts, signs, sums, np.ones(2, np.bool_), 1.0)

    def insert(self) -> None:
        """Rows that were not there, and an update of them."""
        self.look_up(first=int(self._rng.integers(1, 10_000)))

    def evaluate(self) -> None:
        """A look-up that changes nothing."""
        self._tables.lookup_signs(np.array([50, 0]), np.arange(1, 51, dtype=np.uint64), False)


def files(folder: Path) -> dict[str, pl.DataFrame]:
    """What a shard has written, whatever the order of its rows."""
    return {path.name: pl.read_parquet(path).sort("sign") for path in sorted(folder.iterdir())}


ACTIONS = st.lists(st.sampled_from(["update", "update", "look_up", "insert", "evaluate"]), min_size=1, max_size=8)


@given(
    chosen=st.sampled_from(SETTINGS),
    ahead=st.integers(0, 3),
    incremental=st.booleans(),
    actions=ACTIONS,
    lengths=st.lists(st.integers(1, 12), max_size=12),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40)
def test_what_is_written_is_what_was_there(
    chosen: dict[str, Any], ahead: int, incremental: bool, actions: list[str], lengths: list[int], seed: int
) -> None:
    tables = TableSet(CONFIG, **chosen, num_threads=1, signs_given=True)
    trainer, turns = Trainer(tables, seed), Turns(lengths)
    tables.watch("checkpoint")
    for _ in range(8):
        trainer.insert()
        trainer.update()
    since = -1
    if incremental:
        tables.watch("checkpoint")
        since = tables.changes("checkpoint")[0]
    for _ in range(ahead):
        trainer.look_up()
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        folder = Path(place)
        write_shard(tables, folder / "at once", since)
        with_points(turns, patch)
        write = copied_shard(tables, since)
        turns.beside(
            lambda: write(folder / "beside"), lambda: [getattr(trainer, action)() for action in actions] and None
        )
        want, found = files(folder / "at once"), files(folder / "beside")
        assert want.keys() == found.keys()
        for name, frame in want.items():
            assert_frame_equal(found[name], frame, check_exact=True)
    tables.close()

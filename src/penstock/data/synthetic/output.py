"""Generated rows to disk: made in threads a chunk at a time, written beside the target, renamed into place."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core import artefact, params
from penstock.core.choices import SYNTHETIC_FORMATS
from penstock.core.errors import ArtefactError, OutputExistsError, PenstockError
from penstock.core.progress import Bar, bar
from penstock.core.runtime.threads import ThreadPool, thread_count, thread_pool
from penstock.core.schema import Schema

ROWS_PER_CHUNK = 65_536
SCHEMA_FILE = "_schema.json"

_CONSTRAINTS = {
    "num_rows": params.Int(min=0),
    "seed": params.Int(),
    "format": params.OneOf(SYNTHETIC_FORMATS),
    "num_files": params.Int(min=1),
    "rows_per_chunk": params.Int(min=1),
    "overwrite": params.BOOL,
    "progress": params.NONE | params.BOOL,
    "num_threads": params.NONE | params.Int(min=1),
}


@dataclass(frozen=True)
class Summary:
    """What was written, and how good a model of it can be.

    `best_auc` is the AUC of the probabilities that the labels were drawn from: no model does better, apart from luck.

    Args:
        path: what was asked for.
        rows: written.
        files: written.
        bytes: of all of them.
        positive_rate: the share of label 1.
        best_auc: that a model can reach.
        cardinalities: by column.
        schema: of the rows.
        teacher: what labels were drawn from.
        best_rmse: that a model can reach, for ratings.

    >>> summary = Summary(Path("a.tsv"), 10, [Path("a.tsv")], 2000, 0.3, 0.8, {"C1": 5}, Schema())
    >>> print(summary)
    a.tsv: 10 rows in 1 file (0.0 MB), positive rate 0.300, best reachable AUC 0.800
    """

    path: Path
    rows: int
    files: list[Path]
    bytes: int
    positive_rate: float
    best_auc: float
    cardinalities: dict[str, int]
    schema: Schema
    teacher: Any = field(default=None, repr=False)
    best_rmse: float | None = None

    def __str__(self) -> str:
        files = f"{len(self.files)} file" + "s" * (len(self.files) != 1)
        rmse = f", best reachable RMSE {self.best_rmse:.3f}" if self.best_rmse is not None else ""
        return (
            f"{self.path}: {self.rows:,} rows in {files} ({self.bytes / 1e6:.1f} MB), "
            f"positive rate {self.positive_rate:.3f}, best reachable AUC {self.best_auc:.3f}{rmse}"
        )


@dataclass(frozen=True)
class Job:
    """Where the rows go and in which portions.

    `produce(start, stop)` makes rows `start` to `stop` and returns `(payload, number of positive labels)`; the payload
    is a buffer of bytes, or a `pyarrow.Table` where `format` is parquet. It runs in threads and must depend on
    nothing but its arguments.
    """

    path: Path
    num_rows: int
    seed: int
    format: str
    num_files: int
    rows_per_chunk: int
    overwrite: bool
    progress: bool | None
    num_threads: int | None

    def __post_init__(self) -> None:
        params.check_all(vars(self), _CONSTRAINTS)
        object.__setattr__(self, "path", Path(self.path))

    def run(
        self, produce: Callable[[int, int], tuple[Any, int]], schema: Schema, arrow: pa.Schema | None
    ) -> dict[str, Any]:
        """Write everything; returns the fields of a `Summary` that the writing determines."""
        try:
            return self._run(produce, schema, arrow)
        except OSError as error:
            if isinstance(error, PenstockError):
                raise
            reason = error.strerror or str(error)
            raise ArtefactError(f"cannot write {self.path}: {reason}; choose a writable folder with room") from error

    def _run(
        self, produce: Callable[[int, int], tuple[Any, int]], schema: Schema, arrow: pa.Schema | None
    ) -> dict[str, Any]:
        positives = 0
        num_threads = thread_count(self.num_threads, most=4)
        with self._staging() as folder, bar("writing rows", total=self.num_rows, show=self.progress) as drawn:
            names = self._file_names()
            with thread_pool(num_threads, "synthetic") as pool:
                for number, name in enumerate(names):
                    results = _ordered(pool, num_threads + 1, produce, self._chunks(number))
                    positives += _write_file(folder / name, results, arrow, drawn)
            num_bytes = sum((folder / name).stat().st_size for name in names)
            if arrow is not None or self.num_files > 1:
                _write_schema(folder, schema, None if self.num_files > 1 else names[0])
        files = [self.path] if self.num_files == 1 else [self.path / name for name in names]
        rate = positives / self.num_rows if self.num_rows else 0.0
        return {"path": self.path, "rows": self.num_rows, "files": files, "bytes": num_bytes, "positive_rate": rate}

    def _file_names(self) -> list[str]:
        if self.num_files == 1:
            return [self.path.name]
        return [f"part-{i:05d}.{self.format}" for i in range(self.num_files)]

    def _chunks(self, file: int) -> Iterator[tuple[int, int]]:
        start = self.num_rows * file // self.num_files
        stop = self.num_rows * (file + 1) // self.num_files
        for at in range(start, stop, self.rows_per_chunk):
            yield at, min(at + self.rows_per_chunk, stop)

    @contextmanager
    def _staging(self) -> Iterator[Path]:
        """A folder beside the target whose content takes the target's place when the block ends well."""
        place = self.path
        if self.num_files > 1:
            with artefact.staged(place, self.overwrite) as folder:
                yield folder
            return
        if place.is_dir():
            raise OutputExistsError(
                f"{place} is a folder; give a file name, or num_files > 1 for a folder of part files"
            )
        with artefact.working_folder(place, self.overwrite) as folder:
            yield folder
            for file in sorted(folder.iterdir(), key=lambda f: f.name == place.name):  # the data last: it means "whole"
                artefact.replace(file, place.parent / file.name)


def _write_file(path: Path, results: Iterator[tuple[int, tuple[Any, int]]], arrow: pa.Schema | None, drawn: Bar) -> int:
    positives = 0
    with ExitStack() as stack:
        file = stack.enter_context(path.open("wb"))
        parquet = stack.enter_context(pq.ParquetWriter(file, arrow)) if arrow is not None else None
        for rows, (payload, positive) in results:
            if parquet is not None:
                parquet.write_table(payload, row_group_size=max(1, rows))
            else:
                file.write(payload)
            positives += positive
            drawn.advance(rows)
    return positives


def _ordered(
    pool: ThreadPool,
    most: int,
    produce: Callable[[int, int], tuple[Any, int]],
    chunks: Iterator[tuple[int, int]],
) -> Iterator[tuple[int, tuple[Any, int]]]:
    """Results in the order of the chunks, at most `most` of them under way: memory stays bounded by the chunk."""
    waiting: deque[tuple[int, Future[tuple[Any, int]]]] = deque()
    try:
        for start, stop in chunks:
            waiting.append((stop - start, pool.submit(produce, start, stop)))
            if len(waiting) >= most:
                rows, future = waiting.popleft()
                yield rows, future.result()
        while waiting:
            rows, future = waiting.popleft()
            yield rows, future.result()
    finally:
        for _, future in waiting:
            future.cancel()


def _write_schema(folder: Path, schema: Schema, file_name: str | None) -> None:
    """The schema beside the data: in a folder of parts, or next to a single file."""
    name = SCHEMA_FILE if file_name is None else f"{file_name}.schema.json"
    (folder / name).write_text(schema.to_json())

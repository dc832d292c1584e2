"""Which kernels are compiled ahead: `python scripts/kernel_lines.py --write` after kernels or their arguments changed.

Small jobs run, a process each: raw rows, ready features, rows of other kinds (large ids, text, gaps, lists), a training
as by default, and the whole way. What they have had compiled is compiled once more in an empty cache, to be put in the
order of the time that it takes. Without --write the lines are printed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock.kernels.kernel_lines import LINES

_SELDOM = "seldom "  # before a line that most jobs do without
_ROWS, _VALUES = 3_000, 5_000  # so many values of a column that its table has to grow


def _rows(place: Path) -> None:
    from penstock.data import synthetic
    from penstock.etl import presets
    from penstock.jobs.etl import EtlJob

    made = synthetic.criteo(place / "day.tsv", _ROWS, cardinalities=_VALUES, progress=False)
    recipe = presets.load("criteo")  # partitions end within row groups, as large ones do
    EtlJob([str(made.path)], str(place / "features"), recipe=recipe, row_group_size=2_000, progress=False).run()


def _features(place: Path) -> None:
    import numpy as np

    from penstock.core.schema import ColumnSchema, Role, Schema
    from penstock.data import Dataset
    from penstock.jobs.training import TrainJob

    draw = np.random.default_rng(0)
    categories, numbers = [f"C{i}" for i in range(1, 27)], [f"I{i}" for i in range(1, 14)]
    columns: dict[str, np.ndarray] = {n: draw.integers(0, 50, _ROWS, dtype=np.int32) for n in categories}
    columns |= {name: draw.random(_ROWS, np.float32) for name in numbers}
    columns["label"] = draw.integers(0, 2, _ROWS, dtype=np.int32)
    schema = [ColumnSchema(n, "int32", Role.CATEGORICAL, nullable=False, cardinality=50) for n in categories]
    schema += [ColumnSchema(n, "float32", Role.CONTINUOUS, nullable=False) for n in numbers]
    schema.append(ColumnSchema("label", "int32", Role.LABEL, nullable=False))
    Dataset(columns, schema=Schema(schema)).to_parquet(place / "features", progress=False)
    settings = {"epochs": 1, "batch_size": 256, "tables": "store"}
    TrainJob(place / "features", place / "run", settings=settings, progress=False, num_examples=0).run()
    _checkpoint_beside(place / "checkpoint")


def _checkpoint_beside(path: Path) -> None:
    """An update between the beginning of a checkpoint and the thread that copies its rows: it seldom comes so soon."""
    import numpy as np

    from penstock.embedding import Adagrad, SlotConfig, Store

    gradients = {"user": np.ones((2, 4), np.float32)}
    with Store([SlotConfig("user", dim=4)], Adagrad(lr=0.1)) as store:
        store.update(store.lookup({"user": [1, 2]}), gradients)
        found, saving = store.lookup({"user": [1, 2]}), store.begin_save(path)
        store.update(found, gradients)
        saving.finish()


def _kinds(place: Path) -> None:
    """Columns as data of one's own has them; `penstock train FILE --label click` meets the same kernels."""
    import numpy as np
    import polars as pl

    from penstock.jobs.draft import draft_recipe
    from penstock.jobs.training import TrainJob

    draw = np.random.default_rng(0)
    amounts = pl.Series(draw.random(_ROWS).round(4))
    words = np.array(["drama", "comedy", "war", "documentary"])
    pl.DataFrame({
        "click": draw.integers(0, 2, _ROWS),
        "user_id": draw.integers(0, _VALUES, _ROWS) + 10**12,
        "site": [f"site {value}" for value in draw.integers(0, _VALUES, _ROWS)],
        "age": pl.Series(draw.integers(18, 80, _ROWS)).set(pl.Series(draw.random(_ROWS) < 0.1), None),
        "amount": amounts.set(pl.Series(draw.random(_ROWS) < 0.1), None),
        "genres": ["|".join(draw.choice(words, draw.integers(1, 4), replace=False)) for _ in range(_ROWS)],
    }).write_csv(place / "rows.csv")  # fmt: skip
    source = [str(place / "rows.csv")]
    recipe, settings = draft_recipe(source, "click").recipe, {"epochs": 1, "batch_size": 256}
    TrainJob(source, place / "run", recipe=recipe, settings=settings, progress=False, num_examples=0).run()


def _of_many_rows() -> None:
    """Counts of two partitions are merged where two threads have counted, which few rows do not always see.

    Scores share bins where they are more than bins.
    """
    import numpy as np

    from penstock.kernels.cpu_vocab import Counter
    from penstock.metrics.arrays import NumpyArrays

    NumpyArrays().light_blocks(np.arange(4), np.arange(5.0), 2.0)

    for kind in ("uint32", "uint64"):
        first, second = Counter(kind), Counter(kind)
        for counter in (first, second):
            counter.add(np.arange(_VALUES, dtype=kind))
        first.merge(second)


def _default(place: Path) -> None:
    """As `penstock train` does, on enough rows for all that it does by default."""
    from penstock.data import synthetic
    from penstock.etl import presets
    from penstock.jobs.training import TrainJob

    made = synthetic.criteo(place / "day.tsv", 20_000, progress=False)
    settings = {"epochs": 1, "max_steps": 20}
    TrainJob(made.path, place / "run", presets.load("criteo"), settings=settings, progress=False).run()
    _of_many_rows()


def _device(place: Path) -> None:
    """What the host does for a GPU, which need not be there: it finds the values in pages, and fills narrow ids in."""
    import numpy as np

    from penstock.data import Dataset
    from penstock.kernels.cpu_model_input import fill_input
    from penstock.loader.parquet import ParquetColumns, Workspace

    Dataset({"a": np.arange(_ROWS), "b": np.ones(_ROWS, np.float32)}).to_parquet(place / "rows", progress=False)
    (partition,), columns, raw = Dataset(place / "rows").partitions, ParquetColumns(), np.empty(1 << 20, np.uint8)
    for name in ("a", "b"):
        file = columns.open(str(partition.path))
        assert columns.find_runs([(c, file) for c in columns.chunks(partition, name) or ()], Workspace(), raw, 0)
    ids, numbers, outside = np.zeros((1, 2), np.int32), np.zeros((2, 1), np.float32), np.zeros(1, np.int64)
    addresses = np.array([ids.ctypes.data], np.int64), np.array([numbers.ctypes.data], np.int64)
    fill_input(*addresses, 0, np.zeros((1, 3), np.int64), ids.copy(), numbers.view(np.int32).copy(), outside)


def _whole(place: Path) -> None:
    from penstock.jobs.compiling import whole_way

    whole_way(place)


_JOBS = {"rows": _rows, "features": _features, "kinds": _kinds, "default": _default, "device": _device, "whole": _whole}


def _called_by(job: str) -> None:
    """Do a job and print the kernels that it called."""
    from penstock.kernels.kernel_types import compiled_here

    with tempfile.TemporaryDirectory() as folder:
        _JOBS[job](Path(folder))
    print(*compiled_here(), sep="\n")


def _in_order(lines: list[str]) -> None:
    """Print the lines, those first that take longest to compile; of much the same time, by name.

    What only rows of other kinds need comes last, and so do synthetic logs.
    """
    from penstock.kernels.kernel_types import compile_line

    def place(line: str) -> tuple[bool, int, str]:
        began = time.process_time()
        compile_line(line.removeprefix(_SELDOM))
        return line.startswith(_SELDOM), -round(time.process_time() - began), line

    print(*(line.removeprefix(_SELDOM) for line in sorted(lines, key=place)), sep="\n")


def _output(arguments: list[str], told: str = "", **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        input=told,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    return done.stdout.splitlines()


def main() -> None:
    """See the module's words."""
    if sys.argv[1:2] == ["job"]:
        _called_by(sys.argv[2])
    elif sys.argv[1:2] == ["order"]:
        _in_order(sys.stdin.read().splitlines())
    else:
        found = {job: {line for line in _output(["job", job]) if line.startswith("cpu_")} for job in _JOBS}
        often = set().union(*(lines for job, lines in found.items() if job != "kinds"))
        told = {
            line if line in often and not line.startswith("cpu_synthetic") else _SELDOM + line
            for line in often | found["kinds"]
        }
        with tempfile.TemporaryDirectory() as empty:
            ordered = _output(["order"], "\n".join(sorted(told)), PENSTOCK_CACHE=empty)
        text = "".join(f"{line}\n" for line in ordered)
        if "--write" in sys.argv:
            LINES.write_text(text)
        else:
            print(text, end="")


if __name__ == "__main__":
    main()

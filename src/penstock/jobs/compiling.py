"""Kernels compiled ahead of the first job, by small jobs: at the end of an installation, or in a container's image."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from importlib import util
from pathlib import Path

from penstock.core.errors import PenstockError

_ROWS, _VALUES = 3_000, 5_000  # so many values of a column that its table has to grow


def compile_ahead() -> float:
    """Have every kernel that text to features, training and scoring use compiled and kept; the seconds it took.

    Raw rows, ready features and rows of other kinds (large ids, text, gaps, lists) are a process each, which compiles
    what the others do not begin with. A last one then does the whole, which compiles what is left and shows that it
    works.

    Raises:
        PenstockError: one of the jobs failed.
    """
    began = time.perf_counter()
    has_torch = util.find_spec("torch") is not None
    _run(["rows", "features", "kinds"] if has_torch else ["rows"])
    if has_torch:
        _run(["whole"])
    return time.perf_counter() - began


def _run(parts: list[str]) -> None:
    """Parts side by side, each in a process of its own."""
    command = [sys.executable, "-m", __name__]
    started = [
        subprocess.Popen([*command, part], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for part in parts
    ]
    said = [process.communicate()[1] for process in started]
    for part, process, words in zip(parts, started, said, strict=True):
        if process.returncode:
            raise PenstockError(f"compiling ahead failed ({part}): {(words.strip().splitlines() or ['no words'])[-1]}")


def _rows(place: Path) -> None:
    from penstock.data import synthetic
    from penstock.etl import presets
    from penstock.jobs.etl import EtlJob

    made = synthetic.criteo(place / "day.tsv", _ROWS, cardinalities=_VALUES, progress=False)
    EtlJob([str(made.path)], str(place / "features"), recipe=presets.load("criteo"), progress=False).run()


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


def _whole(place: Path) -> None:
    from penstock.jobs.demo import run_demo
    from penstock.jobs.scoring import evaluate_model, predict_files

    run_demo(None, _ROWS, place / "demo", progress=False, cardinality_cap=50)
    rows = place / "demo" / "clicks.tsv"
    evaluate_model(place / "demo", rows, progress=False)
    predict_files(place / "demo", rows, place / "scores.parquet", progress=False)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="penstock-compile-") as folder:
        {"rows": _rows, "features": _features, "kinds": _kinds, "whole": _whole}[sys.argv[1]](Path(folder))

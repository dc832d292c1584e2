"""On a machine's first run a second process compiles what training will need, while the first makes features.

numba compiles one kernel at a time in a process, and a kernel is compiled by one process only (see
`penstock.kernels.kernel_cache`): whoever needs it meanwhile waits for that one kernel.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from penstock.core.runtime.threads import available_cores
from penstock.data import Dataset
from penstock.embedding import Adagrad, Store, slots_from_schema
from penstock.jobs.first_run import is_first_run
from penstock.loader import Loader

ROWS = 256


@contextmanager
def compiled_beside() -> Iterator[subprocess.Popen[bytes] | None]:
    """A block during which another process compiles the kernels of loaders and stores.

    Yields:
        The process, which ends with the block at the latest; None where kernels are compiled or one core is all.
    """
    if not is_first_run() or available_cores() < 2:
        yield None
        return
    quiet = subprocess.DEVNULL
    with tempfile.TemporaryDirectory() as place:  # this process's: the other one may be ended in the middle
        command = [sys.executable, "-m", "penstock.jobs.compiling", place]
        process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def compile_for_training(folder: Path) -> None:
    """Read a few rows of features, look their ids up and train them: all as a job does it, so the same is compiled.

    Args:
        folder: for the rows and the store; it may be removed afterwards.
    """
    numbers = np.arange(ROWS)
    columns = {
        "user": numbers.astype(np.int32),
        "price": numbers.astype(np.float32),
        "click": (numbers % 2).astype(np.int8),
    }
    data = Dataset(columns).with_roles(categorical=["user"], continuous=["price"], label=["click"])
    store = Store(slots_from_schema(data.schema, 4), Adagrad())
    try:
        for train in (True, False):
            found = store.lookup({"user": columns["user"]}, train=train)
            if train:
                store.update(found, {"user": np.ones((ROWS, 4), np.float32)})
        data.to_parquet(folder / "rows", progress=False)
        for _ in Loader(
            folder / "rows", ROWS // 4, shuffle=True, categorical=["user"], continuous=["price"], labels=["click"]
        ):
            pass
        store.save(folder / "store")
        Store.open(folder / "store").close()
    finally:
        store.close()


if __name__ == "__main__":
    compile_for_training(Path(sys.argv[1]))

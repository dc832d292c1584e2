"""What the old names cost: loaders under NVTabular's and Merlin's names against the native ones on the same file.

    python benchmarks/compat.py [--rows 1000000] [--batch 65536] [--rounds 20]

The file is Criteo-like: 26 int32 ids, 13 float32 numbers, a float32 label. `compat/overhead` is `TorchAsyncItr` inside
`DLDataLoader` (three packed tensors, shuffled) against the native torch loader with the same layout inside torch's
`DataLoader`. The forms of later releases and Keras are in the table beside it, each against its native counterpart. A
ratio of 0.95 is the least that is promised. `cpu_ratio` compares the processor time of all threads, not the clock,
which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from penstock.loader.keras import Loader as KerasLoader  # before TensorFlow, so that torch can be used beside it

# isort: split
from harness import Claim, best_of, report
from torch.utils.data import DataLoader

from loader import CATEGORICAL, CONTINUOUS, write_file
from penstock.compat import settings
from penstock.compat.merlin.dataloader import torch as merlin
from penstock.compat.nvtabular import Dataset
from penstock.compat.nvtabular.loader import tensorflow as old_keras
from penstock.compat.nvtabular.loader import torch as old_torch
from penstock.data import Dataset as NativeDataset
from penstock.loader.torch import Loader

Pair = tuple[Callable[[], Iterable], Callable[[], Iterable]]


def pairs(path: str, batch: int) -> dict[str, Pair]:
    """`{what: (compat, native)}`, each a function that makes the loader."""
    old = {"cats": CATEGORICAL, "conts": CONTINUOUS, "labels": ["label"]}
    own: dict[str, Any] = {
        "categorical": sorted(CATEGORICAL), "continuous": sorted(CONTINUOUS), "labels": ["label"], "shuffle": True,
        "parts_per_chunk": 1,
    }  # fmt: skip
    named = {"categorical": CATEGORICAL, "continuous": CONTINUOUS, "labels": ["label"]}
    columns = {"label_names": ["label"], "cat_names": CATEGORICAL, "cont_names": CONTINUOUS, "shuffle": True}
    data = NativeDataset(path)  # partitions of the same size on both sides
    roles = data.schema.with_roles(categorical=CATEGORICAL, continuous=CONTINUOUS, label=["label"])
    with_roles = data.with_schema(roles)

    def itr() -> Any:
        return old_torch.TorchAsyncItr(Dataset(path), batch_size=batch, shuffle=True, **old)

    def in_the_age(age: str) -> Callable[[], Iterable]:
        def make() -> Iterable:
            with settings.using(nvtabular=age):
                return itr()

        return make

    return {
        "overhead": (
            lambda: old_torch.DLDataLoader(itr(), batch_size=None, collate_fn=lambda b: b, num_workers=0),
            lambda: DataLoader(Loader(data, batch, layout="packed", **own), batch_size=None, collate_fn=lambda b: b),
        ),
        "torch_1.0": (in_the_age("1.0"), lambda: Loader(data, batch, dtypes={"categorical": "int64"}, **own)),
        "torch_latest": (in_the_age("latest"), lambda: Loader(data, batch, **own)),
        "merlin": (
            lambda: merlin.Loader(Dataset(with_roles), batch, shuffle=True),
            lambda: Loader(with_roles, batch, shuffle=True, parts_per_chunk=1),
        ),
        "keras": (
            lambda: old_keras.KerasSequenceLoader(Dataset(path), batch, **columns),
            lambda: KerasLoader(data, batch, shuffle=True, **named),
        ),
    }


class Epoch:
    """One epoch of a loader, again and again; `cpu` is the least processor time that it took."""

    def __init__(self, make: Callable[[], Iterable]) -> None:
        self.loader, self.cpu = make(), float("inf")

    def run(self) -> None:
        start = time.process_time()
        for _ in self.loader:
            pass
        self.cpu = min(self.cpu, time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    claims = []
    with tempfile.TemporaryDirectory(prefix="penstock-compat-") as folder:
        path = Path(folder) / "clicks.parquet"
        write_file(path, options.rows)
        for name, (compat, native) in pairs(str(path), options.batch).items():
            epochs = {"compat": Epoch(compat), "native": Epoch(native)}
            best = best_of({who: epoch.run for who, epoch in epochs.items()}, options.rounds)
            rates = {who: options.rows / seconds for who, seconds in best.items()}
            cpu = {"cpu_ratio": round(epochs["native"].cpu / epochs["compat"].cpu, 3)}
            claims.append(Claim(f"compat/{name}", "rows/s", rates["compat"], {"native": rates["native"]}, extra=cpu))
    report("Old names against native ones", claims)


if __name__ == "__main__":
    main()

"""HugeCTR's binary format: samples of float labels, float numbers and one id for each slot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.compat.merlin.io._frames import as_pandas
from penstock.compat.merlin.schema import Schema
from penstock.core.artefact import replacing
from penstock.core.errors import DataError, ParameterError
from penstock.core.params import Int, check
from penstock.data.dataset import Dataset

__all__ = ["HugeCTRWriter"]

KEYSET_FILE = "_hugectr.keyset"


class HugeCTRWriter:
    """Spreads the rows of every frame over `num_out_files` files; `close` writes their headers and lists.

    Args:
        out_dir: where the files go.
        num_out_files: how many there are.
        suffix: of the files.
        cats, conts, labels: the columns of a sample, in this order of kinds: labels, conts, cats.
        options: taken for the sake of old code.

    >>> import pandas as pd, tempfile
    >>> writer = HugeCTRWriter(tempfile.mkdtemp(), num_out_files=1, cats=["c"], conts=["x"], labels=["y"])
    >>> writer.add_data(pd.DataFrame({"c": [7], "x": [0.5], "y": [1]}))
    >>> [Path(path).stat().st_size for path in writer.close()]
    [80]
    """

    def __init__(
        self,
        out_dir: Any,
        num_out_files: int = 30,
        suffix: str = ".data",
        cats: Sequence[str] | None = None,
        conts: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        check("num_out_files", num_out_files, Int(min=1))
        self.out_dir = Path(out_dir)
        self.cats, self.conts, self.labels = (list(names or ()) for names in (cats, conts, labels))
        self.data_paths = [str(self.out_dir / f"{number}{suffix}") for number in range(num_out_files)]
        self._samples: list[list[bytes]] = [[] for _ in self.data_paths]
        self.num_samples = [0] * num_out_files

    def set_col_names(self, labels: Any, cats: Any, conts: Any) -> None:
        """Say what columns are to a model."""
        self.labels, self.cats, self.conts = (list(names or ()) for names in (labels, cats, conts))

    def add_data(self, df: Any) -> None:
        """Take a pandas frame's rows."""
        if not self.cats or not self.labels:
            raise ParameterError("HugeCTR's samples have labels and ids: name columns in labels= and cats=")
        samples = self._sample_bytes(df)
        for number, rows in enumerate(np.array_split(samples, len(self.data_paths))):
            self._samples[number].append(rows.tobytes())
            self.num_samples[number] += len(rows)

    def _sample_bytes(self, df: Any) -> np.ndarray:
        kinds = [("labels", "<f4", (len(self.labels),)), ("conts", "<f4", (len(self.conts),))]
        slot = np.dtype([("count", "<i4"), ("id", "<u4")])
        out = np.zeros(len(df), dtype=[*kinds, ("slots", slot, (len(self.cats),))])
        out["labels"], out["conts"] = df[self.labels].to_numpy(), df[self.conts].to_numpy()
        ids = df[self.cats].to_numpy()
        if ids.size and (ids.min() < 0 or ids.max() > np.iinfo(np.uint32).max):
            raise DataError(f"ids of HugeCTR are unsigned and have 32 bits, got {ids.min()} to {ids.max()}")
        out["slots"]["count"], out["slots"]["id"] = 1, ids
        return out

    def close(self) -> list[str]:
        """Write the files, and the list of them; gives their paths."""
        self.out_dir.mkdir(parents=True, exist_ok=True)
        for path, rows, count in zip(self.data_paths, self._samples, self.num_samples, strict=True):
            header = np.array([0, count, len(self.labels), len(self.conts), len(self.cats), 0, 0, 0], dtype="<i8")
            with replacing(path) as partial:
                partial.write_bytes(b"".join([header.tobytes(), *rows]))
        listed = "\n".join([str(len(self.data_paths)), *self.data_paths])
        (self.out_dir / "_file_list.txt").write_text(f"{listed}\n")
        return self.data_paths


def write_keys(data: Dataset, folder: Any) -> None:
    """Write `_hugectr.keyset`: every id that a column's embedding has a row for, as four bytes, the highest first."""
    sizes = [column.properties.get("embedding_sizes") or {} for column in Schema.from_native(data.schema)]
    known = [int(size["cardinality"]) for size in sizes if "cardinality" in size]
    if not known:
        raise ParameterError("write_hugectr_keyset needs columns with a number of ids: put them through Categorify")
    with replacing(Path(folder) / KEYSET_FILE) as partial:
        partial.write_bytes(b"".join(np.arange(count + 1, dtype=">u4").tobytes() for count in known))


def write(
    data: Dataset, folder: Any, cats: Sequence[str], conts: Sequence[str], labels: Sequence[str], num_files: int
) -> None:
    """Write a data set's rows in HugeCTR's format, with `_file_list.txt` and `_metadata.json` beside them."""
    writer = HugeCTRWriter(folder, num_files, cats=cats, conts=conts, labels=labels)
    for frame in data.iter_frames([*labels, *conts, *cats]):
        writer.add_data(as_pandas(frame))
    writer.close()
    stats = [
        {"file_name": Path(path).name, "num_rows": rows}
        for path, rows in zip(writer.data_paths, writer.num_samples, strict=True)
    ]
    order = {name: place for place, name in enumerate(data.schema.names)}
    columns = {
        kind: [{"col_name": name, "index": order[name]} for name in names]
        for kind, names in (("cats", cats), ("conts", conts), ("labels", labels))
    }
    (Path(folder) / "_metadata.json").write_text(json.dumps({"file_stats": stats, **columns}))

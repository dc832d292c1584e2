"""`merlin.io.writer`: frames written to several parquet files as they come."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.compat.merlin.io._frames import native_shuffle, shuffle_df
from penstock.compat.merlin.io.writing import describe, write_lists
from penstock.core.errors import DataError, ParameterError
from penstock.core.params import Int, check
from penstock.core.schema import Schema
from penstock.data.dataset import Dataset

__all__ = ["ParquetWriter", "writer_factory"]


class ParquetWriter:
    """Spreads the rows of every frame over `num_out_files` files; `close` writes what lies beside them.

    Args:
        out_dir: where the files go.
        num_out_files: how many there are.
        num_threads, use_guid, bytes_io, cpu, fs: taken and without meaning, but for `use_guid`, which makes the names
            of the files unique.
        cats, conts, labels: what columns are to a model.
        shuffle: permute the rows of each frame.
        fns: names of the files, without their suffix.
        suffix: of the files.

    >>> import pandas as pd, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> writer = ParquetWriter(folder, num_out_files=2)
    >>> writer.add_data(pd.DataFrame({"x": [1, 2, 3]}))
    >>> writer.close()[0]["file_stats"]
    [{'file_name': '0.parquet', 'num_rows': 2}, {'file_name': '1.parquet', 'num_rows': 1}]
    """

    def __init__(
        self,
        out_dir: Any,
        num_out_files: int = 30,
        num_threads: int = 0,
        cats: Sequence[str] | None = None,
        conts: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        shuffle: Any = None,
        fs: Any = None,
        use_guid: bool = False,
        bytes_io: bool = False,
        cpu: bool = True,
        fns: Any = None,
        suffix: str | None = ".parquet",
    ) -> None:
        check("num_out_files", num_out_files, Int(min=1))
        self.out_dir, self.shuffle = Path(out_dir), native_shuffle(shuffle)
        self.set_col_names(labels, cats, conts)
        stems = [fns] if isinstance(fns, str) else list(fns or ())
        if stems and len(stems) != num_out_files:
            raise ParameterError(f"fns names {len(stems)} files, and num_out_files is {num_out_files}")
        mark = f"{uuid.uuid4().hex[:8]}." if use_guid else ""
        stems = stems or [f"{mark}{number}" for number in range(num_out_files)]
        self.names = [stem if suffix and stem.endswith(suffix) else f"{stem}{suffix or ''}" for stem in stems]
        self.data_paths = [str(self.out_dir / name) for name in self.names]
        self.num_samples = [0] * num_out_files
        self._writers: list[pq.ParquetWriter] = []
        self._schema: pa.Schema | None = None

    def set_col_names(self, labels: Any, cats: Any, conts: Any) -> None:
        """Say what columns are to a model."""
        self.labels, self.cats, self.conts = (list(names or ()) for names in (labels, cats, conts))

    def add_data(self, df: Any) -> None:
        """Write a pandas frame's rows."""
        frame = shuffle_df(df) if self.shuffle else df
        table = pa.Table.from_pandas(frame, schema=self._schema, preserve_index=False)
        if self._schema is None:
            self._schema = table.schema
            self.out_dir.mkdir(parents=True, exist_ok=True)
            self._writers = [pq.ParquetWriter(path, table.schema) for path in self.data_paths]
        for number, rows in enumerate(np.array_split(np.arange(table.num_rows), len(self._writers))):
            part = table.slice(rows[0] if len(rows) else 0, len(rows))
            if part.num_rows:
                self._writers[number].write_table(part)
                self.num_samples[number] += part.num_rows

    def close(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Finish the files; gives what is known of them, and what only some formats have."""
        if self._schema is None:
            raise DataError(f"nothing was written to {self.out_dir}: add_data comes before close")
        for writer in self._writers:
            writer.close()
        data = Dataset(self.data_paths).with_roles(categorical=self.cats, continuous=self.conts, label=self.labels)
        describe(data, self.out_dir)
        write_lists(self.out_dir, self.names, self.out_dir, data)
        return self.package_general_metadata(data.schema), {}

    def package_general_metadata(self, schema: Schema | None = None) -> dict[str, Any]:
        """The files with their rows, and the columns by role with their places."""
        order = list(self._schema.names) if self._schema is not None else []
        columns = {"cats": self.cats, "conts": self.conts, "labels": self.labels}
        stats = [{"file_name": n, "num_rows": r} for n, r in zip(self.names, self.num_samples, strict=True)]
        return {
            "data_paths": self.data_paths,
            "file_stats": stats,
            **{k: [{"col_name": n, "index": order.index(n)} for n in names] for k, names in columns.items()},
        }


def writer_factory(
    output_format: str,
    output_path: Any,
    out_files_per_proc: int | None,
    shuffle: Any,
    use_guid: bool = False,
    bytes_io: bool = False,
    num_threads: int = 0,
    cpu: bool = True,
    fns: Any = None,
    suffix: str | None = ".parquet",
) -> ParquetWriter | None:
    """A writer of a format; None for none.

    >>> writer_factory(None, "unused", 1, None) is None
    True
    """
    if output_format is None:
        return None
    if output_format != "parquet":
        raise ParameterError(f"output_format must be 'parquet' here, got {output_format!r}")
    return ParquetWriter(
        output_path, out_files_per_proc or 1, num_threads, shuffle=shuffle, use_guid=use_guid, fns=fns, suffix=suffix
    )

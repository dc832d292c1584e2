"""The rules of `penstock migrate`: how each old name is written natively, read from one YAML file.

>>> rules()["nvtabular.ops.Clip"].to
'penstock.ops.Clip'
>>> rules()["nvtabular.loader.torch.TorchAsyncItr"].rename["cats"]
'categorical'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import yaml

from penstock.compat import names
from penstock.core.errors import DataError, suggest


@dataclass(frozen=True)
class Rule:
    """One old name: where it went and what becomes of the arguments of a call."""

    to: str
    is_module: bool = False
    positional: int | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    add: Mapping[str, str] = field(default_factory=dict)
    drop: Mapping[str, str] = field(default_factory=dict)
    ask: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def is_literal(self) -> bool:
        """Whether the old name becomes a value and not another name."""
        return self.to.startswith('"')


# Attributes of objects whose type a script does not spell out: a person decides.
ATTRIBUTES = {
    "to_ddf": "Dataset.to_polars() or .to_pandas() give the rows; Workflow(..., engine=client) runs on Dask",
    "to_iter": "Dataset.iter_frames() gives polars frames",
    "to_npy": "Dataset.to_polars().to_numpy() gives the array",
    "npartitions": "num_partitions",
    "out_files_per_proc": "to_parquet(num_files=…)",
    "output_files": "to_parquet(num_files=…)",
    "output_path": "to_parquet(path, …): the argument is called path",
    "partition_on": "to_parquet(partition_by=…)",
    "preserve_files": "to_parquet writes files of its own; num_files= says how many",
}


@cache
def rules() -> dict[str, Rule]:
    """Every rule, by old name."""
    file = resources.files(names.__name__) / "native.yaml"
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    return {old: _rule(old, entry) for old, entry in content.items()}


def _rule(old: str, entry: Mapping[str, Any]) -> Rule:
    known = list(Rule.__dataclass_fields__)
    if unknown := [key for key in entry if key not in known]:
        raise DataError(f"native.yaml: {old} has a key {unknown[0]!r}{suggest(unknown[0], known, 'keys')}")
    return Rule(**entry)

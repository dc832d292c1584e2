"""The description of a data set, in the form that `data_gen` draws data from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.compat.merlin.io.dataset import Dataset
from penstock.compat.nvtabular.ops._learned import DataStats
from penstock.compat.nvtabular.workflow.workflow import Workflow
from penstock.core.artefact import replacing

__all__ = ["DatasetInspector"]

_FIELDS = {
    "cats": {"min_entry_size": "min", "max_entry_size": "max", "avg_entry_size": "mean", "cardinality": "cardinality"},
    "conts": {"min_val": "min", "max_val": "max", "mean": "mean", "std": "std"},
    "labels": {"cardinality": "cardinality"},
}


class DatasetInspector:
    """Writes the statistics of a data set's columns as JSON.

    >>> import pandas as pd
    >>> data = Dataset(pd.DataFrame({"c": ["x", "yy"], "x": [0.5, 1.5], "y": [0, 1]}))
    >>> DatasetInspector().inspect(data, {"cats": ["c"], "conts": ["x"], "labels": ["y"]}, "categories/described.json")
    >>> json.loads(Path("categories/described.json").read_text())["cats"]["c"]["max_entry_size"]
    2
    """

    def __init__(self, client: Any = None) -> None:
        self.client = client

    def inspect(self, dataset: Any, columns_dict: Mapping[str, Sequence[str]], output_file: Any) -> None:
        """Look at the columns named under cats, conts and labels."""
        data = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
        stats = DataStats()
        names = [name for kind in _FIELDS for name in columns_dict.get(kind, ())]
        Workflow(ColumnSelector(names) >> stats, client=self.client).fit(data)
        found: dict[str, Any] = {"num_rows": data.num_rows}
        for kind, fields in _FIELDS.items():
            found[kind] = {name: _entry(stats.output[name], fields) for name in columns_dict.get(kind, ())}
        file = Path(output_file)
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as partial:
            partial.write_text(json.dumps(found))


def _entry(stats: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    taken = {field: stats[name] for field, name in fields.items() if name in stats}
    return {"dtype": stats["dtype"], **taken, "per_nan": stats["per_nan"]}

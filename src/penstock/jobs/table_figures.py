"""Embedding tables as plain data: rows, memory, how often an id was there already, and which ids are hot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from penstock.core.errors import PenstockError
from penstock.core.schema import ColumnSchema
from penstock.etl import Workflow
from penstock.etl.graph import ancestors
from penstock.etl.ops import Categorify
from penstock.report.plain import plain

NUM_HOT = 5
_TOTALS = ("rows", "bytes", "payload_bytes", "evicted", "waiting", "lookups", "updates", "restarts")


def store_tables(store: Any) -> dict[str, Any] | None:
    """What a store, or a module that holds tables (`EmbeddingTables`, `FusedEmbeddings`), says of itself.

    >>> from penstock.embedding import Adagrad, SlotConfig, Store
    >>> with Store([SlotConfig("user", dim=4)], Adagrad()) as store:
    ...     for _ in range(2):
    ...         _ = store.lookup({"user": [7, 8, 7]})
    ...     found = store_tables(store)
    >>> found["tables"][0]["name"], found["tables"][0]["rows"], found["tables"][0]["hit_rate"]
    ('user', 2, 0.5)
    """
    if store is None:
        return None
    told = store.stats() if callable(getattr(store, "stats", None)) else None
    if not isinstance(told, Mapping) or "tables" not in told:
        return _module_tables(store, told)
    found = {name: told[name] for name in _TOTALS if name in told}
    optimizer = getattr(store, "optimizer", None)
    found.update(kind=type(store).__name__, storage=getattr(store, "storage", None))
    found["optimizer"] = None if optimizer is None else type(optimizer).__name__
    found["tables"] = [_table(name, figures) for name, figures in told["tables"].items()]
    figures: dict[str, Any] = plain(found)
    return figures


def _table(name: str, figures: Mapping[str, int]) -> dict[str, Any]:
    distinct, evaluated = figures["distinct"], figures["evaluated"]
    known = distinct - figures["inserted"] - figures["absent"]
    return {
        "name": name,
        **{key: figures[key] for key in ("rows", "dim", "bytes", "payload_bytes")},
        "lookups": figures["ids"],
        # Of the distinct ids of a batch, the share that had a row already; and in evaluation, the share that had none.
        "hit_rate": known / distinct if distinct else None,
        "missed": figures["missed"] / evaluated if evaluated else None,
        "ids_per_row": figures["ids"] / distinct if distinct else None,
    }


def _module_tables(module: Any, told: Any) -> dict[str, Any] | None:
    """Tables on the device: their sizes, and how often a cache in front of them had the row."""
    sizes, dim = getattr(module, "sizes", None), getattr(module, "dim", None)
    if not sizes or dim is None:
        return None
    by_name = dict(sizes) if isinstance(sizes, Mapping) else dict(zip(module.names, sizes, strict=True))
    if isinstance(told, Mapping):
        by_name = told.get("rows_by_table", by_name)  # of hashed tables, which have no sizes
    nothing = {"payload_bytes": None, "lookups": None, "hit_rate": None, "missed": None, "ids_per_row": None}
    width = dim * (module.weight.element_size() if hasattr(module, "weight") else 4)
    tables = [{"name": n, "rows": rows, "dim": dim, "bytes": width * rows, **nothing} for n, rows in by_name.items()]
    found = {"kind": type(module).__name__, "rows": sum(by_name.values()), "bytes": sum(t["bytes"] for t in tables)}
    if isinstance(told, Mapping) and told.get("ids"):
        found["cache"] = {"rows": told["resident"], "hit_rate": 1 - told["brought_in"] / told["ids"]}
    figures: dict[str, Any] = plain({**found, "tables": tables})
    return figures


def hot_ids(features: Mapping[str, Any], workflow: Workflow | None = None) -> dict[str, list[dict[str, Any]]]:
    """For each category the most frequent ids, their share of the rows, and the raw values behind them.

    `features` is a profile of the data set that is trained on.
    """
    hot: dict[str, list[dict[str, Any]]] = {}
    for column in features["columns"]:
        histogram = column["histogram"]
        if column["role"] != "categorical" or histogram["scale"] != "frequency":
            continue
        filled = max(1.0, features["sampled_rows"] * (1 - column["null_share"]) * (column.get("mean_length") or 1))
        pairs = list(zip(histogram["values"], histogram["counts"], strict=True))[:NUM_HOT]
        hot[column["name"]] = [
            {"id": v, "value": None, "meaning": None, "share": min(1.0, n / filled)} for v, n in pairs
        ]
    if workflow is not None:
        _name_values(hot, workflow)
    return hot


def _name_values(hot: dict[str, list[dict[str, Any]]], workflow: Workflow) -> None:
    """Fill in the raw values that codes stand for, where the workflow can tell."""
    inputs = workflow.input_schema
    for name, entries in hot.items():
        column = workflow.output_schema.get(name)
        if column is None or not all(isinstance(entry["id"], int) for entry in entries):
            continue
        ids = [entry["id"] for entry in entries]
        held = [ids] if column.is_list else ids  # a list that has them all is decoded as any other
        codes = pl.DataFrame({name: pl.Series(held, dtype=column.polars_dtype)})
        try:
            values = workflow.inverse_transform(codes, [name])[name].to_list()
            values = values[0] if column.is_list else values
        except (PenstockError, pl.exceptions.PolarsError, KeyError, IndexError):  # not every operator can be undone
            continue
        raw = inputs.get(name)
        as_hex = raw is not None and raw.properties.get("text") == "hex"
        reserved = _reserved(workflow, column)
        for entry, value in zip(entries, values, strict=True):
            known = value is not None and value != entry["id"]
            entry["meaning"] = None if known else reserved(entry["id"])
            entry["value"] = (f"{value:08x}" if as_hex and isinstance(value, int) else str(value)) if known else None


def _reserved(workflow: Workflow, column: ColumnSchema) -> Callable[[int], str | None]:
    """What the codes stand for that are no value of the vocabulary."""
    vocabulary = column.properties.get("vocabulary")
    for node in ancestors([workflow.output]):
        op = node.operator
        if isinstance(op, Categorify) and op.is_fitted and vocabulary in op.vocabularies_:
            codes = op.codes(vocabulary).shifted(op.shifts_[vocabulary])
            rare = "missing or rare" if codes.null == codes.oov else "rare values"
            return lambda code: rare if codes.oov <= code < codes.first else "missing" if code == codes.null else None
    return lambda code: None

"""Profiles and reports drawn in the terminal with rich."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.report.words import data_size, extremes, short

_BLOCKS = " ▁▂▃▄▅▆▇█"


def sparkline(counts: Sequence[int]) -> str:
    """Counts as bars of one line; anything above zero shows.

    >>> sparkline([0, 1, 50, 100])
    ' ▁▄█'
    """
    top = max(counts, default=0)
    last = len(_BLOCKS) - 1
    return "".join(_BLOCKS[0 if not n else max(1, round(n / top * last))] for n in counts)


def show(profile: Mapping[str, Any], console: Console) -> None:
    """Whatever `inspect` collected."""
    if profile["kind"] == "workflow":
        _show_workflow(profile, console)
    else:
        _show_dataset(profile, console)


def _show_dataset(profile: Mapping[str, Any], console: Console) -> None:
    rows = f"{profile['rows']:,}" if profile["rows"] is not None else f"about {profile['estimated_rows']:,}"
    size = f"{len(profile['columns'])} columns, {profile['partitions']} partition(s), {data_size(profile['bytes'])}"
    console.print(f"{rows} rows, {size}")
    if profile["is_sample"]:
        console.print(f"Counted over a sample of {profile['sampled_rows']:,} rows, spread over the data.")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("column", "dtype", "role"):  # whole words, however narrow the terminal: the range gives way
        longest = max((len(str(c["name" if head == "column" else head])) for c in profile["columns"]), default=0)
        table.add_column(head, no_wrap=True, overflow="ellipsis", min_width=min(longest, 24))
    for head in ("distinct", "codes", "null"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("histogram", no_wrap=True)
    table.add_column("range or most frequent", overflow="ellipsis", no_wrap=True)
    for column in profile["columns"]:
        table.add_row(
            escape(column["name"]), column["dtype"], column["role"], f"{column['distinct']:,}",
            _number(column["cardinality"]), f"{column['null_share']:.1%}",
            sparkline(column["histogram"]["counts"]), escape(_range(column)),
        )  # fmt: skip
    console.print(table)


def _range(column: Mapping[str, Any]) -> str:
    histogram = column["histogram"]
    lists = f"{column['mean_length']:.1f} a list; " if column.get("mean_length") is not None else ""
    if histogram["scale"] == "frequency":
        values = ", ".join(str(v)[:24] for v in histogram["values"][:3])
        return lists + (values or "no values")
    if not histogram["counts"]:
        return lists + "no values"
    scale = " (log bins)" if histogram["scale"] == "log" else ""
    return lists + extremes(column["min"], column["max"], column["mean"], " … ") + scale


def _show_workflow(profile: Mapping[str, Any], console: Console) -> None:
    console.print(f"Fitted workflow: {len(profile['inputs'])} columns in, {len(profile['outputs'])} out")
    nodes = plain_table("node", "from", "operators")
    for name, node in profile["recipe"]["nodes"].items():
        origin = _listed(node["from"]) if "from" in node else _columns(node["columns"])
        nodes.add_row(escape(name), escape(origin), escape(" → ".join(map(_operator, node.get("ops", ())))))
    console.print(nodes)
    console.print(schema_table(profile["outputs"]))


def _operator(item: Any) -> str:
    if isinstance(item, str):
        return item
    name, arguments = next(iter(item.items()))
    shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return f"{name}({shown if len(shown) < 80 else shown[:77] + '…'})"


def _columns(columns: Any) -> str:
    return (
        _listed([n if isinstance(n, str) else "+".join(n) for n in columns])
        if isinstance(columns, list)
        else str(columns)
    )


def _listed(names: Any) -> str:
    names = [names] if isinstance(names, str) else list(names)
    return ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:3])} … {names[-1]} ({len(names)})"


def schema_table(columns: Sequence[Mapping[str, Any]]) -> Table:
    """Columns with their cardinality and the size of their embedding table."""
    table = plain_table("column", "dtype", "role")
    table.add_column("cardinality", justify="right")
    table.add_column("embedding", justify="right")
    for column in columns:
        rows, dimension = column["embedding"] or (None, None)
        size = "" if rows is None else f"{rows:,} × {dimension}"
        table.add_row(escape(column["name"]), column["dtype"], column["role"], _number(column["cardinality"]), size)
    return table


def show_etl(figures: Mapping[str, Any], console: Console) -> None:
    """The closing summary of an ETL run."""
    console.print(schema_table(figures["columns"]))
    console.print(
        f"{figures['rows']:,} rows in {figures['seconds']:.1f} s ({short(figures['rows_per_second'])} rows/s), "
        f"{figures['files']} file(s), bad lines: {figures['bad_lines']:,}"
    )
    if figures["bad_lines"]:
        console.print(f"the first bad line: {figures['first_bad_line']}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"features: {figures['output']}", markup=False, highlight=False, soft_wrap=True)
    if figures["workflow"] is not None:
        console.print(f"workflow: {figures['workflow']}", markup=False, highlight=False, soft_wrap=True)


def plain_table(*columns: str) -> Table:
    """A table with a line under its head and nothing else."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _number(number: int | None) -> str:
    return "" if number is None else f"{number:,}"

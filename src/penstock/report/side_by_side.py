"""Several runs in the terminal: a column for each."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape

from penstock.core.metric_names import metric_title
from penstock.report.comparison import OTHER_ROWS, Reports, best_run, differing_settings, held_out_alike
from penstock.report.terminal import plain_table
from penstock.report.words import DASH, data_sizes, durations, whole


def show_comparison(reports: Reports, console: Console) -> None:
    """The figures of runs and the settings that differ; the best AUC and log loss stand out.

    Args:
        reports: the data of each run's `report.json`, by the run's name.
        console: where to.
    """
    shown = plain_table("")
    for name in reports:
        shown.add_column(escape(name), overflow="fold", justify="right")
    for title, cells in _figures(reports):
        shown.add_row(title, *cells)
    console.print(shown)
    if not held_out_alike(reports):
        console.print(f"the runs were {OTHER_ROWS}", soft_wrap=True)
    differing = differing_settings(reports)
    if not differing:
        console.print("the runs were asked for the same")
        return
    settings = plain_table("settings that differ")
    for name in reports:
        settings.add_column(escape(name), overflow="fold")
    for name, values in differing.items():
        settings.add_row(escape(name), *map(escape, values))
    console.print(settings)


def _figures(reports: Reports) -> list[tuple[str, list[str]]]:
    heads = [report.get("headline") or {} for report in reports.values()]
    metrics = dict.fromkeys(name for head in heads for name in head.get("metrics") or {})
    out = []
    for name in metrics:
        best = best_run(reports, name, smaller=name == "log_loss") if name in ("auc", "log_loss") else None
        values = [(head.get("metrics") or {}).get(name) for head in heads]
        out.append((metric_title(name), [_metric(v, own == best) for v, own in zip(values, reports, strict=True)]))

    def all_of(figure: str) -> list[Any]:
        return [head.get(figure) for head in heads]

    out.append(("rows trained", [whole(value) for value in all_of("rows_trained")]))
    out.append(("rows/s", [whole(value) for value in all_of("rows_per_second")]))
    out.append(("time", durations(all_of("seconds"))))
    out.append(("embedding rows", [whole(value) for value in all_of("embedding_rows")]))
    out.append(("embedding memory", data_sizes(all_of("embedding_bytes"))))
    return out


def _metric(value: float | None, is_best: bool) -> str:
    if value is None:
        return DASH
    return f"[bold green]{value:.4f}[/]" if is_best else f"{value:.4f}"

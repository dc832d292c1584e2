"""The closing words of a training run, an evaluation or a prediction in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.core.metric_names import metric_title
from penstock.report.learning import best_words, constant_log_loss, notable_error, start_words
from penstock.report.words import outcome


def show_training(figures: Mapping[str, Any], console: Console) -> None:
    """What a training run has reached, where its time went, and where its model is."""
    rows, seconds = figures["rows"], figures["seconds"]
    table = _table()
    _add_metrics(table, figures)
    if figures["selected"]:
        table.add_row("weights", _selected(figures["selected"]))
    verdict = figures["learning"]
    table.add_row("learning", f"[bold]{verdict['kind']}[/]. {verdict['text']} {verdict['advice']}".rstrip())
    held_out = f", {rows['valid']:,} held out" if rows["valid"] is not None else ", none held out"
    table.add_row("rows", f"{rows['train']:,} to train on{held_out}")
    speed = f"{figures['rows_per_second']:,.0f} rows/s, " if figures["rows_per_second"] else ""
    table.add_row("training", f"{speed}{figures['steps']:,} steps, {figures['embedding_rows']:,} embedding rows")
    told = {name: time for name, time in seconds.items() if name != "total" and time}
    rest = seconds["total"] - sum(told.values())
    told |= {"starting and the rest": rest} if rest > 0.02 * seconds["total"] else {}
    stages = ", ".join(f"{name} {time:.1f}" for name, time in told.items())
    table.add_row("seconds", f"{seconds['total']:.1f}: {stages}")
    for example in figures["examples"]:
        table.add_row("a row with", f"{escape(outcome(example['label']))}: predicted {example['probability']:.3f}")
    table.add_row("model", escape(figures["model"]))
    console.print(table)


def show_evaluation(figures: Mapping[str, Any], console: Console) -> None:
    """How good a model is on some rows."""
    table = _table()
    clicked = figures["calibration"].get("clicked")
    constant = None if clicked is None else constant_log_loss(clicked, clicked)
    _add_metrics(table, {**figures, "labels": {"constant_log_loss": constant, "valid_share": clicked}})
    table.add_row("rows", f"{figures['rows']:,} in {figures['seconds']:.1f} s")
    calibration = figures["calibration"]
    if calibration["ratio"] is not None:
        table.add_row(
            "calibration",
            f"{calibration['ratio']:.3f}: predicted {calibration['predicted']:.4f}, "
            f"happened {calibration['clicked']:.4f}; expected error {calibration['expected_error']:.4f}",
        )
    unknown = {name: share for name, share in figures["unknown"].items() if share}
    worst = sorted(unknown, key=lambda name: -unknown[name])[:5]
    shares = ", ".join(f"{escape(name)} {_small(unknown[name])}" for name in worst)
    table.add_row("unknown categories", (shares + (" …" if len(unknown) > len(worst) else "")) or "none")
    console.print(table)
    bins = Table(box=None, pad_edge=False)
    for name in ("predicted", "happened", "rows"):
        bins.add_column(name, justify="right")
    for entry in calibration["bins"]:
        bins.add_row(f"{entry['predicted']:.4f}", f"{entry['clicked']:.4f}", f"{entry['rows']:,}")
    console.print(bins)


def _small(found: float) -> str:
    return f"{found:.1%}" if found >= 0.0005 else "under 0.1%"


def _add_metrics(table: Table, figures: Mapping[str, Any]) -> None:
    """A line for each metric; without any, one that says what AUC needs."""
    metrics = figures["metrics"] or {"auc": None}
    for name, figure in metrics.items():
        if name == "auc":
            table.add_row("AUC", _auc(figures))
        elif figure is not None:
            table.add_row(escape(metric_title(name)), f"{figure:.4f}{_beside(name, figures)}")


def _beside(name: str, figures: Mapping[str, Any]) -> str:
    """What a constant has, beside a log loss."""
    constant = (figures.get("labels") or {}).get("constant_log_loss")
    return f"; a constant has {constant:.4f}" if name == "log_loss" and constant is not None else ""


def _auc(figures: Mapping[str, Any]) -> str:
    auc, best = figures["auc"], figures.get("best_auc")
    if auc is None:
        ones = (figures.get("labels") or {}).get("valid_share")
        has_both = ones is not None and 0 < ones < 1
        return f"not known: {'predictions are no numbers' if has_both else 'it needs held-out rows with both labels'}"
    if best is None:
        return f"[bold green]{auc:.4f}[/]{_give_or_take(auc, figures)}"
    return f"[bold green]{auc:.4f}[/] of {best:.4f} reachable ({(auc - 0.5) / (best - 0.5):.0%} of the way from chance)"


def _give_or_take(auc: float, figures: Mapping[str, Any]) -> str:
    """How far luck may have carried it, where rows are so few that this shows."""
    rows, ones = figures["rows"], (figures.get("labels") or {}).get("valid_share")
    rows = rows["valid"] if isinstance(rows, Mapping) else rows
    error = notable_error(auc, rows, ones)
    return "" if error is None else f" ± {error:.2g} (standard error)"


def _selected(selected: Mapping[str, Any]) -> str:
    """Which evaluation the model is of, and why."""
    if selected.get("is_start"):
        return start_words(selected)
    if selected["epoch"] is None:
        where = f"of step {selected['step']:,}"
    else:
        where = f"of epoch {selected['epoch']} of {selected['epochs']} (step {selected['step']:,})"
    early = "; stopped early, as none was better since" if selected["stopped_early"] else ""
    return f"{where}, {best_words(selected)}{early if selected['by'] != 'last' else ''}"


def _table() -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(overflow="fold")
    return table

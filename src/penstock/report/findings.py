"""What `penstock doctor` found, in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.report.words import data_size


def show_findings(found: Mapping[str, Any], console: Console) -> None:
    """The findings in the terminal."""
    machine, test = found["machine"], found["self_test"]
    memory = f", {data_size(machine['memory_bytes'])} of memory" if machine["memory_bytes"] else ""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(
        "penstock", "", f"{found['penstock'] or 'not installed'} on Python {machine['python']}, {machine['system']}"
    )
    table.add_row("machine", "", f"{machine['cores']} cores, {escape(machine['processor'])}{memory}")
    table.add_row("GPU", "", escape(", ".join(machine["gpus"])) or "none that torch sees; everything runs on the CPU")
    table.add_row("disk", "", f"{data_size(machine['free_bytes'])} free in {escape(machine['temporary'])}")
    versions = ", ".join(f"{p['name']} {p['version']}" for p in found["packages"] if not p["problem"])
    wrong = any(p["problem"] for p in found["packages"])
    table.add_row("packages", _mark("broken" if wrong else "ok"), versions)
    for extra in found["extras"]:
        words = ", ".join(f"{name} {version}" for name, version in extra["versions"].items())
        words = words if extra["state"] == "installed" else escape(str(extra["command"]))
        table.add_row(f"extra {extra['name']}", _mark(extra["state"]), words)
    if test is not None:
        stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in test["seconds"].items() if stage != "total")
        partly = "" if test["trained"] or not test["ok"] else "; no training without torch"
        words = f"{test['seconds']['total']:.1f} s: {stages}{partly}"
        table.add_row("self-test", _mark("ok" if test["ok"] else "broken"), words)
    console.print(table)
    for problem in found["problems"]:
        console.print(f"[bold red]broken:[/] {escape(problem)}", highlight=False, soft_wrap=True)
    for hint in found["hints"]:
        console.print(f"[yellow]hint:[/] {escape(hint)}", highlight=False, soft_wrap=True)
    sound = "everything works" if test is not None else "nothing was found broken; the self-test was left out"
    console.print(f"[bold green]{sound}" if found["ok"] else "[bold red]something is broken")


def _mark(state: str) -> str:
    colours = {"ok": "green", "installed": "green", "missing": "dim", "outdated": "yellow", "broken": "red"}
    return f"[{colours[state]}]{'ok' if state == 'installed' else state}"

"""The scripts of this folder, run one after another, as one table, one page and one chart: what `penstock bench` calls.

Each script ends with one JSON line a claim; that line is all that is read here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ratio_chart import ratio_chart
from rich.console import Console
from rich.table import Table

from penstock.core import artefact
from penstock.core.errors import DataError, ParameterError, PenstockError
from penstock.core.progress import bar
from penstock.core.yaml_files import read_yaml
from penstock.report.machine import describe_machine
from penstock.report.terminal import plain_table

SUITE = "suite.yaml"
_BEGIN, _END = "<!-- written by penstock bench: begin -->", "<!-- written by penstock bench: end -->"
# Idle OpenMP threads must not spin beside what is measured, and nobody prints banners.
_QUIET = {
    "OMP_WAIT_POLICY": "PASSIVE", "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow",
}  # fmt: skip


def read_suite(folder: str | Path) -> dict[str, list[str]]:
    """The scripts of a benchmark folder and their arguments for a small run."""
    path = Path(folder) / SUITE
    if not path.is_file():
        raise DataError(f"{path} is not there; name the benchmarks folder of a clone with --folder")
    suite = read_yaml(path)
    for script in suite:
        if not (path.parent / script).is_file():
            raise DataError(f"{path} names {script}, which is not there")
    return {script: [str(a) for a in arguments or ()] for script, arguments in suite.items()}


def run_suite(
    folder: str | Path, only: Sequence[str] = (), *, full: bool = False, progress: bool | None = None
) -> dict[str, Any]:
    """Run the scripts and collect what they claim: `{"claims": […], "failed": {script: reason}, "seconds": …}`.

    `only` takes scripts (`loader` or `loader.py`); `full` runs them at the sizes that their figures are quoted with. A
    script that fails is named with its last line, and the others still run.
    """
    suite = read_suite(folder)
    known = [Path(script).stem for script in suite]
    for name in only:
        if Path(name).stem not in known:
            raise ParameterError(f"there is no benchmark {name!r}; there are {', '.join(known)}")
    chosen = [s for s in suite if not only or Path(s).stem in {Path(name).stem for name in only}]
    claims: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    began = time.perf_counter()
    with bar("benchmarks", len(chosen), unit="scripts", show=progress) as drawn:
        for script in chosen:
            drawn.describe(script)
            done = _run(Path(folder) / script, [] if full else suite[script])
            if done.returncode:
                failed[script] = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            claims += [{**claim, "script": script} for claim in _claims(done.stdout)]
            drawn.advance()
    return {"claims": claims, "failed": failed, "seconds": round(time.perf_counter() - began, 1)}


def _run(script: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script.resolve()), *arguments],
        capture_output=True,
        text=True,
        env={**_QUIET, **os.environ},
    )


def _claims(output: str) -> Iterator[dict[str, Any]]:
    for line in output.splitlines():
        if line.startswith('{"claim"'):
            yield json.loads(line)


def rows_of(claims: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str, str, float | None]]:
    """`(claim, Penstock's figure, peer, the peer's figure, ratio)`, one for each peer that was measured."""
    out = []
    for claim in claims:
        ours = f"{readable(claim['penstock'])} {claim['unit']}"
        measured = {peer: value for peer, value in claim["peers"].items() if value is not None}
        for peer, value in measured.items():
            out.append((_name(claim), ours, peer, readable(value), claim["ratios"].get(peer)))
        if not measured:
            out.append((_name(claim), ours, "", "", None))
    return out


def _name(claim: Mapping[str, Any]) -> str:
    """A claim with what tells it from others of its name.

    >>> _name({"claim": "embedding/train", "batch_size": 8192, "variant": "exact"})
    'embedding/train, exact, 8,192'
    """
    size = claim.get("batch_size") or claim.get("batch")
    parts = (claim.get("variant") or claim.get("optimizer"), f"{size:,}" if isinstance(size, int) else None)
    return ", ".join([claim["claim"], *(str(part) for part in parts if part)])


def readable(value: float) -> str:
    """
    >>> readable(12_345_678), readable(0.01234)
    ('12.3 M', '0.0123')
    """
    for limit, suffix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"


def show(found: Mapping[str, Any], console: Console) -> None:
    """One table, and what failed."""
    table: Table = plain_table("claim", "penstock", "peer")
    table.add_column("its figure", justify="right")
    table.add_column("ratio", justify="right")
    before = None
    for name, ours, peer, theirs, ratio in rows_of(found["claims"]):
        again = name == before
        style = "" if ratio is None else ("green" if ratio >= 1 else "yellow")
        shown = "" if ratio is None else f"[{style}]{ratio:.2f}[/]"
        table.add_row("" if again else name, "" if again else ours, peer, theirs, shown)
        before = name
    console.print(table)
    console.print(f"A ratio above 1: Penstock is better. {found['seconds']:.0f} s in all.")
    for script, reason in found["failed"].items():
        console.print(f"{script} failed: {reason}", markup=False, highlight=False, soft_wrap=True)


def write(found: Mapping[str, Any], docs: str | Path, machine: str) -> list[Path]:
    """Put the table into `docs/benchmarks.md` (between its marks) and the chart beside it; the files written."""
    page, chart = Path(docs) / "benchmarks.md", Path(docs) / "images" / "benchmarks.svg"
    if not page.is_file():
        raise DataError(f"{page} is not there; name the folder of the documentation with --docs, or use --no-write")
    text = page.read_text()
    if text.count(_BEGIN) != 1 or text.count(_END) != 1 or text.index(_BEGIN) > text.index(_END):
        raise DataError(f"{page} must hold the lines {_BEGIN!r} and {_END!r}, one of each: the table goes between them")
    head, rest = text.split(_BEGIN)
    section = "\n".join([_BEGIN, *_markdown(found, machine), _END])
    chart.parent.mkdir(parents=True, exist_ok=True)
    _replace(
        chart,
        ratio_chart([(f"{name} / {peer}", ratio) for name, _, peer, _, ratio in rows_of(found["claims"]) if ratio]),
    )
    _replace(page, head + section + rest.split(_END)[1])
    return [page, chart]


def _replace(path: Path, text: str) -> None:
    with artefact.replacing(path) as target:
        Path(target).write_text(text)


def _markdown(found: Mapping[str, Any], machine: str) -> Iterator[str]:
    yield f"{time.strftime('%d %B %Y')}, {machine}; {found['seconds']:.0f} s in all."
    yield ""
    yield "![Ratios to the peers](images/benchmarks.svg)"
    yield ""
    yield "| claim | Penstock | peer | its figure | ratio |"
    yield "|---|---|---|---|---|"
    for name, ours, peer, theirs, ratio in rows_of(found["claims"]):
        times = "" if ratio is None else f"{ratio:.2f}"
        yield f"| `{name}` | {ours} | {peer and f'`{peer}`'} | {theirs} | {times} |"
    for script, reason in found["failed"].items():
        yield f"\n`{script}` failed: {reason}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, show and write; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help="such as loader or etl; all by default")
    parser.add_argument("--full", action="store_true", help="at the sizes of the quoted figures")
    parser.add_argument("--folder", default=Path(__file__).parent, help="where the benchmark scripts are")
    parser.add_argument("--docs", default="docs", help="the folder whose benchmarks.md and chart are written")
    parser.add_argument(
        "--write", action=argparse.BooleanOptionalAction, help="write the page and the chart; when all scripts run"
    )
    parser.add_argument("--json", action="store_true", help="one JSON line a claim instead of a table")
    parser.add_argument("--progress", action=argparse.BooleanOptionalAction, help="draw a progress bar")
    asked = parser.parse_args(arguments)
    try:
        found = run_suite(asked.folder, asked.scripts, full=asked.full, progress=asked.progress)
        if asked.json:
            for claim in found["claims"]:
                print(json.dumps(claim))
        else:
            show(found, Console() if sys.stdout.isatty() else Console(width=160))
        if asked.write or (asked.write is None and not asked.scripts):
            for path in write(found, asked.docs, describe_machine()):
                print(f"wrote {path}", file=sys.stderr)
    except PenstockError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())

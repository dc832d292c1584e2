"""The reports of several runs, read to be compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.core.bounded import read_json
from penstock.core.errors import ArtefactError, ParameterError, PenstockError
from penstock.jobs.recorder import REPORT_VERSION
from penstock.jobs.text_output import write_text
from penstock.report.comparison import render_comparison

_PARTS = {"headline": dict, "records": list, "stages": list, "configuration": dict, "training": dict}


def read_reports(runs: Sequence[str | Path]) -> dict[str, dict[str, Any]]:
    """The report of each run, by a name that tells it from the others.

    Args:
        runs: folders of runs, or files `report.json` in them.

    Returns:
        Reports as plain data.

    Raises:
        ParameterError: a run is named twice, or there is only one.
        ArtefactError: there is no report, or it is of another version.
    """
    places = [_report_file(run) for run in runs]
    resolved = [place.resolve() for place in places]
    for place, own in zip(places, resolved, strict=True):
        if resolved.count(own) > 1:
            raise ParameterError(f"{place.parent} is named twice; a run is compared with others")
    if len(places) < 2:
        raise ParameterError("give at least two runs to compare")
    return {name: _read(place) for name, place in zip(_names(resolved), places, strict=True)}


def compare_runs(runs: Sequence[str | Path], output: str | Path) -> dict[str, dict[str, Any]]:
    """Write one page that shows runs side by side.

    Args:
        runs: as of `read_reports`.
        output: the page, an HTML file.

    Returns:
        The reports that it shows, by name.

    Raises:
        ParameterError: what is given cannot be compared.
        ArtefactError: a report is not there or cannot be read, or the page cannot be written.
    """
    reports = read_reports(runs)
    try:
        page = render_comparison(reports)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ArtefactError(f"a report is not what a run writes: {type(error).__name__}: {error}") from error
    write_text(output, page)
    return reports


def _report_file(run: str | Path) -> Path:
    place = Path(run)
    place = place / "report.json" if place.is_dir() else place
    if not place.is_file():
        raise ArtefactError(f"{run} has no report.json: name the folder of a training run")
    return place


def _read(place: Path) -> dict[str, Any]:
    report = read_json(place)
    if not isinstance(report, dict) or report.get("version") != REPORT_VERSION or report.get("kind") != "run":
        raise ArtefactError(f"{place} is not the report of a run that this version of Penstock wrote")
    for name, kind in _PARTS.items():
        if report.get(name) is not None and not isinstance(report[name], kind):
            raise ArtefactError(f"{place}: {name!r} must be a {kind.__name__}")
    return report


def _names(files: Sequence[Path]) -> list[str]:
    """The last parts of the paths, as many as tell them apart.

    >>> _names([Path("/a/first/report.json"), Path("/b/first/report.json"), Path("/b/second/report.json")])
    ['a/first', 'b/first', 'b/second']
    """
    for length in range(1, 20):
        names = ["/".join(file.parent.parts[-length:]) for file in files]
        if len(set(names)) == len(names):
            return names
    raise PenstockError("the runs cannot be told apart by their folders")

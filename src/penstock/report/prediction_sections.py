"""Predictions on held-out rows: how they lie by label, whether they hold, and a few of them one by one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from penstock.core.pages.markup import Markup, table, tag
from penstock.report.charts import bar
from penstock.report.plots import Axis, Plot, Series
from penstock.report.sections import Report
from penstock.report.words import outcome, share, short, whole

_LABELS = (("0", "label 0", "one"), ("1", "label 1", "two"))


def prediction_charts(report: Report) -> list[Markup]:
    """How all predictions lie, and whether they hold; nothing where the run has no held-out rows."""
    found = (report.get("figures") or {}).get("predictions")
    return [_histogram(found), _calibration(found)] if found else []


def _histogram(found: Mapping[str, Any]) -> Markup:
    """The share of each label's rows in bins of the prediction: well apart where the model tells them apart."""
    edges = found["edges"]
    middles = [(left + right) / 2 for left, right in pairwise(edges)]
    shares: dict[str, list[float]] = {}
    for key, _, _ in _LABELS:
        counts = found["counts"].get(key) or [0] * len(middles)
        shares[key] = [count / max(1, sum(counts)) for count in counts]
    lines = [Series(name, look, list(zip(middles, shares[key], strict=True))) for key, name, look in _LABELS]
    top = max(max(values) for values in shares.values()) or 1.0
    plot = Plot(
        "Predictions by label",
        Axis("p", edges[0], edges[-1], _probability),
        Axis("share", 0.0, top * 1.08, share),
        lines,
    )
    areas = [plot.area(edges, shares[key], look) for key, _, look in _LABELS]
    ones, rows = sum(found["counts"].get("1") or [0]), found["rows"]
    told = f"{whole(rows)} held-out rows, {share(ones / max(1, rows))} of them with label 1"
    told += ", spread over the data" if found.get("is_sample") else ""
    return plot.draw(*areas, told=told, note=f"The share of each label’s rows by prediction. {told}.")


def _calibration(found: Mapping[str, Any]) -> Markup:
    """What was predicted against what happened, in bins of about as many rows."""
    calibration = found["calibration"]
    points = [(entry["predicted"], entry["clicked"]) for entry in calibration["bins"]]
    if not points:
        return tag("figure", tag("figcaption", tag("strong", "Calibration")), class_="chart")
    top = max(max(point) for point in points) * 1.08 or 1.0
    lines = [Series("as it should be", "quiet", [(0.0, 0.0), (top, top)]), Series("happened", "two", points, True)]
    plot = Plot("Calibration", Axis("p", 0.0, top, _probability), Axis("happened", 0.0, top, _probability), lines)
    # Only the bins answer to the pointer: the diagonal says nothing that the axes do not.
    shown = Plot(plot.title, plot.x, plot.y, [lines[1]])
    told = _calibration_words(calibration)
    return shown.draw(plot.line(lines[0]), plot.line(lines[1]), told=told, note=told)


def _calibration_words(calibration: Mapping[str, Any]) -> str:
    words = f"Predicted {share(calibration['predicted'])} on average, happened {share(calibration['clicked'])}"
    error = calibration.get("expected_error")
    return words + (f"; off by {share(error)} in a bin on average." if error is not None else ".")


def _probability(value: float) -> str:
    return short(round(value, 4))


def examples(report: Report) -> Markup | None:
    """A few held-out rows through the saved model."""
    found = (report.get("figures") or {}).get("examples") or []
    rows = [
        [f"row {number}", bar(0, e["probability"], "accent"), share(e["probability"]), outcome(e.get("label"))]
        for number, e in enumerate(found[:10], 1)
        if e.get("probability") is not None
    ]
    if not rows:
        return None
    head = ["row", "probability", "in figures", "what happened"]
    figures = table(head, rows, "Predictions of the saved model on held-out rows", "waterfall", numeric=(2, 3))
    title = tag("h3", "A few predictions", tag("small", "held-out rows through the saved model"))
    return tag("div", title, figures, class_="lane")

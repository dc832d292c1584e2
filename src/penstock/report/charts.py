"""Small drawings inside tables and cards: histograms, bars, a gauge. What a pointer shows is carried as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.core.pages.markup import Markup, joined, tag
from penstock.report.words import short


def histogram_chart(histogram: Mapping[str, Any], name: str) -> Markup:
    """Counts as small bars; the pointer shows each bar's range or value and its count."""
    counts = histogram.get("counts") or []
    if not counts:
        return tag("span", "no values", class_="empty")
    width, height, top = 144, 30, max(counts) or 1
    step = width / max(len(counts), 6)
    bars, labels = [], []
    for i, n in enumerate(counts):
        tall = max(1.5, (height - 2) * n / top) if n else 0
        bars.append(f"M{cut(i * step)} {height}v-{cut(tall)}h{cut(step - 1.5)}v{cut(tall)}z" if tall else "")
        labels.append(f"{_bin(histogram, i)}: {n:,}")
    words = {"frequency": "most frequent values", "log": "logarithmic bins"}.get(histogram["scale"], "equal bins")
    return tag(
        "svg",
        tag("title", f"{name}: {words}"),
        tag("path", d="".join(bars)),
        viewBox=f"0 0 {width} {height}",
        class_="bars frequency" if histogram["scale"] == "frequency" else "bars",
        role="img",
        data_bars=json.dumps(labels, ensure_ascii=False, separators=(",", ":")),
        data_step=cut(step),
    )


def _bin(histogram: Mapping[str, Any], i: int) -> str:
    if histogram["scale"] == "frequency":
        return str(histogram["values"][i])[:40]
    edges = histogram["edges"]
    return short(edges[i]) if edges[i] == edges[i + 1] else f"{short(edges[i])} to {short(edges[i + 1])}"


def bar(begin: float, width: float, look: str) -> Markup:
    """A bar over a track that is one long; both numbers are shares of it."""
    left, wide = max(0.0, min(1.0, begin)), max(0.0, min(1.0, width))
    style = f"left:{100 * left:.2f}%;width:max({100 * min(wide, 1 - left):.2f}%,{'2px' if wide else '0px'})"
    return tag("span", tag("span", class_=f"fill {look}", style=style), class_="track", aria_hidden="true")


def range_bar(middle: float, most: float) -> Markup:
    """A bar to the middle value, and a paler one from there to the largest; both are shares of the track."""
    half, end = (max(0.0, min(1.0, value)) for value in (middle, most))
    fills = [
        tag("span", class_="fill one", style=f"left:0;width:max({100 * half:.2f}%,2px)"),
        tag("span", class_="fill pale", style=f"left:{100 * half:.2f}%;width:{100 * max(0.0, end - half):.2f}%"),
    ]
    return tag("span", *fills, class_="track", aria_hidden="true")


def gauge(value: float, best: float | None) -> Markup:
    """An AUC between guessing (0.5) and the best reachable, or 1."""
    top = best if best is not None else 1.0
    at = max(0.0, min(1.0, (value - 0.5) / max(top - 0.5, 1e-9)))
    ends = joined([tag("span", "0.5 guessing"), tag("span", f"{top:.3f} best reachable" if best is not None else "1")])
    return joined([bar(0, at, "accent"), tag("span", ends, class_="ends")])


def cut(number: float) -> float:
    """A coordinate: a tenth of a pixel is enough."""
    rounded = round(number, 1)
    return int(rounded) if rounded == int(rounded) else rounded

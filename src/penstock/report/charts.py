"""Charts as inline SVG: lines over steps, small histograms, bars. What a pointer shows is carried as data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.report.markup import Markup, joined, tag
from penstock.report.words import count, short

_WIDTH, _HEIGHT = 420, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 14, 30
_MOST_POINTS = 240  # of one line; more would not be seen


@dataclass(frozen=True)
class Series:
    """One line: its name, its colour's class, its points, and whether each point is marked."""

    name: str
    look: str
    points: Sequence[tuple[float, float]]
    marked: bool = False


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers from `low` to `high`.

    >>> ticks(0, 97), ticks(0.71, 0.79)
    ([0.0, 25.0, 50.0, 75.0], [0.72, 0.74, 0.76, 0.78])
    """
    if not high > low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first, places = math.ceil(low / step - 1e-9), max(0, 2 - math.floor(math.log10(step)))
    return [round(number * step, places) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def thinned(points: Sequence[tuple[float, float]], most: int = _MOST_POINTS) -> list[tuple[float, float]]:
    """At most `most` points: means of neighbours, each where its last one stands.

    >>> thinned([(1, 10.0), (2, 20.0), (3, 30.0), (4, 50.0)], most=2)
    [(2, 15.0), (4, 40.0)]
    """
    if len(points) <= most:
        return list(points)
    size = math.ceil(len(points) / most)
    parts = [points[i : i + size] for i in range(0, len(points), size)]
    return [(part[-1][0], sum(y for _, y in part) / len(part)) for part in parts]


def line_chart(
    title: str, series: Sequence[Series], form: Callable[[float], str] = short, from_zero: bool = False
) -> Markup:
    """Lines over training steps, with a legend, and a description for those who do not see them.

    >>> chart = line_chart("Loss", [Series("train", "one", [(50, 0.7), (100, 0.5)])])
    >>> "<title>Loss</title>" in chart, "train: from 0.7 at step 50 to 0.5 at step 100" in chart
    (True, True)
    """
    lines = [Series(s.name, s.look, thinned(s.points), s.marked) for s in series if s.points]
    if not lines:
        return tag("figure", _caption(title, []), tag("p", "no figures yet", class_="empty"), class_="chart")
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    low, high = (0.0 if from_zero else min(ys)), max(ys)
    spare = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    low, high = (low if from_zero else low - spare), high + spare
    left, right = min(0.0, min(xs)), max(max(xs), 1.0)

    def px(x: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (x - left) / ((right - left) or 1)

    def py(y: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (y - low) / (high - low)

    told = "; ".join(_in_words(line, form) for line in lines)
    drawn = [_line(line, px, py) for line in lines]
    carried = [
        {"name": s.name, "look": s.look, "points": [[_cut(px(x)), _cut(py(y)), count(x), form(y)] for x, y in s.points]}
        for s in lines
    ]
    svg = tag(
        "svg",
        tag("title", title),
        tag("desc", told),
        *_axes(ticks(low, high, 5), ticks(left, right), px, py, form),
        *drawn,
        tag("line", class_="cursor", x1=0, x2=0, y1=_TOP, y2=_HEIGHT - _BOTTOM),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        tabindex=0,
        class_="lines",
        data_series=json.dumps(carried, separators=(",", ":")),
    )
    return tag("figure", _caption(title, lines), svg, class_="chart")


def _in_words(line: Series, form: Callable[[float], str]) -> str:
    (x0, y0), (x1, y1) = line.points[0], line.points[-1]
    if len(line.points) == 1:
        return f"{line.name}: {form(y0)} at step {count(x0)}"
    return f"{line.name}: from {form(y0)} at step {count(x0)} to {form(y1)} at step {count(x1)}"


def _caption(title: str, lines: Sequence[Series]) -> Markup:
    keys = [tag("span", tag("i", class_=f"key {line.look}"), line.name, class_="legend") for line in lines]
    return tag("figcaption", tag("strong", title), *(keys if len(keys) > 1 else []))


def _axes(
    ys: Sequence[float],
    xs: Sequence[float],
    px: Callable[[float], float],
    py: Callable[[float], float],
    form: Callable[[float], str],
) -> list[Markup]:
    out = []
    for y in ys:
        at = _cut(py(y))
        out.append(tag("line", class_="grid", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=at, y2=at))
        out.append(tag("text", form(y), x=_LEFT - 8, y=at + 4, class_="end"))
    for x in xs:
        out.append(tag("text", count(x), x=_cut(px(x)), y=_HEIGHT - 10, class_="mid"))
    return [*out, tag("text", "step", x=_LEFT - 8, y=_HEIGHT - 10, class_="end")]


def _line(line: Series, px: Callable[[float], float], py: Callable[[float], float]) -> Markup:
    places = [(_cut(px(x)), _cut(py(y))) for x, y in line.points]
    path = "M" + "L".join(f"{x} {y}" for x, y in places)
    dots = [tag("circle", cx=x, cy=y, r=3.2) for x, y in places] if line.marked or len(places) == 1 else []
    return tag("g", tag("path", d=path), *dots, class_=f"line {line.look}")


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
        bars.append(f"M{_cut(i * step)} {height}v-{_cut(tall)}h{_cut(step - 1.5)}v{_cut(tall)}z" if tall else "")
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
        data_step=_cut(step),
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


def gauge(value: float, best: float | None) -> Markup:
    """An AUC between guessing (0.5) and the best reachable, or 1."""
    top = best if best is not None else 1.0
    at = max(0.0, min(1.0, (value - 0.5) / max(top - 0.5, 1e-9)))
    ends = joined([tag("span", "0.5 guessing"), tag("span", f"{top:.3f} best reachable" if best is not None else "1")])
    return joined([bar(0, at, "accent"), tag("span", ends, class_="ends")])


def _cut(number: float) -> float:
    """A coordinate: a tenth of a pixel is enough."""
    rounded = round(number, 1)
    return int(rounded) if rounded == int(rounded) else rounded

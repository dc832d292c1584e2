"""Charts with two axes as inline SVG: lines over steps, shapes. What a pointer shows is carried as data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from penstock.core.pages.markup import Markup, tag
from penstock.report.charts import cut
from penstock.report.words import count, short

_WIDTH, _HEIGHT = 420, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 14, 30
_MOST_POINTS = 240  # of one line; more would not be seen
Form = Callable[[float], str]


@dataclass(frozen=True)
class Series:
    """One line: its name, its colour's class, its points, and whether each point is marked."""

    name: str
    look: str
    points: Sequence[tuple[float, float]]
    marked: bool = False


@dataclass(frozen=True)
class Mark:
    """A place on the axis of steps that has a name."""

    at: float
    name: str


@dataclass(frozen=True)
class Axis:
    """What a direction of a chart means: its name, its ends, and how its numbers are written."""

    name: str
    low: float
    high: float
    form: Form = short

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        return (value - self.low) / ((self.high - self.low) or 1.0)


@dataclass(frozen=True)
class Plot:
    """Two axes, and what is drawn between them."""

    title: str
    x: Axis
    y: Axis
    lines: Sequence[Series]

    def px(self, x: float) -> float:
        """A value of x in pixels."""
        return cut(_LEFT + (_WIDTH - _LEFT - _RIGHT) * self.x.share(x))

    def py(self, y: float) -> float:
        """A value of y in pixels."""
        return cut(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * self.y.share(y))

    def draw(self, *shapes: Markup, told: str, note: str | None = None) -> Markup:
        """The figure, its legend and what it shows in words; `shapes` lie over the grid."""
        carried = [
            {"name": line.name, "look": line.look, "points": [self._carried(*point) for point in line.points]}
            for line in self.lines
        ]
        svg = tag(
            "svg",
            tag("title", self.title),
            tag("desc", told),
            *self._grid(),
            *shapes,
            tag("line", class_="cursor", x1=0, x2=0, y1=_TOP, y2=_HEIGHT - _BOTTOM),
            viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
            role="img",
            tabindex=0,
            class_="lines",
            data_axis=self.x.name,
            data_series=json.dumps(carried, separators=(",", ":")),
        )
        under = tag("p", note, class_="under") if note else None
        return tag("figure", _caption(self.title, self.lines), svg, under, class_="chart")

    def _carried(self, x: float, y: float) -> list[float | str]:
        return [self.px(x), self.py(y), self.x.form(x), self.y.form(y)]

    def _grid(self) -> list[Markup]:
        out = []
        for y in ticks(self.y.low, self.y.high, 5):
            at = self.py(y)
            out.append(tag("line", class_="grid", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=at, y2=at))
            out.append(tag("text", self.y.form(y), x=_LEFT - 8, y=at + 4, class_="end"))
        for x in ticks(self.x.low, self.x.high):
            out.append(tag("text", self.x.form(x), x=self.px(x), y=_HEIGHT - 10, class_="mid"))
        return [*out, tag("text", self.x.name, x=_LEFT - 8, y=_HEIGHT - 10, class_="end")]

    def line(self, series: Series) -> Markup:
        """One line with its dots."""
        places = [(self.px(x), self.py(y)) for x, y in series.points]
        path = "M" + "L".join(f"{x} {y}" for x, y in places)
        dotted = series.marked or len(places) == 1
        dots = [tag("circle", cx=x, cy=y, r=3.2) for x, y in places] if dotted else []
        return tag("g", tag("path", d=path), *dots, class_=f"line {series.look}")

    def area(self, edges: Sequence[float], heights: Sequence[float], look: str) -> Markup:
        """A histogram as one shape with steps."""
        base = self.py(self.y.low)
        path = f"M{self.px(edges[0])} {base}"
        for (left, right), height in zip(pairwise(edges), heights, strict=True):
            path += f"L{self.px(left)} {self.py(height)}L{self.px(right)} {self.py(height)}"
        return tag("path", d=f"{path}L{self.px(edges[-1])} {base}z", class_=f"area {look}")

    def mark(self, mark: Mark) -> list[Markup]:
        """A line across the chart with its name beside it."""
        at, is_right = self.px(mark.at), self.x.share(mark.at) > 0.7
        line = tag("line", class_="mark-line", x1=at, x2=at, y1=_TOP, y2=_HEIGHT - _BOTTOM)
        name = tag("text", mark.name, x=at + (-5 if is_right else 5), y=_TOP + 9, class_="end" if is_right else None)
        return [line, name]


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
    title: str,
    series: Sequence[Series],
    form: Form = short,
    from_zero: bool = False,
    marks: Sequence[Mark] = (),
    axis: str = "step",
) -> Markup:
    """Lines over training steps (or what `axis` names), with a legend, and words for those who do not see them.

    >>> chart = line_chart("Loss", [Series("train", "one", [(50, 0.7), (100, 0.5)])], marks=[Mark(100, "best")])
    >>> "<title>Loss</title>" in chart, "train: from 0.7 at step 50 to 0.5 at step 100; best: step 100" in chart
    (True, True)
    """
    lines = [replace(line, points=thinned(line.points)) for line in series if line.points]
    if not lines:
        return tag("figure", _caption(title, []), tag("p", "no figures yet", class_="empty"), class_="chart")
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    low, high = (0.0 if from_zero else min(ys)), max(ys)
    spare = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    steps = Axis(axis, min(0.0, min(xs)), max(max(xs), 1.0), count)
    plot = Plot(title, steps, Axis(title, low if from_zero else low - spare, high + spare, form), lines)
    shown = [mark for mark in marks if steps.low <= mark.at <= steps.high]
    told = [_in_words(line, form, axis) for line in lines] + [f"{mark.name}: {axis} {count(mark.at)}" for mark in shown]
    drawn = [shape for mark in shown for shape in plot.mark(mark)]
    return plot.draw(*drawn, *(plot.line(line) for line in lines), told="; ".join(told))


def _in_words(line: Series, form: Form, axis: str) -> str:
    (x0, y0), (x1, y1) = line.points[0], line.points[-1]
    if len(line.points) == 1:
        return f"{line.name}: {form(y0)} at {axis} {count(x0)}"
    return f"{line.name}: from {form(y0)} at {axis} {count(x0)} to {form(y1)} at {axis} {count(x1)}"


def _caption(title: str, lines: Sequence[Series]) -> Markup:
    keys = [tag("span", tag("i", class_=f"key {line.look}"), line.name, class_="legend") for line in lines]
    return tag("figcaption", tag("strong", title), *(keys if len(keys) > 1 else []))

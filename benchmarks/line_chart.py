"""Lines over a number that doubles, as an SVG that fits light and dark pages. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# Colours that stand out on white and on black alike; the page's own background shows through.
INK = "#7d7d7d"
COLOURS = ("#2f81f7", "#2da44e", "#e0762b", "#bf5af2", "#d4a72c", "#e5534b")
Points = Mapping[int, float]


def draw(
    series: Mapping[str, Points], path: Path, x: str, y: str, unit: str = "", dashed: bool = False, log: bool = False
) -> None:
    """Draw one line a series, with its name and its last figure at its end.

    Args:
        series: `{name: {x: y}}`, in ascending order, six at most; colours are given in this order.
        path: of the SVG.
        x, y: what the axes say.
        unit: behind a figure.
        dashed: for what was not measured.
        log: whether the figures are on a logarithmic scale as well.
    """
    import matplotlib
    import matplotlib.pyplot as plt

    matplotlib.use("svg")
    style: dict = {"svg.fonttype": "none", "svg.hashsalt": "penstock", "font.family": "sans-serif", "font.size": 11}
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    with plt.rc_context(style | dict.fromkeys(inked, INK)):
        figure, axes = plt.subplots(figsize=(8.2, 4.4))
        for (name, points), colour in zip(series.items(), COLOURS[: len(series)], strict=True):
            places, figures = list(points), list(points.values())
            axes.plot(places, figures, "--" if dashed else "-", marker="o", markersize=5, linewidth=2, color=colour)
            axes.annotate(f"{name} {figures[-1]:.3g} {unit}", (places[-1], figures[-1]), xytext=(9, 0), va="center",
                          textcoords="offset points", color=colour, fontsize=10, fontweight="bold")  # fmt: skip
        ticks = sorted({place for points in series.values() for place in points})
        axes.set_xscale("log", base=2)
        if log:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(axis="y", color=INK, alpha=0.25, linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})
    print(f"{path} drawn from {sum(map(len, series.values()))} points")

"""Rows/s against batch size, drawn from JSON lines: python benchmarks/criteo_chart.py [LINES.jsonl [CHART.svg]]

The lines are those of `criteo_h200.py --part step train` for several batch sizes; by default the ones that were
measured for the guide. Needs matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
LINES, CHART = HERE / "figures" / "criteo_h200.jsonl", HERE.parent / "docs" / "images" / "gpu_batch_size.svg"
# Colours that stand out on white and on black alike; the page's own background shows through.
INK = "#7d7d7d"
STEP, TRAIN = "Penstock, data on the GPU", "Penstock, from parquet"
COMPILED, EAGER = "PyTorch, compiled", "PyTorch, eager"
SERIES = {STEP: "#2f81f7", TRAIN: "#2da44e", COMPILED: "#e0762b", EAGER: "#bf5af2"}
ADAPTIVE = ("torch_dense", "torch_dense_joint")  # eager peers that adapt; the better one is drawn
Points = dict[int, float]


def read(path: Path) -> dict[str, Points]:
    """`{series: {batch size: million rows/s}}`."""
    found: dict[str, Points] = {}

    def add(name: str, batch: int, rate: float) -> None:
        found.setdefault(name, {})[batch] = rate / 1e6

    for line in path.read_text().splitlines():
        claim = json.loads(line)
        if claim["claim"] == "gpu/train":
            add(TRAIN, claim["batch"], claim["penstock"])
        elif claim["claim"] == "gpu/step":
            peers = {name: rate for name, rate in claim["peers"].items() if rate}
            add(STEP, claim["batch"], claim["penstock"])
            if "torch_dense_compiled" in peers:
                add(COMPILED, claim["batch"], peers["torch_dense_compiled"])
            if any(name in peers for name in ADAPTIVE):
                add(EAGER, claim["batch"], max(rate for name, rate in peers.items() if name in ADAPTIVE))
    return {key: dict(sorted(points.items())) for key, points in found.items()}


def draw(series: dict[str, Points], path: Path) -> None:
    import matplotlib
    import matplotlib.pyplot as plt

    matplotlib.use("svg")
    style: dict = {"svg.fonttype": "none", "svg.hashsalt": "penstock", "font.family": "sans-serif", "font.size": 11}
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    with plt.rc_context(style | dict.fromkeys(inked, INK)):
        figure, axes = plt.subplots(figsize=(8.2, 4.4))
        for name, points in series.items():
            colour, last = SERIES[name], max(points)
            axes.plot(list(points), list(points.values()), marker="o", markersize=5, linewidth=2, color=colour)
            axes.annotate(f"{name}\n{points[last]:.0f} M", (last, points[last]), xytext=(9, 0), va="center",
                          textcoords="offset points", color=colour, fontsize=10, fontweight="bold")  # fmt: skip
        sizes = sorted({size for points in series.values() for size in points})
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("batch size")
        axes.set_ylabel("million rows/s")
        axes.grid(axis="y", color=INK, alpha=0.25, linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})
    print(f"{path} drawn from {sum(map(len, series.values()))} points")


def main() -> None:
    given = [Path(argument) for argument in sys.argv[1:3]]
    lines, chart = (*given, *(LINES, CHART)[len(given) :])
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        print("benchmarks/criteo_chart.py needs matplotlib; run: pip install matplotlib")
        sys.exit(0)
    draw(read(lines), chart)


if __name__ == "__main__":
    main()

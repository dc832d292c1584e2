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
SERIES = {
    "Penstock, data on the GPU": "#2f81f7",
    "Penstock, training from parquet": "#2da44e",
    "PyTorch, compiled": "#e0762b",
    "PyTorch, eager": "#bf5af2",
}
EAGER = ("torch_dense", "torch_dense_joint")


def read(path: Path) -> dict[str, dict[int, float]]:
    """`{series: {batch size: million rows/s}}`; eager PyTorch is the best that adapts."""
    found: dict[str, dict[int, float]] = {name: {} for name in SERIES}
    step, train, compiled, eager = found.values()
    for line in path.read_text().splitlines():
        claim = json.loads(line)
        if claim["claim"] == "gpu/train":
            train[claim["batch"]] = claim["penstock"] / 1e6
        elif claim["claim"] == "gpu/step":
            batch, peers = claim["batch"], {k: v for k, v in claim["peers"].items() if v}
            step[batch] = claim["penstock"] / 1e6
            if "torch_dense_compiled" in peers:
                compiled[batch] = peers["torch_dense_compiled"] / 1e6
            if any(kind in peers for kind in EAGER):
                eager[batch] = max(peers[kind] for kind in EAGER if kind in peers) / 1e6
    return {name: dict(sorted(points.items())) for name, points in found.items() if points}


def draw(series: dict[str, dict[int, float]], path: Path) -> None:
    import matplotlib
    import matplotlib.pyplot as plt

    matplotlib.use("svg")
    style = {"svg.fonttype": "none", "svg.hashsalt": "penstock", "font.family": "sans-serif", "font.size": 11}
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    style |= dict.fromkeys(inked, INK)
    with plt.rc_context(style):
        figure, axes = plt.subplots(figsize=(8.2, 4.4))
        for name, points in series.items():
            axes.plot(list(points), list(points.values()), marker="o", markersize=4.5, linewidth=2, color=SERIES[name])
            last = max(points)
            axes.annotate(f"{name}\n{points[last]:.0f} M", (last, points[last]), xytext=(8, 0), va="center",
                          textcoords="offset points", color=SERIES[name], fontsize=10, fontweight="bold")  # fmt: skip
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

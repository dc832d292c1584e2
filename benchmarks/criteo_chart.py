"""Rows/s against batch size, drawn from JSON lines: python benchmarks/criteo_chart.py [LINES.jsonl [CHART.svg]]

The lines are those of `criteo_h200.py --part step train` for several batch sizes; by default the ones that were
measured for the guide. Needs matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from line_chart import draw

HERE = Path(__file__).parent
LINES, CHART = HERE / "figures" / "criteo_h200.jsonl", HERE.parent / "docs" / "images" / "gpu_batch_size.svg"
STEP, TRAIN = "Penstock, data on the GPU", "Penstock, from parquet"
COMPILED, EAGER = "PyTorch, compiled", "PyTorch, eager"
SERIES = (STEP, TRAIN, COMPILED, EAGER)
ADAPTIVE = ("torch_dense", "torch_dense_joint")  # eager peers that adapt; the better one is drawn


def read(path: Path) -> dict[str, dict[int, float]]:
    """`{series: {batch size: million rows/s}}`."""
    found: dict[str, dict[int, float]] = {}

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
    return {name: dict(sorted(found[name].items())) for name in SERIES if name in found}


def main() -> None:
    given = [Path(argument) for argument in sys.argv[1:3]]
    lines, chart = (*given, *(LINES, CHART)[len(given) :])
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        print("benchmarks/criteo_chart.py needs matplotlib; run: pip install matplotlib")
        sys.exit(0)
    draw(read(lines), chart, "batch size", "million rows/s", "M")


if __name__ == "__main__":
    main()

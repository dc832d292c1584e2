"""Features against the number of cores, drawn from JSON lines: python benchmarks/threads_chart.py [LINES [CHART.svg]]

The lines have `cores`, `who` (a state of Penstock, or a peer) and `rate` (rows/s); by default those of the H200 machine
that docs/benchmarks.md speaks of. `pipeline.py --threads` measures the same on any machine. Needs matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from line_chart import draw

HERE = Path(__file__).parent
LINES, CHART = HERE / "figures" / "threads_h200.jsonl", HERE.parent / "docs" / "images" / "threads.svg"


def read(path: Path) -> dict[str, dict[int, float]]:
    """`{series: {cores: million rows/s}}`."""
    found: dict[str, dict[int, float]] = {}
    for line in path.read_text().splitlines():
        claim = json.loads(line)
        found.setdefault(claim["who"], {})[claim["cores"]] = claim["rate"] / 1e6
    return {who: dict(sorted(points.items())) for who, points in found.items()}


def main() -> None:
    given = [Path(argument) for argument in sys.argv[1:3]]
    lines, chart = (*given, *(LINES, CHART)[len(given) :])
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        print("benchmarks/threads_chart.py needs matplotlib; run: pip install matplotlib")
        sys.exit(0)
    draw(read(lines), chart, "cores", "million rows/s", "M")


if __name__ == "__main__":
    main()

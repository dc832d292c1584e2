"""A chart of ratios: one bar a peer, from the line at 1 to the ratio, on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

_ROW, _LEFT, _RIGHT, _TOP, _WIDTH = 18, 330, 60, 34, 900

# Colours that differ also for the colour-blind; text follows the reader's light or dark page.
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #333 } .axis { stroke: #9994 } .one { stroke: #333 }
.better { fill: #1f77b4 } .worse { fill: #e08214 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .one { stroke: #ddd } }
"""


def ratio_chart(bars: Sequence[tuple[str, float]]) -> str:
    """An SVG; bars to the right are where Penstock is better.

    >>> ratio_chart([("loader / polars", 0.8), ("loader / torch", 120.0)]).count('class="better"')
    1
    """
    ratios = [ratio for _, ratio in bars]
    low, high = math.floor(math.log10(min([*ratios, 0.5]))), math.ceil(math.log10(max([*ratios, 2.0])))
    plot, height = _WIDTH - _LEFT - _RIGHT, _TOP + _ROW * len(bars) + 10

    def x(ratio: float) -> float:
        return _LEFT + plot * (math.log10(ratio) - low) / (high - low)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        "<title>How many times better than each peer</title>",
        f"<style>{_STYLE}</style>",
    ]
    for power in range(low, high + 1):
        at, name = x(10.0**power), "one" if power == 0 else "axis"
        out.append(f'<line class="{name}" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP - 8}" y2="{height - 6}"/>')
        out.append(f'<text x="{at:.1f}" y="{_TOP - 14}" text-anchor="middle">{10.0**power:g}×</text>')
    for number, (label, ratio) in enumerate(bars):
        out += _bar(label, ratio, _TOP + _ROW * number, x(1.0), x(ratio))
    return "\n".join([*out, "</svg>", ""])


def _bar(label: str, ratio: float, top: int, one: float, end: float) -> list[str]:
    left, width, kind = min(one, end), abs(end - one), "better" if ratio >= 1 else "worse"
    base = top + _ROW - 6
    shown = f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"
    return [
        f'<text x="{_LEFT - 10}" y="{base}" text-anchor="end">{escape(label)}</text>',
        f'<rect class="{kind}" x="{left:.1f}" y="{top + 2}" width="{max(width, 1):.1f}" height="{_ROW - 6}" rx="2"/>',
        f'<text x="{max(one, end) + 6:.1f}" y="{base}">{shown}</text>',
    ]

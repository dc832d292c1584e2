"""What every benchmark shares: interleaved best-of-several timing, a table, and one JSON line a claim."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.report.machine import describe_machine


@dataclass
class Claim:
    """One measured claim: a figure for Penstock, one for each peer (None: not importable here).

    `higher_is_better` says which way the unit points; ratios above 1 always mean that Penstock is better.
    """

    name: str
    unit: str
    penstock: float
    peers: dict[str, float | None] = field(default_factory=dict)
    higher_is_better: bool = True
    extra: dict[str, object] = field(default_factory=dict)

    @property
    def ratios(self) -> dict[str, float | None]:
        out: dict[str, float | None] = {}
        for peer, value in self.peers.items():
            if not value:
                out[peer] = None
            else:
                ratio = self.penstock / value if self.higher_is_better else value / self.penstock
                out[peer] = float(f"{ratio:.4g}")
        return out

    def line(self) -> str:
        claim = {"claim": self.name, "unit": self.unit, "penstock": _short(self.penstock)}
        peers = {peer: None if value is None else _short(value) for peer, value in self.peers.items()}
        return json.dumps({**claim, "peers": peers, "ratios": self.ratios, **self.extra})


def best_of(contestants: dict[str, Callable[[], object]], rounds: int = 3) -> dict[str, float]:
    """The best wall time of each contestant, their rounds interleaved so that a noisy minute hits all of them."""
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def report(title: str, claims: list[Claim]) -> None:
    """Print a table for people, then the JSON lines for machines."""
    print(f"\n{title} ({describe_machine()})")
    for claim in claims:
        print(f"\n  {claim.name} [{claim.unit}]")
        print(f"    {'penstock':<24}{_readable(claim.penstock):>14}")
        for peer, value in claim.peers.items():
            ratio = claim.ratios[peer]
            shown = "not installed" if value is None else _readable(value)
            print(f"    {peer:<24}{shown:>14}" + ("" if ratio is None else f"   ratio {ratio:.2f}"))
    print()
    for claim in claims:
        print(claim.line())


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _readable(value: float) -> str:
    for limit, suffix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= limit:
            return f"{value / limit:.2f}{suffix}"
    return f"{value:.3g}"

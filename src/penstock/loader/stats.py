"""Where the time of an epoch goes, and which side is the bottleneck."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

STAGES = ("read", "decode", "shuffle", "copy", "wait_for_consumer", "wait_for_loader")


@dataclass
class StageTotals:
    """Seconds of work (summed over threads) and bytes moved."""

    seconds: float = 0.0
    num_bytes: int = 0


@dataclass
class Stats:
    """Counters of one loader, filled by its threads.

    `read`, `decode`, `shuffle` and `copy` (to the device) are seconds of work, summed over threads;
    `wait_for_loader` is how long the consumer had to wait for batches, `wait_for_consumer` how long it kept the batches
    waiting while it worked.

    Args:
        stages: seconds and bytes by stage.
        rows: delivered.
        batches: delivered.

    >>> stats = Stats()
    >>> stats.add("decode", 0.5, num_bytes=1000)
    >>> stats.stages["decode"].seconds
    0.5
    """

    stages: dict[str, StageTotals] = field(default_factory=lambda: {name: StageTotals() for name in STAGES})
    rows: int = 0
    batches: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, stage: str, seconds: float, num_bytes: int = 0) -> None:
        """Count some work.

        Args:
            stage: one of `STAGES`.
            seconds: of work.
            num_bytes: moved.
        """
        with self._lock:
            entry = self.stages[stage]
            entry.seconds += seconds
            entry.num_bytes += num_bytes

    @contextmanager
    def timed(self, stage: str, num_bytes: int = 0) -> Iterator[None]:
        """A block whose time is counted.

        Args:
            stage: one of `STAGES`.
            num_bytes: moved.

        Returns:
            A block.
        """
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, time.perf_counter() - start, num_bytes)

    @property
    def elapsed(self) -> float:
        """Seconds of the consumer's loop so far."""
        return self.stages["wait_for_loader"].seconds + self.stages["wait_for_consumer"].seconds

    def verdict(self) -> str:
        """One line on which side waits for the other.

        Returns:
            A sentence.
        """
        if not self.batches:
            return "nothing was loaded yet"
        waited = self.stages["wait_for_loader"].seconds / max(self.elapsed, 1e-9)
        if waited < 0.5:
            return f"the model is the bottleneck: the loader waited {1 - waited:.0%} of the time"
        work = {name: self.stages[name].seconds for name in ("read", "decode", "shuffle", "copy")}
        slowest = max(work, key=lambda name: work[name])
        share = work[slowest] / max(sum(work.values()), 1e-9)
        return (
            f"the loader is the bottleneck: the model waited {waited:.0%} of the time; "
            f"{share:.0%} of the loader's work is {slowest}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data: per stage seconds and bytes, rows, batches, the verdict.

        Returns:
            Figures by name.
        """
        stages = {n: {"seconds": round(s.seconds, 6), "bytes": s.num_bytes} for n, s in self.stages.items()}
        return {"rows": self.rows, "batches": self.batches, "stages": stages, "verdict": self.verdict()}

    def __str__(self) -> str:
        lines = [f"{self.rows:,} rows in {self.batches:,} batches, {self.elapsed:.2f} s"]
        for name, stage in self.stages.items():
            volume = f"  {stage.num_bytes / 1e9:.2f} GB" if stage.num_bytes else ""
            lines.append(f"  {name.replace('_', ' '):<18}{stage.seconds:8.3f} s{volume}")
        return "\n".join([*lines, self.verdict()])

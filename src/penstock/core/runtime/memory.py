"""How much memory there is for what could also be done with less."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def available_memory() -> int | None:
    """Bytes that this process may still take, as the system and its container say; None where nobody says.

    >>> found = available_memory()
    >>> found is None or found > 0
    True
    """
    bounds = []
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        bounds += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # no container, or one without a bound
        bounds.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    return max(min(bounds), 1) if bounds else None

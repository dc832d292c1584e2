"""The machine that a figure was measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def machine_facts() -> dict[str, Any]:
    """Cores, processor, memory and versions, as plain data.

    >>> machine_facts()["cores"] >= 1
    True
    """
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": _processor(),
        "memory_bytes": _memory(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }


def describe_machine() -> str:
    """The same in a few words."""
    facts = machine_facts()
    memory = f", {facts['memory_bytes'] / 2**30:.0f} GiB" if facts["memory_bytes"] else ""
    return f"{facts['cores']} cores, {facts['processor']}{memory}, Python {facts['python']}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return None

"""The machine that a figure was measured on."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from penstock.core.runtime.threads import available_cores

_PACKAGES = (
    "penstock", "numpy", "polars", "pyarrow", "numba", "torch", "triton", "keras", "tensorflow", "jax", "ray", "dask",
)  # fmt: skip


def machine_facts() -> dict[str, Any]:
    """Cores, processor, memory and versions, as plain data.

    >>> machine_facts()["cores"] >= 1
    True
    """
    return {
        "cores": available_cores(),
        "processor": _processor(),
        "memory_bytes": _memory(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }


def versions(packages: tuple[str, ...] = _PACKAGES) -> dict[str, str]:
    """The versions of those packages that are installed.

    >>> list(versions(("numpy", "no-such-package")))
    ['numpy']
    """
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def gpus() -> list[str]:
    """The names of the GPUs, where torch has been imported already."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


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

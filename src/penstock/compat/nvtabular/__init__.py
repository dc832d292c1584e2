"""NVTabular's names over Penstock: `import nvtabular as nvt` after `penstock.compat.activate()`."""

from __future__ import annotations

from typing import Any

__version__ = "23.08.00"  # the last release whose names are here; code that looks at it takes the newest branch


# `_version` modules: the releases that are stood in for, in versioneer's form.


def get_versions() -> dict[str, Any]:
    """The version that the library reports.

    >>> get_versions()["version"]
    '23.08.00'
    """
    return {"version": __version__, "full-revisionid": None, "dirty": False, "error": None, "date": None}
